"""The events and effects of a member of the federation, for federation.membership.membership.

The caller feeds events and performs effects in their order; it does not interpret the messages.
"""

from dataclasses import dataclass

from federation.clocks import MonoS
from federation.membership.gossip import Bulletin, MemberState, MemberUpdate, Message

# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """Begin. Updates from before a restart may be given; admit their sites first."""

    updates: tuple[MemberUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that WakeAt named has come."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A peer, with a proved identity, has sent this message; its bulletins are verified."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No connection with a peer could be had, or the existing one is lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class Connected:
    """A session with a peer is open, until `Disconnected` or `Unreachable`."""

    peer: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """An idle session with a peer was closed because it was not needed: nothing was lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class Join:
    """Get to know the other members through these, which are admitted."""

    seeds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave on purpose; nothing more is done after the effects of this event."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce a bulletin of our own to all members; it must be the newest of its topic."""

    bulletin: Bulletin


@dataclass(frozen=True, slots=True)
class Admitted:
    """These sites may be members; `direct` ones may be connected with as well."""

    sites: tuple[str, ...]
    direct: bool = True


@dataclass(frozen=True, slots=True)
class Expelled:
    """This site may not be a member any more."""

    site: str


OfPeer = Heard | Connected | Disconnected | Unreachable
Event = Started | Tick | OfPeer | Join | Leave | Announce | Admitted | Expelled


# --- effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send this to a peer, over the existing connection or a new one."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Changed:
    """A member has changed state; None stands for one that is not known (any more)."""

    site: str
    old: MemberState | None
    new: MemberState | None


@dataclass(frozen=True, slots=True)
class Learned:
    """The newest bulletin of its topic has arrived."""

    bulletin: Bulletin


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep connections with these from now on; others may be closed when they are idle."""

    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A peer knows a later run of ours: our disk was set back, our keys leaked, or it lies.

    Our incarnation is now above the one it knows. Other losses with the disk are for others to
    report.
    """

    incarnation: int
    by: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a Tick at this time, and not at the one named before."""

    at_s: MonoS


Effect = Send | Changed | Learned | Keep | Overtaken | WakeAt
