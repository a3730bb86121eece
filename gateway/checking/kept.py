"""Findings that a running gateway keeps: a monitor may ask for its status each second.

The files of a configuration are read anew when one of them changes, when the configuration is
another, and each minute, as certificates come near their end and a file may change unnoticed.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from federation.clocks import UtcS
from gateway.checking.findings import Finding
from gateway.checking.whole import examine
from gateway.config.site import SiteConfig

RENEWED_S: Final = 60.0

Stamp = tuple[tuple[str, int, int, int], ...]


class KeptFindings:
    """The findings about a configuration, and the state of its files when they were made.

    Args:
        look: examines a configuration, as `gateway.checking.whole.examine` does.
    """

    def __init__(self, look: Callable[[SiteConfig, UtcS], Iterable[Finding]] = examine) -> None:
        self._look = look
        self._lock = threading.Lock()  # askers are in threads: one of them reads the files
        self._made_for: SiteConfig | None = None
        self._made_at_s = UtcS(0.0)
        self._stamp: Stamp = ()
        self._found: tuple[Finding, ...] = ()

    def of(self, config: SiteConfig, utc_s: UtcS) -> tuple[Finding, ...]:
        """Return the findings about a configuration now, UTC; it may read files: call in a thread.

        They are those of up to a minute ago if no file has changed.
        """
        with self._lock:
            stamp = tuple(_stamp(_watched(config)))
            is_fresh = 0 <= utc_s - self._made_at_s < RENEWED_S
            if config is not self._made_for or stamp != self._stamp or not is_fresh:
                self._found = tuple(self._look(config, utc_s))
                self._made_for, self._made_at_s, self._stamp = config, utc_s, stamp
            return self._found


def _watched(config: SiteConfig) -> Iterator[Path]:
    """Yield the files that certificates, keys and tokens are read from."""
    named = (config.tls_certificate_file, config.tls_ca_file, config.alerts.pace.ca_file)
    yield from (Path(name).expanduser() for name in named if name)
    for pool in config.pools:
        if pool.scale is not None and pool.scale.token_file:
            yield Path(pool.scale.token_file).expanduser()
    if config.federation is not None:
        yield config.trust_path
        try:
            yield from sorted(each for each in config.trust_path.iterdir() if each.suffix)
        except OSError:
            return  # a finding tells it


def _stamp(paths: Iterable[Path]) -> Iterator[tuple[str, int, int, int]]:
    for path in paths:
        try:
            found = os.stat(path)
        except OSError:
            yield str(path), 0, 0, 0
        else:
            yield str(path), found.st_ino, found.st_mtime_ns, found.st_size
