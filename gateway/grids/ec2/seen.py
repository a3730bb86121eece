"""Our instances as pilots, from EC2's descriptions. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from federation.clocks import UNIX_EPOCH_S, UtcS
from gateway.grids.contract import PilotState, Sighting
from gateway.grids.ec2.launching import (
    LIMIT_TAG,
    ORDER_TAG,
    PILOTS_TAG,
    number_in,
    pilot_name,
    tags_of,
)
from gateway.grids.ec2.prices import PriceBook

_PILOT_STATES: Final[Mapping[str, PilotState]] = {
    "pending": PilotState.STARTING,
    "running": PilotState.RUNNING,
    "shutting-down": PilotState.ENDING,
    # We never stop an instance: a stopped one costs its volumes, and is to be terminated.
    "stopping": PilotState.ENDING,
    "stopped": PilotState.ENDING,
    "terminated": PilotState.ENDED,
}
BILLED: Final = frozenset({"pending", "running", "stopping", "shutting-down"})
_REASONS: Final[Mapping[str, str]] = {
    "Server.SpotInstanceTermination": "EC2 reclaimed the spot instance",
    "Server.SpotInstanceShutdown": "EC2 reclaimed the spot instance",
    "Server.InsufficientInstanceCapacity": "EC2 had no capacity for the instance",
    "Server.InternalError": "EC2 had an error when the instance started",
    "Server.ScheduledStop": "EC2 stopped the instance for a scheduled event",
    "Client.InstanceInitiatedShutdown": "the instance shut down: its worker had ended",
    "Client.UserInitiatedShutdown": "the instance was terminated on request",
    "Client.VolumeLimitExceeded": "the quota of volumes is reached",
    "Client.InvalidSnapshot.NotFound": "the snapshot of the image does not exist",
    "Client.InternalError": "the image's volumes could not be opened: check access to their key",
}


@dataclass(frozen=True, slots=True)
class Ec2Instance:
    """One of our instances.

    Attributes:
        number: of its order's pilots; None: it has not been told yet.
        ends_at_s: when its time is over, and it ends by itself; None: no time limit.
    """

    id: str
    order: str
    number: int | None
    state: str
    kind: str
    zone: str
    is_spot: bool
    launched_at_s: UtcS
    reason: str
    ends_at_s: UtcS | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state == "terminated"

    def sighting(self, number: int, slots: int) -> Sighting:
        """Return its pilot."""
        state = _PILOT_STATES.get(self.state, PilotState.STARTING)
        is_paid = state in (PilotState.RUNNING, PilotState.ENDING)
        return Sighting(
            name=pilot_name(self.order, number),
            state=state,
            grid_id=self.id,
            slots=slots,
            paid_at_s=self.launched_at_s if is_paid else None,
            ends_at_s=self.ends_at_s,
            fault=self._fault(state),
        )

    def _fault(self, state: PilotState) -> str:
        if state not in (PilotState.ENDING, PilotState.ENDED):
            return ""
        known = _REASONS.get(self.reason)
        if known is not None:
            return f"{known} ({self.reason})"
        return self.reason[:200] or f"EC2 reports the state {self.state}"


def read_instance(body: Mapping[str, Any]) -> Ec2Instance:
    """Parse an instance of DescribeInstances."""
    instance, tags = str(body["InstanceId"]), tags_of(body)
    told = tags.get(PILOTS_TAG)
    launched = body.get("LaunchTime")
    reason = body.get("StateReason") or {}
    limit = tags.get(LIMIT_TAG, "")
    launched_at_s = UtcS(launched.timestamp()) if isinstance(launched, datetime) else UNIX_EPOCH_S
    return Ec2Instance(
        id=instance,
        order=tags.get(ORDER_TAG, ""),
        number=number_in(told, instance) if told else None,
        state=str(body.get("State", {}).get("Name", "pending")),
        kind=str(body.get("InstanceType", "")),
        zone=str(body.get("Placement", {}).get("AvailabilityZone", "")),
        is_spot=body.get("InstanceLifecycle") == "spot",
        launched_at_s=launched_at_s,
        reason=str(reason.get("Code", "")),
        ends_at_s=launched_at_s + int(limit) if limit.isdecimal() and launched_at_s else None,
    )


def spend_nanos(instances: Iterable[Ec2Instance], book: PriceBook) -> int | None:
    """Return the hourly cost of billed instances; None: a price is unknown."""
    total = 0
    for each in instances:
        if each.state not in BILLED:
            continue
        nanos = book.price_nanos(each.kind, each.zone, is_spot=each.is_spot)
        if nanos is None:
            return None
        total += nanos
    return total
