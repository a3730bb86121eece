"""Messages between a gateway and its carrier, the process that moves the bytes of objects to and
from other hosts: docs/protocol.md, "Bulk transfer". By a socket pair, as those of the object host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from federation.messages.wire import Count, Lines, Number, Payloads, Text


@dataclass(frozen=True, slots=True)
class SetUpCarrier:
    """Gateway → carrier, first. Answered by CarrierReady.

    Attributes:
        host, ticket: the address of the object host, and a ticket for it.
        listen: the bulk port; empty: it takes no connections, and only fetches.
        site, keys: our name, and our signing keys: tickets that others show are ours.
        folder: of our leaf and of the pins of other sites; empty: there is none.
        bytes_max: the memory for objects on their way to here, all together;
            0: of one object at a time.
    """

    kind: ClassVar[str] = "set-up-carrier"
    host: Text
    ticket: bytes
    listen: Text
    site: Text
    keys: Payloads
    folder: Text
    bytes_max: Count = 0


@dataclass(frozen=True, slots=True)
class CarrierReady:
    """Carrier → gateway: it runs; `address` is that of its port, `reason` why there is none."""

    kind: ClassVar[str] = "carrier-ready"
    pid: Count
    address: Text = ""
    reason: Text = ""


@dataclass(frozen=True, slots=True)
class CarrierBeat:
    """Gateway → carrier, and back at once: both are alive. `number` counts up."""

    kind: ClassVar[str] = "carrier-beat"
    number: Count


@dataclass(frozen=True, slots=True)
class RenewKeys:
    """Gateway → carrier: our signing keys from now on."""

    kind: ClassVar[str] = "renew-keys"
    keys: Payloads


@dataclass(frozen=True, slots=True)
class PullObject:
    """Gateway → carrier: fetch this object for a job. Answered by ObjectPulled.

    `sources` has [site, address, ticket] of each holder; `scope` is the project here. `is_input`:
    calls of the job refer to it; else it is a result of the job.
    """

    kind: ClassVar[str] = "pull-object"
    request: Count
    scope: Text
    digest: bytes
    size: Count
    user: Text
    job: Text
    sources: Lines
    is_input: bool = True


@dataclass(frozen=True, slots=True)
class ObjectPulled:
    """Carrier → gateway: the object is at the object host, or `reason` says why it is not.

    `moved` has [site, bytes] of what has arrived from each holder, checked. `is_ours`: the reason
    is at this site, and at none of the holders.
    """

    kind: ClassVar[str] = "object-pulled"
    request: Count
    reason: Text
    moved: Lines
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class StopPull:
    """Gateway → carrier: the object is needed no more."""

    kind: ClassVar[str] = "stop-pull"
    request: Count


@dataclass(frozen=True, slots=True)
class CutSite:
    """Gateway → carrier: this site was approved no more at `at_s`: end its streams.

    Its tickets of before then are taken no more.
    """

    kind: ClassVar[str] = "cut-site"
    site: Text
    reason: Text
    at_s: Number


CARRIER_MESSAGES: Final[tuple[type[Any], ...]] = (
    *(SetUpCarrier, CarrierReady, RenewKeys, PullObject, ObjectPulled, StopPull),
    *(CutSite, CarrierBeat),
)
