"""Membership, rule by rule: probes, suspicion, objection, death, coming and going."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.membership import (
    INCARNATION,
    ME,
    OTHERS,
    Looked,
    bulletin,
    dead,
    sends,
    suspect,
    told_of,
    update,
)

from federation.membership.events import (
    Admitted,
    Changed,
    Connected,
    Disconnected,
    Expelled,
    Join,
    Keep,
    Leave,
    Overtaken,
    Send,
    Tick,
    Unreachable,
)
from federation.membership.gossip import (
    INCARNATION_MAX,
    Ack,
    Bulletins,
    Gossip,
    GossipExchange,
    MemberState,
    MemberUpdate,
    Nack,
    News,
    Ping,
    PingRequest,
)
from federation.membership.membership import BOOT_SHIFT
from federation.membership.probing import GossipSettings, suspicion_s
from federation.membership.rings import Rings


def ack_all(looked, send):
    """All sites answer at once."""
    if isinstance(send.message, Ping):
        return looked.hear(send.peer, Ack(send.message.number))
    return []


def silence(*silent):
    """All sites answer at once, except these; helpers say that they can't reach them."""

    def answer(looked, send):
        match send.message:
            case Ping(number) if send.peer not in silent:
                return looked.hear(send.peer, Ack(number))
            case PingRequest(number):
                return looked.hear(send.peer, Nack(number))
        return []

    return answer


# --- probes --------------------------------------------------------------------------------------


def test_each_neighbour_is_probed_once_a_round() -> None:
    looked = Looked()
    effects = looked.pass_s(10.0, ack_all)
    order = [send.peer for send in sends(effects, Ping)]
    assert len(order) == 10
    assert set(order[:5]) == set(order[5:]) == set(OTHERS)


def test_a_ping_is_answered_with_its_number() -> None:
    effects = Looked().hear("site-a", Ping(7))
    assert [(e.peer, e.message.number) for e in sends(effects, Ack)] == [("site-a", 7)]


def test_without_an_answer_others_are_asked_and_the_question_is_repeated() -> None:
    looked = Looked()
    effects = looked.pass_s(1.0)
    (first, *again) = sends(effects, Ping)
    asked = sends(effects, PingRequest)
    assert [each.peer for each in again] == [first.peer]
    assert len({each.peer for each in asked}) == 3
    assert first.peer not in {each.peer for each in asked}


def test_an_answer_through_a_helper_counts() -> None:
    looked = Looked()
    target = sends(looked.pass_s(1.0), Ping)[0].peer
    helper = sends(looked.effects, PingRequest)[0]
    looked.hear(helper.peer, Ack(helper.message.number))
    looked.pass_s(1.0, ack_all)
    assert looked.core.state(target) is MemberState.ALIVE


def test_an_answer_from_somebody_who_was_not_asked_does_not_count() -> None:
    looked = Looked(settings=GossipSettings(helpers=0))
    first = sends(looked.pass_s(1.0), Ping)[0]
    other = next(site for site in OTHERS if site != first.peer)
    looked.hear(other, Ack(first.message.number))
    looked.pass_s(1.0, ack_all)
    assert looked.core.state(first.peer) is MemberState.SUSPECT


def test_who_does_not_answer_is_suspected_and_all_are_told() -> None:
    looked = Looked()
    looked.pass_s(6.5, silence("site-a"))
    assert looked.core.state("site-a") is MemberState.SUSPECT
    accusations = told_of(looked.effects, "site-a")
    assert {peer for peer, _ in accusations} == set(OTHERS)
    assert {each for _, each in accusations} == {suspect("site-a", by=ME)}


def test_a_suspect_that_does_not_object_is_dead() -> None:
    looked = Looked()
    effects = looked.pass_s(30.0, silence("site-a"))
    changes = [e for e in effects if isinstance(e, Changed)]
    assert changes == [
        Changed("site-a", MemberState.ALIVE, MemberState.SUSPECT),
        Changed("site-a", MemberState.SUSPECT, MemberState.DEAD),
    ]
    assert "site-a" not in looked.core.neighbours


def test_a_lost_connection_makes_us_ask_others_at_once() -> None:
    looked = Looked()
    looked.now = looked.wake_s
    (ping,) = sends(looked.feed(Tick()), Ping)
    assert len(sends(looked.feed(Unreachable(ping.peer)), PingRequest)) == 3


def test_a_lost_connection_alone_accuses_nobody() -> None:
    looked = Looked()
    looked.feed(Unreachable("site-a"))
    looked.pass_s(10.0, ack_all)
    assert looked.core.state("site-a") is MemberState.ALIVE


def test_who_may_be_gone_is_probed_next() -> None:
    looked = Looked()
    looked.told("site-b", suspect("site-d"))
    effects = looked.pass_s(1.0, ack_all)
    assert sends(effects, Ping)[0].peer == "site-d"


def test_a_helper_probes_and_passes_the_answer_on() -> None:
    looked = Looked()
    (ping,) = sends(looked.hear("site-a", PingRequest(9, "site-b")), Ping)
    assert ping.peer == "site-b"
    effects = looked.hear("site-b", Ack(ping.message.number))
    assert [(e.peer, e.message.number) for e in sends(effects, Ack)] == [("site-a", 9)]


def test_a_helper_without_an_answer_says_so() -> None:
    looked = Looked()
    looked.hear("site-a", PingRequest(9, "site-b"))
    effects = looked.pass_s(0.5, ack_all)
    assert [(e.peer, e.message.number) for e in sends(effects, Nack)] == [("site-a", 9)]


def test_a_helper_probes_only_members_and_only_so_many() -> None:
    looked = Looked(settings=GossipSettings(relays_max=2))
    assert sends(looked.hear("site-a", PingRequest(1, "nobody")), Nack)
    assert sends(looked.hear("site-a", PingRequest(2, "site-b")), Ping)
    assert sends(looked.hear("site-a", PingRequest(3, "site-b")), Ping)
    assert sends(looked.hear("site-a", PingRequest(4, "site-b")), Nack)


def test_who_hears_from_nobody_doubts_itself_and_probes_less() -> None:
    looked = Looked()
    early = len(sends(looked.pass_s(3.0), Ping))
    assert looked.core.health > 0
    late = sends(looked.pass_s(3.0), Ping)
    assert len(late) < early
    looked.pass_s(60.0, ack_all)
    assert looked.core.health == 0


def test_who_is_said_to_be_gone_doubts_itself() -> None:
    looked = Looked()
    looked.told("site-b", suspect(ME))
    assert looked.core.health == 1


def test_helpers_that_answer_show_that_the_fault_is_not_ours() -> None:
    looked = Looked()
    looked.pass_s(4.5, silence(*OTHERS))
    assert looked.core.health == 0


def test_who_was_stopped_accuses_nobody_because_of_it() -> None:
    looked = Looked()
    looked.pass_s(1.2)
    looked.told("site-b", suspect("site-c"))
    looked.now += 600.0
    effects = looked.feed(Tick())
    effects += looked.pass_s(2.0, ack_all)
    assert not [e for e in effects if isinstance(e, Changed)]
    assert looked.core.health > 0


# --- suspicion -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "confirmations", "expected_s"),
    [
        (2, 0, 3.0),  # nobody could confirm
        (10, 0, 18.0),
        (10, 2, 3.0),
        (10, 9, 3.0),
        (100, 0, 36.0),
        (100, 2, 6.0),
        (1000, 2, 9.0),
    ],
)
def test_the_time_to_object_follows_the_formula(members, confirmations, expected_s) -> None:
    assert suspicion_s(GossipSettings(), members, confirmations) == pytest.approx(expected_s)


def test_one_confirmation_takes_the_logarithmic_share() -> None:
    longest_s, shortest_s = 36.0, 6.0
    share = 0.6309297535714574  # log 2 / log 3
    expected_s = longest_s - (longest_s - shortest_s) * share
    assert suspicion_s(GossipSettings(), 100, 1) == pytest.approx(expected_s)


def test_accusers_shorten_the_time_but_each_only_once() -> None:
    def died_s(*accusers):
        looked = Looked()
        for accuser in accusers:
            looked.told("site-b", suspect("site-a", by=accuser))
        effects = []
        while MemberState.DEAD not in [e.new for e in effects if isinstance(e, Changed)]:
            effects = looked.pass_s(0.5, ack_all)
        return looked.now

    alone_s = died_s("site-b")
    assert died_s("site-b", "site-b", "site-b") == alone_s
    assert died_s("site-b", "site-c", "site-d") == 3.0 < alone_s


def test_accusers_who_are_no_members_count_as_who_passes_it_on() -> None:
    looked = Looked()
    looked.told("site-b", *(suspect("site-a", by=f"made-up-{n}") for n in range(9)))
    looked.told("site-b", suspect("site-a", by="site-a"))
    looked.pass_s(3.5, ack_all)
    assert looked.core.state("site-a") is MemberState.SUSPECT


def test_a_suspect_does_not_escape_because_there_are_more_members_now() -> None:
    looked = Looked()
    looked.told("site-b", *(suspect("site-a", by=by) for by in ("site-b", "site-c", "site-d")))
    crowd = tuple(f"far-{number:03}" for number in range(95))
    looked.feed(Admitted(crowd, direct=False))
    looked.told("site-b", *(update(site) for site in crowd))
    looked.pass_s(4.0, ack_all)
    assert looked.core.state("site-a") is MemberState.SUSPECT
    looked.pass_s(4.0, ack_all)
    assert looked.core.state("site-a") is MemberState.DEAD


# --- objection -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [MemberState.SUSPECT, MemberState.DEAD, MemberState.LEFT])
def test_we_object_to_what_is_wrongly_said_of_us(state) -> None:
    looked = Looked()
    effects = looked.told("site-a", update(ME, state, INCARNATION + 5, by="site-b"))
    objections = told_of(effects, ME)
    assert {each for _, each in objections} == {update(ME, MemberState.ALIVE, INCARNATION + 6)}
    assert {peer for peer, _ in objections} == set(OTHERS)


def test_old_accusations_of_us_change_nothing() -> None:
    looked = Looked()
    looked.told("site-a", dead(ME, INCARNATION - 1))
    assert looked.core.incarnation == INCARNATION


def test_a_suspect_is_told_by_the_ping_and_clears_itself_by_the_answer() -> None:
    looked = Looked()
    looked.told("site-b", suspect("site-a"))
    looked.now = looked.wake_s
    (ping,) = sends(looked.feed(Tick()), Ping)
    assert ping.message.news.updates == (suspect("site-a"),)
    objection = update("site-a", MemberState.ALIVE, INCARNATION + 1)
    looked.hear("site-a", Ack(ping.message.number, News((objection,))))
    assert looked.core.state("site-a") is MemberState.ALIVE


def bury(looked, site):
    """It is suspected, does not object, and counts as dead."""
    looked.told("site-b", suspect(site))
    looked.pass_s(30.0, silence(site))
    assert looked.core.state(site) is MemberState.DEAD


def test_a_dead_member_that_speaks_is_told_that_it_is_dead() -> None:
    looked = Looked()
    bury(looked, "site-a")
    effects = looked.hear("site-a", Ping(1))
    (answer,) = sends(effects, Ack)
    assert answer.message.news.updates[0] == dead("site-a", by=ME)


def test_the_dead_live_again_by_a_higher_incarnation() -> None:
    looked = Looked()
    bury(looked, "site-a")
    effects = looked.told("site-c", update("site-a", MemberState.ALIVE, INCARNATION + 1))
    assert Changed("site-a", MemberState.DEAD, MemberState.ALIVE) in effects
    assert "site-a" in looked.core.neighbours


def test_the_dead_are_not_revived_by_old_gossip() -> None:
    looked = Looked()
    bury(looked, "site-a")
    looked.told("site-c", update("site-a"))
    assert looked.core.state("site-a") is MemberState.DEAD


def test_who_is_behind_is_told_so() -> None:
    looked = Looked()
    bury(looked, "site-a")
    effects = looked.told("site-c", update("site-a"))
    assert told_of(effects, "site-a") == [("site-c", dead("site-a", by=ME))]


def test_another_life_of_ours_is_reported_and_surpassed() -> None:
    looked = Looked()
    later = 7 << BOOT_SHIFT
    assert Overtaken(later, "site-a") in looked.told("site-a", update(ME, MemberState.ALIVE, later))
    assert looked.core.incarnation == later + 1


# --- lies ----------------------------------------------------------------------------------------

LAST_BOOT = 9  # in which a site can be now
HIGHEST = [INCARNATION_MAX, INCARNATION_MAX - 1, (LAST_BOOT + 1) << BOOT_SHIFT]
EDGE = ((LAST_BOOT + 1) << BOOT_SHIFT) - 1  # the highest that is believed


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("incarnation", HIGHEST)
def test_no_lie_makes_us_say_what_others_would_refuse(state, incarnation) -> None:
    looked = Looked(boot_max=LAST_BOOT)
    for _ in range(3):
        effects = looked.told("site-a", update(ME, state, incarnation, by="site-b"))
        assert ("site-a", update(ME)) in told_of(effects, ME)  # it is told better
    assert looked.core.incarnation == INCARNATION


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("incarnation", HIGHEST)
def test_what_others_say_of_a_life_that_cannot_be_is_not_believed(state, incarnation) -> None:
    looked = Looked(boot_max=LAST_BOOT)
    lie = update("site-a", state, incarnation, by="site-b")
    assert not told_of(looked.told("site-b", lie), "site-a")
    assert not told_of(looked.hear("site-b", GossipExchange(True, News((lie,)))), "site-a")
    assert update("site-a") in looked.core.updates()


def test_a_site_is_believed_itself_in_whatever_life_it_is() -> None:
    """A site whose clock was wrong when it started."""
    looked = Looked(boot_max=LAST_BOOT)
    later = update("site-a", MemberState.ALIVE, 100 << BOOT_SHIFT)
    looked.told("site-a", later)
    assert later in looked.core.updates()


def test_others_are_believed_about_a_life_in_which_a_site_has_signed_something() -> None:
    looked = Looked(boot_max=LAST_BOOT)
    looked.hear("site-b", Bulletins((bulletin("site-a", boot=100),)))
    accusation = suspect("site-a", 100 << BOOT_SHIFT)
    looked.told("site-b", accusation)
    assert accusation in looked.core.updates()


@pytest.mark.parametrize("state", [MemberState.DEAD, MemberState.LEFT])
@pytest.mark.parametrize("incarnation", [INCARNATION, INCARNATION + 7, EDGE])
def test_that_another_is_gone_is_a_suspicion_to_which_it_can_object(state, incarnation) -> None:
    looked = Looked(boot_max=LAST_BOOT)
    looked.told("site-b", update("site-a", state, incarnation, by="site-b"))
    assert looked.core.state("site-a") is MemberState.SUSPECT
    looked.told("site-a", update("site-a", MemberState.ALIVE, incarnation + 1))
    assert looked.core.state("site-a") is MemberState.ALIVE


def test_who_says_itself_that_it_leaves_has_left_at_once() -> None:
    looked = Looked()
    looked.told("site-a", update("site-a", MemberState.LEFT))
    assert looked.core.state("site-a") is MemberState.LEFT


def test_who_has_left_as_others_say_and_does_not_object_has_left() -> None:
    looked = Looked()
    looked.told("site-b", update("site-a", MemberState.LEFT))
    looked.pass_s(30.0, silence("site-a"))
    assert looked.core.state("site-a") is MemberState.LEFT


@pytest.mark.parametrize("gone", [Unreachable, Disconnected])
def test_an_open_session_outweighs_what_others_say(gone) -> None:
    looked = Looked(others=(*OTHERS, "far-away"), settings=GossipSettings(rings=1))
    far = next(site for site in looked.core._roster.members if site not in looked.core.neighbours)
    looked.feed(Connected(far))
    effects = looked.told("site-b", dead(far))
    assert (far, suspect(far)) in told_of(effects, far)  # it is asked to object
    looked.told("site-c", dead(far))
    looked.pass_s(60.0, ack_all)
    assert looked.core.state(far) is MemberState.SUSPECT
    looked.feed(gone(far))
    looked.pass_s(60.0, ack_all)
    assert looked.core.state(far) is MemberState.DEAD


def test_our_own_probes_outweigh_an_open_session() -> None:
    looked = Looked()
    looked.feed(Connected("site-a"))
    looked.pass_s(60.0, silence("site-a"))
    assert looked.core.state("site-a") is MemberState.DEAD


# --- merging -------------------------------------------------------------------------------------

some_updates = st.lists(
    st.builds(
        MemberUpdate,
        st.just("site-a"),
        st.sampled_from(MemberState),
        st.integers(INCARNATION, INCARNATION + 2),
        st.just("site-b"),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40)
@given(some_updates, st.randoms())
def test_updates_merge_alike_in_any_order_and_however_often(updates, random) -> None:
    outcomes = set()
    for order in itertools.islice(itertools.permutations(updates), 6):
        looked = Looked()
        repeated = [*order, random.choice(order)]
        looked.told("site-c", *repeated)
        (held,) = (each for each in looked.core.updates() if each.site == "site-a")
        outcomes.add((held.state, held.incarnation))
    assert len(outcomes) == 1


# --- coming and going ----------------------------------------------------------------------------


def test_seeds_are_asked_until_one_has_answered() -> None:
    looked = Looked(known=())
    assert sends(looked.feed(Join(("site-a",))), GossipExchange)
    assert sends(looked.pass_s(6.0), GossipExchange)
    members = tuple(update(site) for site in OTHERS)
    looked.hear("site-a", GossipExchange(True, News(members)))
    assert looked.core.members == 6
    assert not [
        e for e in sends(looked.pass_s(9.0, ack_all), GossipExchange) if e.peer == "site-a"
    ][1:]


def test_a_newcomer_is_told_of_to_the_others() -> None:
    looked = Looked(known=tuple(update(site) for site in OTHERS[:-1]))
    newcomer = OTHERS[-1]
    effects = looked.hear(newcomer, GossipExchange(False, News((update(newcomer),))))
    assert {peer for peer, _ in told_of(effects, newcomer)} == set(OTHERS[:-1])
    (answer,) = sends(effects, GossipExchange)
    assert {each.site for each in answer.message.news.updates} == {ME, *OTHERS[:-1]}


def test_what_a_newcomer_learns_of_all_it_does_not_tell_all() -> None:
    looked = Looked(known=())
    members = tuple(update(site) for site in OTHERS)
    effects = looked.hear("site-a", GossipExchange(True, News(members)))
    assert looked.core.members == 6
    assert not sends(effects, Gossip)


def test_an_exchange_says_that_somebody_died_and_we_only_suspect() -> None:
    looked = Looked()
    looked.hear("site-c", GossipExchange(True, News((dead("site-a"),))))
    assert looked.core.updates()[0] == suspect("site-a", by="site-c")


def test_the_dead_are_tried_now_and_then() -> None:
    looked = Looked()
    bury(looked, "site-a")
    effects = looked.pass_s(12.0, ack_all)
    assert "site-a" in {each.peer for each in sends(effects, GossipExchange)}


def test_a_site_that_was_never_heard_of_is_tried_now_and_then() -> None:
    looked = Looked(known=(update("site-a"),))
    looked.feed(Join(OTHERS))
    looked.hear("site-a", GossipExchange(True, News((update("site-a"),))))
    effects = looked.pass_s(100.0, ack_all)
    assert {each.peer for each in sends(effects, GossipExchange)} >= set(OTHERS)


def test_who_leaves_says_so_and_falls_silent() -> None:
    looked = Looked()
    effects = looked.feed(Leave())
    assert {peer for peer, each in told_of(effects, ME) if each.state is MemberState.LEFT} == set(
        OTHERS
    )
    assert looked.hear("site-a", Ping(1)) == []


def test_who_left_is_not_tried_again() -> None:
    looked = Looked()
    looked.told("site-a", update("site-a", MemberState.LEFT))
    effects = looked.pass_s(40.0, ack_all)
    assert "site-a" not in {each.peer for each in effects if isinstance(each, Send)}


def test_the_dead_are_remembered_for_a_while() -> None:
    looked = Looked(settings=GossipSettings(remember_s=1000.0))
    looked.told("site-b", dead("site-a"))
    looked.pass_s(900.0, ack_all)
    assert looked.core.state("site-a") is MemberState.DEAD
    effects = looked.pass_s(1000.0, ack_all)
    assert looked.core.state("site-a") is None
    assert Changed("site-a", None, None) in effects


def test_only_admitted_sites_are_members() -> None:
    looked = Looked()
    assert looked.told("site-a", update("stranger")) == []
    assert looked.hear("stranger", Ping(1)) == []
    assert looked.core.state("stranger") is None


def test_an_expelled_site_is_forgotten() -> None:
    looked = Looked()
    assert Changed("site-a", None, None) in looked.feed(Expelled("site-a"))
    assert "site-a" not in looked.core.neighbours
    assert looked.hear("site-a", Ping(1)) == []
    looked.told("site-b", update("site-a", MemberState.ALIVE, INCARNATION + 9))
    assert looked.core.state("site-a") is None


def test_a_site_that_we_may_not_connect_with_is_known_but_not_probed() -> None:
    looked = Looked()
    looked.feed(Admitted(("far-away",), direct=False))
    looked.told("site-a", update("far-away"))
    assert looked.core.state("far-away") is MemberState.ALIVE
    assert "far-away" not in looked.core.neighbours
    effects = looked.pass_s(60.0, ack_all)
    assert "far-away" not in {each.peer for each in effects if isinstance(each, Send)}


def test_there_are_only_so_many_members() -> None:
    looked = Looked(settings=GossipSettings(members_max=5))
    looked.feed(Admitted(("one-more",)))
    looked.told("site-a", update("one-more"))
    assert looked.core.state("one-more") is None


def test_an_unknown_member_that_speaks_is_told_all_and_asked_for_all() -> None:
    looked = Looked(known=())
    (exchange,) = sends(looked.hear("site-a", Ping(1)), GossipExchange)
    assert exchange.peer == "site-a"


# --- links ---------------------------------------------------------------------------------------


def crowd(count):
    return tuple(f"site-{number:03}" for number in range(count))


def test_links_are_few_and_both_ends_agree() -> None:
    sites = crowd(60)
    kept = {site: Rings(3, sites).neighbours(site) for site in sites}
    assert all(4 <= len(peers) <= 6 for peers in kept.values())
    assert all(site in kept[peer] for site, peers in kept.items() for peer in peers)


def test_links_connect_all_even_when_every_fifth_member_is_gone() -> None:
    rings = Rings(3, crowd(200))
    left = set(crowd(200)) - set(crowd(200)[::5])
    reached, edge = set(), {min(left)}
    while edge:
        reached |= edge
        edge = {peer for site in edge for peer in rings.neighbours(site)} & left - reached
    assert reached == left


def test_a_member_that_goes_moves_few_links() -> None:
    sites = crowd(60)
    rings = Rings(3, sites)
    before = {site: rings.neighbours(site) for site in sites[1:]}
    rings.remove(sites[0])
    moved = [site for site in sites[1:] if rings.neighbours(site) != before[site]]
    assert len(moved) <= 6


def test_links_that_change_are_named() -> None:
    looked = Looked(known=())
    effects = looked.hear("site-a", GossipExchange(True, News((update("site-a"),))))
    assert Keep(("site-a",)) in effects
    assert Keep(()) in looked.told("site-a", update("site-a", MemberState.LEFT))


# --- the same again ------------------------------------------------------------------------------


def test_equal_seeds_give_equal_effects() -> None:
    def effects(seed):
        looked = Looked(seed=seed)
        looked.told("site-b", suspect("site-a"))
        looked.pass_s(40.0, silence("site-c"))
        return looked.effects

    assert effects(1) == effects(1)
    assert effects(1) != effects(2)
