"""Keeps a site's knowledge of its pools' emissions up to date, and tells the broker of changes.

A pool has one source that changes at most, a series or one on the net; behind it is the static
factor. The broker is asked nothing, and nothing waits for a source.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import trio

from federation.clocks import UtcS
from federation.errors import GridError
from federation.files import read_regular
from federation.messages.adverts import Outlook
from gateway.carbon.series import HOUR_S, read_series
from gateway.config.carbon import HttpConfig
from gateway.config.site import PoolConfig
from gateway.scheduler.model.events import EmissionsKnown
from policies.costs.carbon import Emissions, Intensity

LOOK_S: Final = 10.0  # the ages of readings are looked at so often
KEY_CHARS_MAX: Final = 4_096
KEY_BYTES_MAX: Final = 64 << 10


class IntensitySource(Protocol):
    """A source that may know the intensity."""

    def at(self, utc_s: UtcS) -> Intensity | None:
        """Return the intensity known of a time; None: nothing."""

    def ahead(self, utc_s: UtcS) -> Outlook | None:
        """Return the forecast for the time after that; None: nothing."""


class Follower(IntensitySource, Protocol):
    """A source that has to be asked."""

    async def follow(self, heard: Callable[[], None]) -> None:
        """Ask for ever."""


class Meters:
    """The emissions of a site's pools.

    Args:
        pools: as configured.
        folder: keeps the answers of sources.
        utc_s: the clock.
        say: tells people.

    Raises:
        GridError: a series or a key can't be read.
    """

    def __init__(
        self,
        pools: tuple[PoolConfig, ...],
        folder: Path,
        utc_s: Callable[[], UtcS],
        say: Callable[[str], None],
    ) -> None:
        self._pools = pools
        self._utc_s = utc_s
        self._known = {pool.name: pool.emissions for pool in pools}
        self._feeds: dict[HttpConfig, Follower] = {}  # one for all pools that ask the same
        self._sources: dict[str, IntensitySource] = {}
        for pool in pools:
            series, http = pool.carbon.series, pool.carbon.http
            if series is not None:
                self._sources[pool.name] = read_series(series)
            elif http is not None:
                if http not in self._feeds:
                    self._feeds[http] = _open_feed(http, folder, utc_s, say)
                self._sources[pool.name] = self._feeds[http]

    def news(self) -> list[EmissionsKnown]:
        """Return the changes since the last call; at first, since the static values."""
        utc_s, changed = self._utc_s(), []
        for pool in self._pools:
            source = self._sources.get(pool.name)
            static = pool.emissions
            intensity = source.at(utc_s) if source is not None else None
            ahead = source.ahead(utc_s) if source is not None else None
            now = Emissions(static.machine, intensity or static.intensity, ahead)
            if now != self._known[pool.name]:
                self._known[pool.name] = now
                changed.append(EmissionsKnown(pool.name, now))
        return changed

    async def run(self, hear: Callable[[EmissionsKnown], None]) -> None:
        """Tell of changes until cancelled; return at once when no source changes."""
        if not self._sources:
            return
        tell = partial(self._tell, hear)
        async with trio.open_nursery() as nursery:
            for feed in self._feeds.values():
                nursery.start_soon(feed.follow, tell)
            while True:
                tell()
                # To the hour, when series change.
                await trio.sleep(min(LOOK_S, HOUR_S - self._utc_s() % HOUR_S))

    def _tell(self, hear: Callable[[EmissionsKnown], None]) -> None:
        for event in self.news():
            hear(event)


def _open_feed(
    config: HttpConfig, folder: Path, utc_s: Callable[[], UtcS], say: Callable[[str], None]
) -> Follower:
    from gateway.carbon.feed import Feed  # loads an HTTP client, so only where a source is asked

    return Feed(config, read_key(config), folder, utc_s, say)


def read_key(config: HttpConfig) -> str:
    """Return the key of a source; GridError, which does not quote it."""
    if config.key_env:
        where, key = f"${config.key_env}", os.environ.get(config.key_env, "")
    elif config.key_file:
        where = config.key_file
        try:
            key = read_regular(Path(where).expanduser(), KEY_BYTES_MAX).decode()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise GridError(f"the key of {config.host} can't be read: {where}: {why}") from None
    else:
        return ""
    key = key.strip()
    if not key or len(key) > KEY_CHARS_MAX or not key.isascii() or not key.isprintable():
        raise GridError(
            f"the key of {config.host} in {where} is empty, too long, or not printable ASCII"
        )
    return key
