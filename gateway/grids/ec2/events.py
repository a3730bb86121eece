"""EC2's scheduled events: maintenance of the hosts that instances run on. Pure.

EC2 announces them days ahead, as "system-reboot, not before Tuesday 04:00". An instance works until
shortly before that moment, and then ends; another starts on another host when there is work.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from federation.clocks import UtcS

CODES: Final[Mapping[str, str]] = {
    "instance-reboot": "restarts the instance",
    "instance-retirement": "retires the instance",
    "instance-stop": "stops the instance",
    "system-maintenance": "maintains the instance's host",
    "system-reboot": "restarts the instance's host",
}
# The instance gets no new task from this long before its event.
LEAD_S: Final = 900.0
# The beginnings of descriptions of events that will not take place any more.
_OVER: Final = ("[Completed]", "[Canceled]")


def leaving(
    statuses: Iterable[Mapping[str, Any]], pilots: Mapping[str, Collection[str]], utc_s: UtcS
) -> dict[str, str]:
    """Return the pilots whose instance has an event now or soon, each with the reason.

    Args:
        statuses: of DescribeInstanceStatus, of any instances.
        pilots: the names of the pilots of each of our instances, by id.
        utc_s: the time of day, seconds since 1970.
    """
    found: dict[str, str] = {}
    for each in statuses:
        names = pilots.get(str(each.get("InstanceId", "")), ())
        for why in _near(each, utc_s) if names else ():
            found |= dict.fromkeys(names, why)
            break
    return found


def _near(status: Mapping[str, Any], utc_s: UtcS) -> Iterator[str]:
    for event in status.get("Events") or ():
        code, at = str(event.get("Code", "")), event.get("NotBefore")
        is_over = str(event.get("Description", "")).startswith(_OVER)
        if code not in CODES or is_over or not isinstance(at, datetime):
            continue
        if UtcS(at.timestamp()) - utc_s <= LEAD_S:
            yield f"EC2 {CODES[code]} ({code}) from {at:%Y-%m-%d %H:%M %Z} on"
