"""The settings of membership, and the formulas that use them: pure functions of a few numbers.

After SWIM (Das, Gupta, Motivala 2002), Lifeguard (Dadgar, Phillips, Currey 2018) and memberlist's
code. `members` counts those that are alive or suspect, including this one. docs/membership.md
explains the cost of each setting and how to choose it.
"""

import math
from dataclasses import dataclass
from typing import Final

NEWS_BYTES_MIN: Final = 512  # so that any one update or notice fits


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """The settings that an operator may change. The federation works best if all sites agree."""

    # Probes.
    probe_s: float = 1.0  # between probes, of one neighbour after the other
    answer_s: float = 0.5  # the time to answer before others are asked
    helpers: int = 3  # how many are asked
    health_max: int = 8  # a member that doubts itself waits up to (this + 1) times as long
    relays_max: int = 64  # probes for others that may be in flight here
    late_s: float = 3.0  # a member that wakes this late was away itself, and accuses no other
    # Suspicion.
    suspicion: float = 3.0  # time to object, in probes, for each power of ten of members
    suspicion_max: float = 6.0  # how many times longer without confirmation
    confirmations: int = 2  # this many more accusers make it shortest
    # Links.
    rings: int = 3  # each gives a member two neighbours
    # News.
    news_bytes: int = 4096  # the most that may ride on one message
    gossip_s: float = 0.2  # the minimum between two rounds to all neighbours
    retransmit: float = 6.0  # times that a rumour is sent, for each power of ten of members
    # Bulletins.
    fetch_s: float = 1.0  # then another holder is asked
    fetches_max: int = 1024  # in flight
    topics_max: int = 72  # of one site
    answer_bytes: int = 1 << 20  # of bulletins for one Want
    refresh_min_s: float = 30.0
    refresh_max_s: float = 300.0
    refresh_bytes_s: float = 3000.0  # the cost to a member of bulletins without news
    # Repairs.
    exchange_s: float = 30.0  # between full exchanges with a member
    reconnect_s: float = 10.0  # between attempts to reach a site that is dead or unheard of
    join_s: float = 5.0  # between attempts to reach the seeds until one has answered
    remember_s: float = 86_400.0  # how long dead and departed members are remembered
    members_max: int = 4096

    def __post_init__(self) -> None:
        if self.news_bytes < NEWS_BYTES_MIN:
            raise ValueError(f"news_bytes must be at least {NEWS_BYTES_MIN}")


def probe_every_s(settings: GossipSettings, health: int) -> float:
    """Return the time between probes: a member with many failures allows more time."""
    return settings.probe_s * (health + 1)


def answer_within_s(settings: GossipSettings, health: int) -> float:
    """Return the time for a direct answer, stretched alike."""
    return settings.answer_s * (health + 1)


def suspicion_s(settings: GossipSettings, members: int, confirmations: int) -> float:
    """Return how long a suspect has to object, from the first accusation.

        shortest = suspicion · max(1, log10 members) · probe_s
        longest  = suspicion_max · shortest
        longest - (longest - shortest) · log(c + 1) / log(k + 1), not below shortest

    with c members that confirm and k that are expected to, as memberlist does it. If no other
    member could confirm, the shortest holds.
    """
    shortest_s = settings.suspicion * max(1.0, math.log10(max(members, 1))) * settings.probe_s
    expected = min(settings.confirmations, members - 2)
    if expected < 1:
        return shortest_s
    longest_s = shortest_s * settings.suspicion_max
    share = math.log(confirmations + 1) / math.log(expected + 1)
    return max(shortest_s, longest_s - (longest_s - shortest_s) * share)


def retransmissions(settings: GossipSettings, members: int) -> int:
    """Return how often one member sends one rumour: ⌈retransmit · log10(members + 1)⌉."""
    return math.ceil(settings.retransmit * math.log10(members + 1))


def exchange_every_s(settings: GossipSettings, members: int) -> float:
    """Return the time between full exchanges: exchange_s · max(1, ⌈log2 members⌉ - 4).

    As in memberlist: an exchange grows with the members, and so does the time between two, above 32
    members.
    """
    return settings.exchange_s * max(1, math.ceil(math.log2(max(members, 1))) - 4)


def refresh_every_s(settings: GossipSettings, bulletins: int, bulletin_bytes: float) -> float:
    """Return how often a site should announce a bulletin without news, because of its age.

    Each one passes every member once, so `bulletins` of them, in the whole federation, cost a
    member bulletins · bulletin_bytes / refresh each second. That cost is held at refresh_bytes_s,
    within refresh_min_s and refresh_max_s.
    """
    even_s = bulletins * bulletin_bytes / settings.refresh_bytes_s
    return min(max(even_s, settings.refresh_min_s), settings.refresh_max_s)
