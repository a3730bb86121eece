"""What happens to a member of the federation, and what it then does: federation.membership's words.

The caller feeds events and performs effects in their order; it does not interpret the messages.
"""

from dataclasses import dataclass

from federation.gossip import Bulletin, Claim, Message, State

# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """Begin. What was known before a restart may be given; admit its sites first."""

    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that WakeAt named has come."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A peer, which is who it says, has sent this; its bulletins are verified."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No connection with a peer could be had, or the one there was is lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class Connected:
    """A session with a peer is open, until `Disconnected` or `Unreachable`."""

    peer: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A session with a peer was closed because nobody needed it: nothing was lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class Join:
    """Get to know the others through these, which are admitted."""

    seeds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """We go, on purpose; nothing more is done after the effects of this."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell everybody a bulletin of our own; of its topic it must be the newest."""

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
    """Send this to a peer, over the connection there is or a new one."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Changed:
    """A member is in another state; None stands for one that is not known (any more)."""

    site: str
    old: State | None
    new: State | None


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
    """A peer knows a later life of ours: our disk was set back, somebody has our keys, or it lies.

    Our incarnation is above it now; what else was lost with the disk is for others to say.
    """

    incarnation: int
    by: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Tick at this time, and not at the one named before."""

    at_s: float


Effect = Send | Changed | Learned | Keep | Overtaken | WakeAt
