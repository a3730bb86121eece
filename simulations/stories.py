"""Stories of the federation's gossip, each run to the end, and the figures that they yield."""

import resource
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from federation.membership.events import Changed, Learned
from federation.membership.gossip import PRESENT, MemberState
from federation.membership.probing import GossipSettings
from simulations.gossip import GossipNetwork, GossipWorld

DETECTION_MAX_S: Final = 60.0
SPREAD_MAX_S: Final = 30.0
WARM_UP_S: Final = 30.0
REST_S: Final = 20.0
STEP_S: Final = 3600.0  # of a long story, between two progress messages


@dataclass(frozen=True, slots=True)
class StoryFigure:
    """One measure of a story, with each of its samples."""

    measure: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a story."""

    members: int
    seed: int
    hours: float = 24.0  # of a long one
    loss: float = 0.05
    cut: float = 0.0
    samples: int = 20
    gossip: GossipSettings = field(default_factory=GossipSettings)


def tell_calm(settings: Settings) -> list[StoryFigure]:
    """Measure a federation at rest, then changes of capacity, then crashes of hosts, one by one."""
    world = GossipWorld(settings.members, settings.seed, settings.gossip)
    refresh_s = world.refresh_all()
    world.run(min(refresh_s, WARM_UP_S))
    figures = [StoryFigure("refresh of an advert", "s", (refresh_s,))]
    figures += _measure_rest(world, REST_S)
    figures += _measure_spread(world, settings.samples)
    figures += _measure_detection(world, min(settings.samples, settings.members // 4))
    figures.append(_memory())
    return figures


def _measure_rest(world: GossipWorld, for_s: float) -> list[StoryFigure]:
    world.counting = True
    world.run(world.now + for_s)
    world.counting = False
    numbers = range(len(world.sites))
    sent = [world.sent_bytes[number] / for_s / 1000 for number in numbers]
    both = [sent[number] + world.received_bytes[number] / for_s / 1000 for number in numbers]
    return [
        StoryFigure("sent at rest, mean of members", "kB/s", (sum(sent) / len(sent),)),
        StoryFigure("sent at rest, busiest member", "kB/s", (max(sent),)),
        StoryFigure("sent and received at rest, busiest member", "kB/s", (max(both),)),
        StoryFigure("messages sent at rest, mean", "1/s", (_rate(world, for_s),)),
        StoryFigure("connections, mean", "", (sum(world.connections()) / len(world.sites),)),
        StoryFigure("connections, most", "", (float(max(world.connections())),)),
        *(
            StoryFigure(f"sent at rest as {kind}, mean", "kB/s", (size / for_s / len(sent) / 1000,))
            for kind, size in sorted(world.kind_bytes.items())
        ),
    ]


def _rate(world: GossipWorld, for_s: float) -> float:
    count = sum(count for kind, count in world.kinds.items() if kind != "handshake")
    return count / for_s / len(world.sites)


def _measure_spread(world: GossipWorld, samples: int) -> list[StoryFigure]:
    nearly: list[float] = []
    wholly: list[float] = []
    for sample in range(samples):
        delays = _spread(world, sample * 7 % len(world.sites))
        nearly.append(delays[max(0, -(-len(delays) * 99 // 100) - 1)])
        wholly.append(delays[-1])
    return [
        StoryFigure("a change is known to 99 %", "s", tuple(nearly)),
        StoryFigure("a change is known to all", "s", tuple(wholly)),
    ]


def _spread(world: GossipWorld, number: int) -> list[float]:
    """Return how long after a change each member knew it, in order."""
    found: dict[int, float] = {}
    began_s = world.now
    wanted = world.announce(number)

    def look(at: int, effect: Learned) -> None:
        notice = effect.bulletin.notice
        # A newer notice counts as well: the site may refresh its advert just now.
        if notice.topic == wanted.topic and notice.age >= wanted.age:
            found.setdefault(at, world.now - began_s)

    world.on_learned = look
    everybody = len(world.sites) - 1 - len(world.down)
    if not world.run_until(lambda: len(found) == everybody, began_s + SPREAD_MAX_S):
        raise RuntimeError(f"known to {len(found)} of {everybody} after {SPREAD_MAX_S} s")
    world.on_learned = lambda _number, _effect: None
    return sorted(found.values())


def _measure_detection(world: GossipWorld, samples: int) -> list[StoryFigure]:
    first: list[float] = []
    last: list[float] = []
    wrong = Counter[str]()
    for number in range(samples):
        began_s = world.now
        times: dict[int, float] = {}

        def look(at: int, effect: Changed) -> None:
            if effect.new is MemberState.DEAD:
                if world.numbers[effect.site] not in world.down:
                    wrong[effect.site] += 1
                times.setdefault(at, world.now - began_s)  # noqa: B023

        world.on_changed = look
        world.crash(number)
        left = len(world.sites) - len(world.down)
        is_done: Callable[[], bool] = lambda: len(times) == left  # noqa: B023, E731
        if not world.run_until(is_done, began_s + DETECTION_MAX_S):
            raise RuntimeError(f"{len(times)} of {left} know of a death after {DETECTION_MAX_S} s")
        first.append(min(times.values()))
        last.append(max(times.values()))
    return [
        StoryFigure("a dead gateway is detected by the first", "s", tuple(first)),
        StoryFigure("a dead gateway is detected by all", "s", tuple(last)),
        StoryFigure("wrongly declared dead meanwhile", "", (float(sum(wrong.values())),)),
    ]


def tell_lossy(settings: Settings, watch: Callable[[str], None]) -> list[StoryFigure]:
    """Lose messages with their connections for hours; some pairs can't connect at all.

    An interrupt (Ctrl-C) gives the figures until then.
    """
    network = GossipNetwork(loss=settings.loss, cut=settings.cut)
    world = GossipWorld(settings.members, settings.seed, settings.gossip, network)
    counts: Counter[MemberState | None] = Counter()

    def look(_number: int, effect: Changed) -> None:
        counts[effect.new] += 1

    world.on_changed = look
    began_s = time.monotonic()
    until_s = settings.hours * 3600
    with suppress(KeyboardInterrupt):
        while world.now < until_s:
            world.run(min(world.now + STEP_S, until_s))
            watch(
                f"{world.now / 3600:.1f} h, {time.monotonic() - began_s:.0f} s: "
                f"{world.events:,} events, dead {counts[MemberState.DEAD]}"
            )
    objections = sum(core.incarnation - (1 << 20) for core in world.cores)
    name = f"{settings.loss:.0%} of messages lost, {settings.cut:.0%} of pairs cut"
    return [
        StoryFigure(f"{name}: hours", "h", (world.now / 3600,)),
        StoryFigure(f"{name}: objections to suspicion", "", (float(objections),)),
        StoryFigure(f"{name}: live members declared dead", "", (float(counts[MemberState.DEAD]),)),
        _memory(),
    ]


def tell_parted(settings: Settings) -> list[StoryFigure]:
    """Split the federation into two halves for five minutes, then reconnect them."""
    world = GossipWorld(settings.members, settings.seed, settings.gossip)
    changes: Counter[tuple[int, str]] = Counter()
    half = settings.members // 2
    world.side = [0] * half + [1] * (settings.members - half)
    world.run(300.0)
    parted = all(
        world.believed(number, MemberState.ALIVE) < settings.members - 1 for number in (0, half)
    )
    world.on_changed = lambda number, effect: changes.update([(number, effect.site)])
    world.side = [0] * settings.members
    healed_s = world.now

    def is_whole() -> bool:
        return all(core.members == settings.members for core in world.cores) and not any(
            update.state is not MemberState.ALIVE
            for core in world.cores
            for update in core.updates()
        )

    if not parted or not world.run_until(is_whole, healed_s + 120.0, 0.5):
        raise RuntimeError("the halves did not part, or did not merge in two minutes")
    taken_s = world.now - healed_s
    world.run(world.now + 60.0)  # and stays whole
    return [
        StoryFigure("after a partition all are alive to all", "s", (taken_s,)),
        StoryFigure("changes of one member as seen by another, most", "", (max(changes.values()),)),
        StoryFigure("still not present a minute later", "", (float(_absent(world)),)),
    ]


def _absent(world: GossipWorld) -> int:
    return sum(update.state not in PRESENT for core in world.cores for update in core.updates())


def tell_joining(settings: Settings) -> list[StoryFigure]:
    """Restart a host that was gone, with only the name of one other member."""
    world = GossipWorld(settings.members, settings.seed, settings.gossip)
    world.refresh_all()
    world.run(60.0)
    known: list[float] = []
    for number in range(min(5, settings.members // 2)):
        world.crash(number)
        world.run(world.now + 30.0)
        began_s = world.now
        world.restart(number, (world.sites[-1 - number],))

        def is_in(number: int = number) -> bool:
            everybody = len(world.sites) - 1
            return (
                world.believed(number, MemberState.ALIVE) == everybody
                and world.cores[number].members == everybody + 1
            )

        if not world.run_until(is_in, began_s + 60.0):
            raise RuntimeError("a member that came back is not known to all after a minute")
        known.append(world.now - began_s)
    return [
        StoryFigure("a member that comes back is known to all, and knows all", "s", tuple(known))
    ]


def _memory() -> StoryFigure:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return StoryFigure("memory of the simulation, peak", "MiB", (peak,))
