"""Watches for notices that this host will be taken away, as a cloud gives for a spot instance.

The instance's metadata has two: `spot/instance-action`, two minutes before the end at best; and
`events/recommendations/rebalance`, when an end has become likely, which comes earlier or not at
all. Both are best effort: a host may vanish without notice, and then the session lapses.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import trio

from federation.clocks import UtcS
from gateway.worker.metadata import MetadataError, source

ACTION: Final = "spot/instance-action"
REBALANCE: Final = "events/recommendations/rebalance"
POLL_S: Final = 5.0  # as often as EC2 advises
LEAD_S: Final = 5.0  # kept for reports and the goodbye, out of the remaining time


@dataclass(frozen=True, slots=True)
class Interruption:
    """A notice. `ends_at_s`: when the host goes, UTC; None: it may go at some time."""

    text: str
    ends_at_s: UtcS | None = None

    def stop_in_s(self, utc_s: UtcS) -> float | None:
        """Return the seconds until the last task must stop, leaving time for a goodbye."""
        if self.ends_at_s is None:
            return None
        left_s = max(0.0, self.ends_at_s - utc_s)
        return left_s - min(LEAD_S, left_s / 4)


# A rebalance recommendation: it carries only the time of the notice.
RISK: Final = Interruption("the cloud may reclaim this instance soon")


def read_action(text: str, utc_s: UtcS) -> Interruption:
    """Parse `spot/instance-action`: `{"action": "terminate", "time": "2026-11-22T21:00:00Z"}`.

    An unreadable one is a notice too: of an end at once.
    """
    body = _object(text)
    ends_at_s = _read_at_s(body.get("time"))
    action = body.get("action") if isinstance(body.get("action"), str) else "interrupt"
    return Interruption(f"the cloud will {action:.20} this instance", ends_at_s or utc_s)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_at_s(value: object) -> UtcS | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return UtcS((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


async def watch(
    address: str,
    heed: Callable[[Interruption], None],
    say: Callable[[str], None],
    utc_s: Callable[[], UtcS],
    *,
    poll_s: float = POLL_S,
    rebalances: bool = True,
) -> None:
    """Poll for notices; pass each on once. Returns after the one that names an end.

    Args:
        address: of the metadata service, or a folder with its notices.
        rebalances: whether a recommendation counts.
    """
    metadata = source(address)
    was_told = has_rebalanced = False
    while True:
        try:
            action = await trio.to_thread.run_sync(metadata.get, ACTION)
            if action is not None:
                heed(read_action(action, utc_s()))
                return
            if rebalances and not has_rebalanced:
                text = await trio.to_thread.run_sync(metadata.get, REBALANCE)
                if text is not None:
                    has_rebalanced = True
                    heed(RISK)
            was_told = False
        except MetadataError as error:
            if not was_told:
                was_told = True
                say(f"can't read interruption notices, retrying: {error}")
        await trio.sleep(poll_s)
