"""Exponential back-off from dialling a site that breaks the protocol. Pure."""

from dataclasses import dataclass
from typing import Final

from federation.clocks import MonoS

FIRST_S: Final = 1.0
MAX_S: Final = 300.0
# The back-off of a site starts over when it has kept to the protocol for this long.
FORGIVEN_S: Final = 3600.0


@dataclass(slots=True)
class _Penalty:
    times: int = 0
    until_s: MonoS = MonoS(0.0)
    reason: str = ""


class Penalties:
    """The sites that broke the protocol recently. Times are monotonic."""

    def __init__(self) -> None:
        self._of: dict[str, _Penalty] = {}

    def note(self, site: str, reason: str, mono_s: MonoS) -> float:
        """Note a breach of protocol; return the site's back-off in seconds."""
        found = self._of.setdefault(site, _Penalty())
        if mono_s - found.until_s > FORGIVEN_S:
            found.times = 0
        found.times += 1
        wait_s = min(FIRST_S * 2.0 ** min(found.times - 1, 30), MAX_S)
        found.until_s, found.reason = mono_s + wait_s, reason
        return wait_s

    def until_s(self, site: str) -> MonoS:
        """Return when a site may be dialled again."""
        found = self._of.get(site)
        return found.until_s if found else MonoS(0.0)

    def reason(self, site: str) -> str:
        """Return the reason of a site's last penalty."""
        found = self._of.get(site)
        return found.reason if found else ""
