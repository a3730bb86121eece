"""The pretended federation: it converges under faults, repeats itself, and finds planted bugs."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from federation.membership.events import Heard, Send
from federation.membership.gossip import (
    INCARNATION_MAX,
    Gossip,
    MemberState,
    MemberUpdate,
    News,
    Ping,
    to_plain,
)
from federation.membership.membership import BOOT_SHIFT, Membership
from federation.membership.probing import GossipSettings, retransmissions
from federation.membership.roster import MemberRoster
from federation.membership.rumours import Rumours
from federation.messages.wire import pack
from simulations.gossip import GossipNetwork, GossipWorld
from simulations.gossip_figures import main
from simulations.stories import Settings, tell_calm, tell_joining, tell_lossy, tell_parted

ROOT = Path(__file__).parents[2]


def value(figures, start):
    """The worst sample of the figure with this prefix."""
    (found,) = [figure for figure in figures if figure.measure.startswith(start)]
    return max(found.values)


def record(world):
    """All that any member does from now on, as text."""
    lines = []
    perform = world._perform

    def look(number, effect):
        lines.append(f"{world.now!r} {number} {effect!r}")
        perform(number, effect)

    world._perform = look
    return lines


def agree(world):
    """Whether all that are up hold each other alive, and those that are down not."""
    up = [number for number in range(len(world.sites)) if number not in world.down]
    return all(
        world.believed(number, MemberState.ALIVE) == (len(up) - 1 if number in up else 0)
        for number in range(len(world.sites))
    )


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_all_agree_again_soon_after_the_last_fault(seed) -> None:
    world = GossipWorld(12, seed, network=GossipNetwork(loss=0.1, cut=0.1))
    rng = world.rng
    for _ in range(6):
        number = rng.randrange(12)
        match rng.randrange(4):
            case 0 if len(world.down) < 6 and number not in world.down:
                world.crash(number)
            case 1 if number in world.down:
                world.restart(number, tuple(s for s in world.sites if s != world.sites[number]))
            case 2:
                world.side = [rng.randrange(2) for _ in range(12)]
            case _:
                world.announce(number) if number not in world.down else None
        world.run(world.now + rng.uniform(0.5, 40.0))
    world.side = [0] * 12
    world.network = GossipNetwork()
    assert world.run_until(lambda: agree(world), world.now + 60.0), f"seed {seed}"
    for number in set(range(12)) - world.down:
        notice = world.announce(number)
        world.run(world.now + 3.0)
        held = [
            core.bulletin(notice.topic) for n, core in enumerate(world.cores) if n not in world.down
        ]
        assert {each.notice for each in held if each} == {notice}, f"seed {seed}"
        assert None not in held, f"seed {seed}"


def test_halves_find_each_other_again_without_flapping() -> None:
    figures = tell_parted(Settings(members=20, seed=7))
    assert value(figures, "after a partition") <= 15.0
    assert value(figures, "changes of one member") <= 2
    assert value(figures, "still not present") == 0


def test_capacities_spread_and_deaths_are_detected_in_time() -> None:
    figures = tell_calm(Settings(members=20, seed=7, samples=3))
    assert value(figures, "a change is known to 99 %") <= 3.0
    assert value(figures, "a change is known to all") <= 10.0
    assert value(figures, "a dead gateway is detected by all") <= 15.0
    assert value(figures, "wrongly declared dead") == 0
    assert value(figures, "sent and received at rest, busiest") <= 20.0
    assert value(figures, "connections, most") <= 10


def test_nobody_alive_is_declared_dead_when_connections_are_lost() -> None:
    figures = tell_lossy(Settings(members=12, seed=7, hours=0.05, cut=0.05), lambda _: None)
    assert value(figures, "5% of messages lost, 5% of pairs cut: objections") > 0
    assert value(figures, "5% of messages lost, 5% of pairs cut: live members declared") == 0


def test_a_member_that_comes_back_is_known_to_all() -> None:
    assert value(tell_joining(Settings(members=10, seed=7)), "a member that comes back") <= 5.0


def test_a_member_that_leaves_is_known_to_have_left() -> None:
    world = GossipWorld(10, 7)
    world.leave(3)
    world.run(5.0)
    assert world.believed(3, MemberState.LEFT) == 9


def test_who_is_stopped_for_a_minute_buries_nobody_and_is_back_at_once() -> None:
    world = GossipWorld(10, 7)
    buried = Counter()
    world.on_changed = lambda _number, effect: buried.update(
        [effect.site] if effect.new is MemberState.DEAD else []
    )
    world.pause(0)
    world.run(60.0)
    world.resume(0)
    assert world.run_until(lambda: agree(world), 75.0)
    world.run(150.0)
    assert set(buried) == {world.sites[0]}
    assert agree(world)


def test_two_members_are_enough() -> None:
    world = GossipWorld(2, 7)
    world.run(5.0)
    world.crash(0)
    assert world.run_until(lambda: world.believed(0, MemberState.DEAD) == 1, 20.0)


# --- again ---------------------------------------------------------------------------------------


def test_equal_seeds_tell_the_same_story_to_the_byte() -> None:
    def story(seed):
        world = GossipWorld(8, seed, network=GossipNetwork(loss=0.1, cut=0.05))
        lines = record(world)
        world.refresh_all()
        world.run(10.0)
        world.crash(4)
        world.run(30.0)
        return lines

    assert story(3) == story(3)
    assert story(3) != story(4)


@pytest.mark.real
def test_equal_seeds_tell_the_same_story_in_any_process() -> None:
    def story(hash_seed):
        code = (
            "from simulations.gossip import GossipNetwork, GossipWorld\n"
            "world = GossipWorld(12, 3, network=GossipNetwork(loss=0.1, cut=0.05))\n"
            "world.crash(4)\n"
            "world.run(40.0)\n"
            "print(world.events, [core.updates() for core in world.cores])"
        )
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env=environment, cwd=ROOT, check=True, capture_output=True, timeout=60
        ).stdout

    assert story("1") == story("2")


# --- a member that lies ---------------------------------------------------------------------------


def lie(world, liar, victim, state):
    """The liar tells all members, of ever higher incarnations."""
    site, held = world.sites[victim], world.cores[victim].incarnation
    highest = (int(world.boot_max()) + 1 << BOOT_SHIFT) - 1
    for incarnation in (held, held + 1, held + 1000, highest, highest + 1, INCARNATION_MAX):
        update = MemberUpdate(site, state, incarnation, world.sites[3])
        for number in range(len(world.sites)):
            if number != liar:
                world.feed(number, Heard(world.sites[liar], Gossip(News((update,)))))
        world.run(world.now + 0.5)


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("seed", range(3))
def test_no_member_can_have_another_taken_for_gone(state, seed) -> None:
    print("seed", seed)
    world = GossipWorld(12, seed)
    liar, victim = 0, 7
    site = world.sites[victim]
    world.run(10.0)
    buried = []
    world.on_changed = lambda number, effect: (
        buried.append((world.now, number, effect))
        if effect.site == site and effect.new not in (MemberState.ALIVE, MemberState.SUSPECT)
        else None
    )
    for _ in range(2):
        lie(world, liar, victim, state)
        assert world.run_until(lambda: agree(world), world.now + 20.0)
    assert not buried
    world.crash(victim)  # and it is not kept alive by that either
    assert world.run_until(lambda: agree(world), world.now + 60.0)


# --- what would be caught ------------------------------------------------------------------------


def check_the_living(world):
    """No member that is up is declared dead while connections are lost."""
    wrong = Counter()
    world.on_changed = lambda _number, effect: wrong.update(
        [effect.site] if effect.new is MemberState.DEAD else []
    )
    assert not world.run_until(lambda: wrong, 120.0, 5.0)


def check_the_dead(world):
    """A member that died stays dead, though a message that is late still calls it alive."""
    late = Gossip(News((next(c for c in world.cores[1].updates() if c.site == world.sites[5]),)))
    world.crash(5)
    world.run(20.0)
    revived = []
    world.on_changed = lambda _number, effect: revived.append(effect)
    world.feed(1, Heard(world.sites[2], late))
    world.run(22.0)
    assert not revived


def check_the_load(world):
    """No message is longer than it may be, no rumour told more often.

    A member that shows that it is behind is told once more, out of turn: hence the factor of two.
    """
    settings = world.settings
    sent = Counter()
    perform = world._perform

    def look(number, effect):
        if isinstance(effect, Send) and isinstance(effect.message, Gossip | Ping):
            assert len(pack(to_plain(effect.message))) <= settings.news_bytes + 24
            for update in effect.message.news.updates:
                if update.site != effect.peer:
                    sent[number, update] += 1
        perform(number, effect)

    world._perform = look
    world.side = [number % 2 for number in range(20)]
    world.run(15.0)
    assert 0 < max(sent.values()) <= 2 * retransmissions(settings, 20)


def lossy():
    return GossipWorld(12, 7, network=GossipNetwork(loss=0.1))


def calm():
    return GossipWorld(12, 7)


def narrow():
    return GossipWorld(
        20, 7, GossipSettings(news_bytes=512, retransmit=3.0), GossipNetwork(dial_s=0.1)
    )


def ignore_objection(self, update, source):
    """A planted bug: an accused member does not object."""


def forget_the_dead(self, update, now, apply=MemberRoster.apply):
    """A planted bug: a dead member is dropped and not remembered."""
    old = apply(self, update, now)
    if update.state is MemberState.DEAD:
        self.forget(update.site)
    return old


def take_all(self, peer, bytes_max, sends_max, take=Rumours.take):
    """A planted bug: neither bytes nor repeats are counted."""
    return take(self, peer, 10**9, 10**9)


@pytest.mark.parametrize(
    ("make", "check"),
    [(lossy, check_the_living), (calm, check_the_dead), (narrow, check_the_load)],
)
def test_what_is_checked_holds(make, check) -> None:
    check(make())


def test_an_objection_that_is_not_made_would_be_found(monkeypatch) -> None:
    monkeypatch.setattr(Membership, "_object", ignore_objection)
    with pytest.raises(AssertionError):
        check_the_living(lossy())


def test_the_dead_that_old_gossip_revives_would_be_found(monkeypatch) -> None:
    monkeypatch.setattr(MemberRoster, "apply", forget_the_dead)
    with pytest.raises(AssertionError):
        check_the_dead(calm())


def test_rumours_without_a_bound_would_be_found(monkeypatch) -> None:
    monkeypatch.setattr(Rumours, "take", take_all)
    with pytest.raises(AssertionError):
        check_the_load(narrow())


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_its_figures(capsys) -> None:
    main(["--members", "5", "--seed", "7", "--story", "calm", "--samples", "2"])
    shown = capsys.readouterr().out
    assert re.search(r"a change is known to all: 0\.\d+", shown)
