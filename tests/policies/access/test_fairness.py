"""The order of service: decayed usage, the order of a tree, and shares that come to be as set."""

import itertools
import random
from heapq import heappop, heappush

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from policies.access.fairness import CHILDREN_MAX, HALF_LIVES_MAX, NS, Tree, spread_ns
from policies.access.shares import FairShare, Share
from policies.parties import Owner, PartyKind, read_party

DAY_S = 86_400.0
NOW_S = 1_700_000_000.0


def share(name, who="", parent="", shares=1, each=None):
    return Share(name, shares, parent, read_party(who) if who else None, each)


def tree(*shares, half_life_s=7 * DAY_S, max_wait_s=DAY_S, each=None):
    made = Tree(FairShare(half_life_s, max_wait_s, each, shares))
    made.move_on(NOW_S)
    return made


def project(name, user="ann", site="", group=""):
    return Owner(user, group, name, site)


def order(made, *leaves):
    """The titles of leaves that wait, in the order of their turns."""
    made.begin(leaves)
    found = list(made.turns())
    assert sorted(found, key=made.place) == found
    assert set(found) == set(leaves)
    return [leaf.title for leaf in found]


# --- the owner of work ---------------------------------------------------------------------------


def test_the_share_that_each_one_has_is_its_party_s():
    for each, owner, party in (
        (PartyKind.USER, project("risk", "bob"), "user:bob"),
        (PartyKind.PROJECT, project("risk"), "project:risk"),
        (PartyKind.USER, project("risk", "bob", "paris"), "site:paris"),
    ):
        assert tree(each=each).leaf_of(owner).party == read_party(party)
    assert tree(each=PartyKind.SITE).leaf_of(project("risk")).party is None, "of all of this site"
    assert tree(share("desk", "group:quants")).leaf_of(project("risk")).party is None, "the rest"


BANK = (
    share("trading"),
    share("risk", "project:risk", "trading", 2, PartyKind.USER),
    share("prod", "user:batch", "risk", 5),
    share("pricing", "project:pricing", "trading"),
    share("desk", "group:quants"),
    share("paris", "site:paris"),
    share("sites", "others", each=PartyKind.SITE),
)


@pytest.mark.parametrize(
    ("whose", "title"),
    [
        (project("risk"), "trading/risk/user:ann"),
        (project("risk", "batch"), "trading/risk/prod"),
        (project("risk", "ada@lyon", "lyon"), "trading/risk/site:lyon"),
        (project("pricing", group="quants"), "trading/pricing"),  # as it is written first
        (project("other", group="quants"), "desk"),
        (project("other", "x@paris", "paris", "quants"), "paris"),
        (project("other", "x@lyon", "lyon"), "sites/site:lyon"),
        (project("other"), "rest"),
    ],
)
def test_the_first_share_that_includes_it_has_it_and_so_down_the_tree(whose, title):
    made = tree(*BANK)
    leaf = made.leaf_of(whose)
    assert leaf.title == title
    assert made.leaf_of(whose) is leaf


@pytest.mark.parametrize(
    ("each", "whose", "title"),
    [
        (PartyKind.PROJECT, project("risk"), "project:risk"),
        (PartyKind.USER, project("risk"), "user:ann"),
        (PartyKind.GROUP, project("risk", group="quants"), "group:quants"),
        (PartyKind.GROUP, project("risk"), "rest"),
        (PartyKind.SITE, project("risk"), "site:(own)"),
        *((each, project("risk", "ada@lyon", "lyon"), "site:lyon") for each in PartyKind
          if each.value in ("user", "group", "project", "site")),
    ],
)  # fmt: skip
def test_each_has_a_share_of_its_own_and_another_site_is_one(each, whose, title):
    assert tree(each=each).leaf_of(whose).title == title


def test_names_without_end_fill_no_memory():
    made = tree(each=PartyKind.PROJECT)
    busy = [made.leaf_of(project(str(n))) for n in range(CHILDREN_MAX)]
    for leaf in busy[:-1]:
        leaf.jobs = 1
    # One of them is idle: it makes room. Then all newcomers share a rest, but for known ones.
    assert made.leaf_of(project("new")).title == "project:new"
    made.leaf_of(project("new")).jobs = 1
    for n in range(100):
        assert made.leaf_of(project(f"more {n}")).title == "rest"
    assert made.leaf_of(project("0")) is busy[0]
    assert len(list(made.nodes())) <= CHILDREN_MAX + 2
    # A minute later the tree looks again for those that have gone.
    busy[5].jobs = 0
    made.move_on(NOW_S + 61)
    assert made.leaf_of(project("late")).title == "project:late"


# --- decayed usage -------------------------------------------------------------------------------


@given(
    half_life_s=st.floats(3600.0, 30 * DAY_S),
    uses=st.lists(
        st.tuples(st.floats(0.0, 40 * DAY_S), st.integers(0, 10**6 * NS)), min_size=1, max_size=30
    ),
)
def test_decayed_usage_is_the_closed_formula(half_life_s, uses):
    made = tree(share("a", "all"), half_life_s=half_life_s)
    (leaf,) = made.root.children.values()
    now_s, at = NOW_S, []
    for passed_s, ns in uses:  # uneven steps
        now_s += passed_s
        made.move_on(now_s)
        made.charge(leaf, ns)
        at.append((now_s, ns))
    expected = sum(ns * 0.5 ** ((now_s - then_s) / half_life_s) for then_s, ns in at)
    assert made.used_ns(leaf) == pytest.approx(expected, rel=1e-6, abs=10.0)
    assert made.used_ns(made.root) == pytest.approx(expected, rel=1e-6, abs=10.0)


def test_a_half_life_halves_and_a_step_at_a_time_is_as_one():
    for steps in (1, 7, 1000):
        made = tree(share("a", "all"))
        (leaf,) = made.root.children.values()
        made.charge(leaf, 1000 * NS)
        for step in range(1, steps + 1):
            made.move_on(NOW_S + 7 * DAY_S * step / steps)
        assert made.used_ns(leaf) == pytest.approx(500 * NS, rel=1e-9)


def test_after_very_many_half_lives_sums_are_still_short_and_right():
    made = tree(share("a", "all"), half_life_s=3600.0)
    (leaf,) = made.root.children.values()
    now_s = NOW_S
    made.begin([leaf])
    for _ in range(5):
        now_s += 3600.0 * (HALF_LIVES_MAX + 0.5)
        made.move_on(now_s)
        made.charge(leaf, 8 * NS)
    made.move_on(now_s + 3 * 3600.0)
    assert made.used_ns(leaf) == pytest.approx(NS, rel=1e-6)
    assert leaf.used.bit_length() < 200
    assert made.standings()[0].wait_s == pytest.approx(3600.0 * (5 * (HALF_LIVES_MAX + 0.5) + 3))


def test_a_clock_that_is_set_back_stands_still_and_goes_on_from_there():
    made = tree(share("a", "all"), half_life_s=DAY_S)
    (leaf,) = made.root.children.values()
    made.move_on(NOW_S + DAY_S)
    made.charge(leaf, 100 * NS)
    made.begin([leaf])
    made.move_on(NOW_S - 300 * DAY_S)
    assert made.used_ns(leaf) == pytest.approx(100 * NS)
    made.move_on(NOW_S - 299 * DAY_S)
    assert made.used_ns(leaf) == pytest.approx(50 * NS)
    (standing,) = made.standings()
    assert standing.wait_s == pytest.approx(DAY_S)


@given(
    reports=st.permutations(
        [(leaf, ns) for leaf in range(3) for ns in (1, 10**9 // 3, 7 * 10**9, 10**14 + 1)]
    )
)
def test_the_order_in_which_equal_reports_come_changes_nothing(reports):
    def reckon(reports):
        made = tree(*(share(name, f"user:{name}") for name in "abc"))
        leaves = list(made.root.children.values())
        made.move_on(NOW_S + 12345.678)
        for leaf, ns in reports:
            made.hold(leaves[leaf], 3)
            made.charge(leaves[leaf], ns)
            made.hold(leaves[leaf], -3)
        return order(made, *leaves), [made.place(leaf) for leaf in leaves]

    assert reckon(reports) == reckon(sorted(reports))


@given(
    hours=st.floats(0.0, 2000.0), length_s=st.floats(0.1, 3600.0), half_life_h=st.floats(1.0, 500.0)
)
def test_what_was_used_evenly_over_an_hour_comes_to_the_sum_of_its_parts(
    hours, length_s, half_life_h
):
    now_s, half_life_s = NOW_S, half_life_h * 3600.0
    start_at_s = now_s - hours * 3600.0 - length_s
    found = spread_ns(10**15, start_at_s, start_at_s + length_s, now_s, half_life_s)
    parts = 2000
    middles = (start_at_s + length_s * (part + 0.5) / parts for part in range(parts))
    expected = sum(10**15 / parts * 0.5 ** ((now_s - at_s) / half_life_s) for at_s in middles)
    assert found == pytest.approx(expected, rel=1e-6, abs=2)


def test_of_the_hour_that_goes_on_what_has_passed_counts():
    assert spread_ns(1000, NOW_S - 1, NOW_S + 3599, NOW_S, 3600.0) == 1000
    assert spread_ns(1000, NOW_S + 10, NOW_S + 20, NOW_S, 3600.0) == 1000  # the clock was set back


# --- turns ---------------------------------------------------------------------------------------


def test_who_has_used_least_for_its_shares_goes_first_level_by_level():
    made = tree(
        share("x", shares=1), share("y", shares=3),
        share("a", "user:a", "x"), share("b", "user:b", "x"), share("c", "user:c", "y"),
    )  # fmt: skip
    a, b, c = (made.leaf_of(Owner(name)) for name in "abc")
    assert order(made, a, b, c) == ["y/c", "x/a", "x/b"]  # the larger share, then the name
    made.charge(c, 299 * NS)
    made.charge(a, 100 * NS)
    assert order(made, a, b, c) == ["y/c", "x/b", "x/a"]  # 299/3 before 100
    made.charge(c, 2 * NS)
    # b has used nothing, and waits behind a's group all the same when that is behind: no leaf gains
    # by the unused part of its group, or suffers from another group's.
    assert order(made, a, b, c) == ["x/b", "x/a", "y/c"]
    made.charge(b, 100 * NS)
    assert order(made, a, b, c) == ["y/c", "x/a", "x/b"]


def test_what_is_handed_out_counts_before_it_is_reported():
    made = tree(share("a", "user:a", shares=3), share("b", "user:b"))
    a, b = made.leaf_of(Owner("a")), made.leaf_of(Owner("b"))
    made.begin([a, b])
    got = []
    for _ in range(8):  # a burst before the first report
        leaf = next(iter(made.turns()))
        made.hold(leaf, NS)
        made.gave(leaf)
        got.append(leaf.name)
    assert sorted(got) == ["a"] * 6 + ["b"] * 2
    made.hold(a, -6 * NS)
    assert made.used_ns(a) == 0  # and nothing is left of it
    assert a.held_ns == 0


@pytest.mark.parametrize(
    ("used_s", "tasks"),
    [
        ((0, 0), 60),  # its part of eighty
        ((0, 100), 80),  # all of them: the other has had a hundred
        ((30, 24), 60),
        ((6, 24), 67),  # the tasks until the other is first, and the one that makes it so
        ((300, 10), 60),
    ],
)
def test_a_turn_is_what_others_are_ahead_or_ones_part(used_s, tasks):
    made = tree(share("a", "user:a", shares=3), share("b", "user:b"))
    a, b = made.leaf_of(Owner("a")), made.leaf_of(Owner("b"))
    for leaf, seconds in zip((a, b), used_s, strict=True):
        made.charge(leaf, seconds * NS)
    order(made, a, b)
    assert made.turn(a, {b}, NS, 80) == tasks
    assert made.turn(a, set(), NS, 80) == 80  # no other party wants them


def test_a_turn_ends_where_any_other_is_first_at_its_level():
    made = tree(
        share("x"), share("y"), share("a", "user:a", "x"), share("b", "user:b", "x"),
        share("c", "user:c", "y"),
    )  # fmt: skip
    a, b, c = leaves = [made.leaf_of(Owner(name)) for name in "abc"]
    made.charge(b, 1000 * NS)
    made.charge(c, 1010 * NS)
    order(made, *leaves)
    # b, beside it, is a thousand ahead, and goes before c; but c's turn is after ten.
    assert made.turn(a, {b}, NS, 500) == 500
    assert made.turn(a, {b, c}, NS, 40) == 11
    assert made.turn(a, {b, c}, NS, 400) == 100  # a quarter of them is its part


def test_who_would_be_first_again_with_what_it_gives_back_is_not_behind():
    made = tree(share("a", "user:a"), share("b", "user:b"))
    a, b = made.leaf_of(Owner("a")), made.leaf_of(Owner("b"))
    made.charge(a, 10 * NS)
    made.hold(b, 15 * NS)
    assert order(made, a, b) == ["a", "b"]
    assert made.is_ahead(a, b, 4 * NS)
    assert not made.is_ahead(a, b, 6 * NS)


# --- ageing --------------------------------------------------------------------------------------


def test_who_has_waited_long_enough_goes_first_once():
    made = tree(share("a", "user:a"), share("b", "user:b"), max_wait_s=3600.0)
    a, b = made.leaf_of(Owner("a")), made.leaf_of(Owner("b"))
    made.charge(a, 10**6 * NS)
    made.begin([a, b])
    for at_s, first in ((0, "b"), (3599, "b"), (3600, "a")):
        made.move_on(NOW_S + at_s)
        made.gave(b)  # a party that is served all the while is never late
        assert order(made, a, b)[0] == first, at_s
    assert made.turn(a, {b}, NS, 100) == 1
    made.hold(a, NS)
    made.gave(a)
    assert order(made, a, b)[0] == "b"


def test_who_had_nothing_to_wait_for_has_not_waited():
    made = tree(share("a", "user:a"), share("b", "user:b"), max_wait_s=3600.0)
    a, b = made.leaf_of(Owner("a")), made.leaf_of(Owner("b"))
    made.charge(a, NS)
    made.begin([a, b])
    made.begin([b])
    made.move_on(NOW_S + 7200.0)
    made.gave(b)
    assert order(made, a, b) == ["b", "a"]


@pytest.mark.slow
@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), slots=st.integers(1, 4), max_wait_h=st.integers(1, 48))
def test_nobody_waits_longer_than_the_longest_wait_and_a_turn_of_each_sibling(
    seed, slots, max_wait_h
):
    """A share may have used as much as it likes: it is served in time, level by level."""
    note(f"seed {seed}")
    chance = random.Random(seed)
    groups = [share(f"g{n}", shares=chance.choice([1, 50])) for n in range(chance.randint(1, 3))]
    leaves = [
        share(f"l{n}", f"user:{n}", chance.choice(groups).name, chance.choice([1, 1000]))
        for n in range(5)
    ]
    used = [each for each in groups if any(leaf.parent == each.name for leaf in leaves)]
    made = tree(*used, *leaves, half_life_s=366 * DAY_S, max_wait_s=max_wait_h * 3600.0)
    found = [made.leaf_of(Owner(str(n))) for n in range(5)]
    for leaf in found:
        made.charge(leaf, chance.choice([0, 10**9, 10**18]))
    longest_s = 3600.0
    waited_s = dict.fromkeys(found, 0.0)
    served_s = dict.fromkeys(found, NOW_S)
    world = Saturated(made, found, slots, lambda _: chance.uniform(1.0, longest_s))
    for leaf, at_s in itertools.islice(world.served(), 2000):
        waited_s[leaf] = max(waited_s[leaf], at_s - served_s[leaf])
        served_s[leaf] = at_s
    end_at_s = world.now_s
    for leaf in found:
        waited_s[leaf] = max(waited_s[leaf], end_at_s - served_s[leaf])
        group, below = leaf.path[0], len(leaf.path[0].children)
        # The group has its turn in time, and gives it to its late children one after the other.
        group_s = made.rules.max_wait_s + len(made.root.children) * longest_s
        limit_s = made.rules.max_wait_s + below * group_s
        assert waited_s[leaf] <= limit_s, (group.title, leaf.title)


# --- parts become shares -------------------------------------------------------------------------


class Saturated:
    """Slots that are always busy, and leaves that always want more.

    The expected duration of a task is that of the leaf's last one: often wrong.
    """

    def __init__(self, made, leaves, slots, task_s):
        self.tree, self.leaves, self.slots, self.task_s = made, leaves, slots, task_s
        self.now_s = NOW_S
        self.used_s = dict.fromkeys(leaves, 0.0)

    def served(self):
        """The whole history of service: parties and times."""
        running = []
        expected_ns = dict.fromkeys(self.leaves, NS)
        for number in itertools.count():
            if len(running) == self.slots:
                self.now_s, _, leaf, held_ns, taken_s = heappop(running)
                self.tree.move_on(self.now_s)
                self.tree.hold(leaf, -held_ns)
                self.tree.charge(leaf, round(taken_s * NS))
                self.used_s[leaf] += taken_s
                expected_ns[leaf] = round(taken_s * NS)
            self.tree.begin(self.leaves)
            leaf = next(iter(self.tree.turns()))
            self.tree.hold(leaf, expected_ns[leaf])
            self.tree.gave(leaf)
            taken_s = self.task_s(leaf)
            heappush(running, (self.now_s + taken_s, number, leaf, expected_ns[leaf], taken_s))
            yield leaf, self.now_s


@st.composite
def trees(draw):
    """Shares in up to three levels, each leaf of a user of its own."""
    shares, users = [], itertools.count()

    def grow(parent, depth):
        for _ in range(draw(st.integers(1, 3)) if depth else draw(st.integers(2, 3))):
            name, weight = f"s{len(shares)}", draw(st.integers(1, 5))
            if depth < 2 and draw(st.booleans()):
                shares.append(share(name, "", parent, weight))
                grow(name, depth + 1)
            else:
                shares.append(share(name, f"user:{next(users)}", parent, weight))

    grow("", 0)
    return tuple(shares), next(users)


@pytest.mark.thorough
@settings(max_examples=25)
@given(drawn=trees(), slots=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_where_everybody_always_wants_more_parts_become_shares(drawn, slots, seed):
    """Any tree, any durations, each leaf its own."""
    note(f"seed {seed}")
    chance = random.Random(seed)
    shares, users = drawn
    # Durations as long as an hour: the longest wait is to be well above the duration of a round.
    made = tree(*shares, half_life_s=30 * DAY_S, max_wait_s=366 * DAY_S)
    leaves = [made.leaf_of(Owner(str(user))) for user in range(users)]
    longest_s = {leaf: 10 ** chance.uniform(0, 2.5) for leaf in leaves}
    world = Saturated(made, leaves, slots, lambda leaf: chance.uniform(0.0, longest_s[leaf]))
    # As long as it takes until a task is small beside the share of each.
    targets = {each.node: each.target for each in made.standings()}
    until_s = NOW_S + 60 * max(longest_s.values()) / min(targets[leaf] for leaf in leaves)
    for count, (_, at_s) in enumerate(world.served()):
        if at_s >= until_s or count > 12_000:
            break
    total_s = sum(world.used_s.values())
    slack = 2 * slots * max(longest_s.values()) / total_s
    for leaf in leaves:
        part = world.used_s[leaf] / total_s
        assert part == pytest.approx(targets[leaf], abs=0.01 + slack), leaf.title
    assert sum(targets[leaf] for leaf in leaves) == pytest.approx(1.0)


def test_who_comes_late_catches_up_and_then_has_its_part():
    made = tree(share("a", "user:a"), share("b", "user:b"), half_life_s=3600.0, max_wait_s=1e7)
    a, b = made.leaf_of(Owner("a")), made.leaf_of(Owner("b"))
    alone = Saturated(made, [a], 2, lambda _: 10.0)
    for _ in itertools.islice(alone.served(), 5000):
        pass
    both = Saturated(made, [a, b], 2, lambda _: 10.0)
    both.now_s = alone.now_s
    got = [leaf for leaf, _ in itertools.islice(both.served(), 3000)]
    assert set(got[:500]) == {b}
    assert 0.45 < got[-1000:].count(b) / 1000 < 0.55


def test_how_shares_stand():
    made = tree(share("a", "user:a", shares=3), share("b", "user:b"))
    a, b = made.leaf_of(Owner("a")), made.leaf_of(Owner("b"))
    shown = {each.node.title: each for each in made.standings()}
    assert (shown["a"].target, shown["b"].target, shown["a"].part) == (0.75, 0.25, 0.0)
    made.charge(a, 60 * NS)
    made.charge(b, 20 * NS)
    made.hold(b, 5 * NS)
    rest = made.leaf_of(Owner("c"))
    rest.jobs = 1
    made.begin([a, b])
    made.move_on(NOW_S + 10.0)
    shown = {each.node.title: each for each in made.standings()}
    assert shown["a"].target == pytest.approx(0.6)  # a party came that has no share
    assert (shown["rest"].place, shown["rest"].wait_s) == (None, None)
    assert (shown["a"].place, shown["b"].place) == (1, 2)
    assert shown["a"].part == pytest.approx(0.75)
    assert shown["b"].held_s == 5.0
    assert shown["a"].used_s == pytest.approx(60.0, rel=1e-3)
    assert shown["a"].wait_s == 10.0
    rest.jobs = 0
    assert "rest" not in {each.node.title for each in made.standings()}


def test_a_user_of_several_groups_is_in_the_share_of_the_first():
    quants, prod = (Share(name, who=read_party(f"group:{name}")) for name in ("quants", "prod"))
    tree = Tree(FairShare(shares=(prod, quants)))
    both = Owner("ann", "quants", more_groups=frozenset({"prod"}))
    assert tree.leaf_of(both).name == "quants"
