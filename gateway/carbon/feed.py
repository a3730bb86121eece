"""A source on the net, asked at intervals: for the present intensity, and for a forecast.

Only numbers that can be intensities are taken. The latest answer is good for a while: it grows old
until `keep_s`, and its age is reported with it.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import trio

from federation.clocks import NEVER_S, UtcS
from federation.messages.adverts import Outlook
from federation.words import duration_text
from gateway.carbon.answers import Foreseen, Reading, read_answer, read_forecast
from gateway.carbon.asking import Asking
from gateway.carbon.cache import Cache, foreseen_of, reading_of
from gateway.config.carbon import NOW, ForecastConfig, HttpConfig
from policies.costs.carbon import Intensity
from policies.placement.outlook import outlook


class Feed:
    """One source on the net.

    Args:
        config: the source, and how to ask it.
        key: sent in the header `config.key_header`; shown nowhere else.
        folder: keeps the latest answers.
        utc_s: the clock.
        say: tells people.
    """

    def __init__(
        self,
        config: HttpConfig,
        key: str,
        folder: Path,
        utc_s: Callable[[], UtcS],
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._key = key
        what = [config.url, config.value, config.time]
        self._now: Asking[Reading] = Asking(
            _OfNow(self), config, key, Cache(folder, what, reading_of), utc_s, say
        )
        self._later: Asking[Foreseen] | None = None
        if config.forecast is not None:
            each = config.forecast
            what = [each.url, each.value, each.time, each.entries]
            question = _OfLater(each)
            self._later = Asking(
                question, config, key, Cache(folder, what, foreseen_of), utc_s, say
            )
        self._ahead: tuple[Foreseen | None, UtcS, Outlook | None] = None, UtcS(0.0), None

    @property
    def config(self) -> HttpConfig:
        """The source, and how to ask it."""
        return self._config

    def at(self, utc_s: UtcS) -> Intensity | None:
        """Return the present intensity; None: it is not known, or not recently enough."""
        reading, config = self._now.known, self._config
        if reading is None:
            return None
        age_s = max(0.0, utc_s - reading.as_of_s)
        if age_s > config.keep_s:
            return None
        as_of = datetime.fromtimestamp(float(reading.as_of_s), UTC)
        source = f"http {config.host} as of {as_of:%Y-%m-%dT%H:%MZ}"
        if age_s > config.fresh_s:
            source += f", {duration_text(age_s)} old"
        return Intensity(reading.mg_per_kwh, source)

    def ahead(self, utc_s: UtcS) -> Outlook | None:
        """Return the forecast after now; None: there is none, or none that is recent enough."""
        known = self._later.known if self._later is not None else None
        if known is None or utc_s - known.checked_s > self._config.keep_s:
            return None
        before, next_at_s, found = self._ahead
        if known is not before or utc_s >= next_at_s:
            found = outlook(known.steps, utc_s)
            next_at_s = min((at for at, _ in known.steps if at > utc_s), default=NEVER_S)
            self._ahead = known, next_at_s, found
        return found

    async def follow(self, heard: Callable[[], None]) -> None:
        """Ask for ever; `heard` is called when something may have changed."""
        async with self.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(self._now.follow, client, heard)
            if self._later is not None:
                nursery.start_soon(self._later.follow, client, heard)

    def client(self) -> httpx2.AsyncClient:
        """Return the HTTP client. It follows no redirect; `renew` limits its time."""
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers[self._config.key_header] = self._key
        return httpx2.AsyncClient(headers=headers, timeout=None, follow_redirects=False)

    def wait_s(self, utc_s: UtcS) -> float:
        """Return how long until the next request for the present intensity."""
        return self._now.wait_s(utc_s)

    async def renew(self, client: httpx2.AsyncClient) -> None:
        """Ask once. Failures are logged, once while they last, and never raised."""
        await self._now.renew(client)
        if self._later is not None:
            await self._later.renew(client)


class _OfNow:
    """Asks for the present intensity."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def url(self, utc_s: UtcS) -> str:
        return self._feed.config.url

    def read(self, body: bytes, etag: str, utc_s: UtcS) -> Reading:
        return read_answer(self._feed.config, body, etag, utc_s)

    def confirmed(self, known: Reading, utc_s: UtcS) -> Reading:
        # An answer without a time of its own holds as long as the source stands by it.
        as_of_s = known.as_of_s if self._feed.config.time else utc_s
        return replace(known, as_of_s=as_of_s, checked_s=utc_s)

    def instead(self, utc_s: UtcS) -> str:
        now = self._feed.at(utc_s)
        return f"{now.mg_per_kwh / 1000:g} g/kWh, {now.source}" if now else "the static value"


class _OfLater:
    """Asks for the forecast."""

    def __init__(self, config: ForecastConfig) -> None:
        self._config = config

    def url(self, utc_s: UtcS) -> str:
        return self._config.url.replace(
            NOW, f"{datetime.fromtimestamp(float(utc_s), UTC):%Y-%m-%dT%H:%MZ}"
        )

    def read(self, body: bytes, etag: str, utc_s: UtcS) -> Foreseen:
        return read_forecast(self._config, body, etag, utc_s)

    def confirmed(self, known: Foreseen, utc_s: UtcS) -> Foreseen:
        return replace(known, checked_s=utc_s)

    def instead(self, utc_s: UtcS) -> str:
        return "its last forecast, if any"
