"""A source on the net, asked every now and then. What it said last is good for a while.

It gets a few seconds and may answer little; it is not followed elsewhere; and only numbers that can
be intensities are taken. When it fails it is asked again soon, then ever more seldom, and what is
known grows old until `keep_s`, its age said with it.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Final

import httpx2
import trio

from gateway.carbon.answers import BadAnswer, Reading, read_answer
from gateway.carbon.cache import Cache
from gateway.carbon.config import HttpConfig
from policies.carbon import Intensity

BODY_BYTES_MAX: Final = 1 << 18
RETRY_S: Final = 30.0  # after a failure; twice as long after each more, up to `every_s`
RETRY_DOUBLINGS_MAX: Final = 16
WAIT_MAX_S: Final = 600.0  # the clock may be set while we sleep


class Feed:
    """One source on the net.

    Args:
        config: whom to ask, and how.
        key: sent in the header `config.key_header`; shown to nobody else.
        folder: where its last reading is kept.
        utc_s: the clock.
        say: tells people.
    """

    def __init__(
        self,
        config: HttpConfig,
        key: str,
        folder: Path,
        utc_s: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._key = key
        self._utc_s = utc_s
        self._say = say
        self._cache = Cache(folder, config)
        self._reading = self._cache.read(utc_s())
        self._failures = 0
        self._failed_s = -inf
        self._trouble = ""

    def at(self, utc_s: float) -> Intensity | None:
        """What is known now; None: nothing, or nothing that is recent enough."""
        reading, config = self._reading, self._config
        if reading is None:
            return None
        age_s = max(0.0, utc_s - reading.as_of_s)
        if age_s > config.keep_s:
            return None
        as_of = datetime.fromtimestamp(reading.as_of_s, UTC)
        source = f"http {config.host} as of {as_of:%Y-%m-%dT%H:%MZ}"
        if age_s > config.fresh_s:
            source += f", {age_s / 3600:.0f} h old" if age_s >= 3600 else f", {age_s:.0f} s old"
        return Intensity(reading.mg_per_kwh, source)

    async def follow(self, heard: Callable[[], None]) -> None:
        """Ask for ever; `heard` is called when something may have changed."""
        async with self.client() as client:
            while True:
                wait_s = self.wait_s(self._utc_s())
                if wait_s > 0:
                    await trio.sleep(min(wait_s, WAIT_MAX_S))
                else:
                    await self.renew(client)
                    heard()

    def client(self) -> httpx2.AsyncClient:
        """What asks. It follows no redirection, and its time is limited in `renew`."""
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers[self._config.key_header] = self._key
        return httpx2.AsyncClient(headers=headers, timeout=None, follow_redirects=False)

    def wait_s(self, utc_s: float) -> float:
        """How long until it is to be asked again."""
        every_s = self._config.every_s
        if self._failures:
            doublings = min(self._failures - 1, RETRY_DOUBLINGS_MAX)
            every_s = min(every_s, RETRY_S * float(2**doublings))
            wait_s = self._failed_s + every_s - utc_s
        else:
            wait_s = self._reading.checked_s + every_s - utc_s if self._reading else 0.0
        return min(wait_s, every_s)  # the clock may have been set back

    async def renew(self, client: httpx2.AsyncClient) -> None:
        """Ask once. Failures are told, once while they last, and never raised."""
        try:
            with trio.fail_after(self._config.timeout_s):
                reading = await self._ask(client)
        except trio.TooSlowError:
            self._fail(f"no answer within {self._config.timeout_s:g} s")
        except BadAnswer as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - no source may end a gateway
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._failures, self._reading = 0, reading
            if self._trouble:
                self._trouble = ""
                self._say(f"carbon: {self._config.host} answers again")
            await self._keep(reading)

    async def _ask(self, client: httpx2.AsyncClient) -> Reading:
        known = self._reading
        headers = {"If-None-Match": known.etag} if known and known.etag else {}
        async with client.stream("GET", self._config.url, headers=headers) as response:
            if response.status_code == httpx2.codes.NOT_MODIFIED and known and known.etag:
                now_s = self._utc_s()
                # What does not name its time holds as long as the source stands by it.
                as_of_s = known.as_of_s if self._config.time else now_s
                return replace(known, as_of_s=as_of_s, checked_s=now_s)
            if response.status_code != httpx2.codes.OK:
                raise BadAnswer(f"it answers {response.status_code}")
            # A few packed bytes may be a great many: it was asked not to pack, so none are opened.
            if response.headers.get("content-encoding", "identity") != "identity":
                raise BadAnswer("its answer is packed")
            body = await _read(response)
            etag = response.headers.get("etag", "")
        return read_answer(self._config, body, etag, self._utc_s())

    def _fail(self, why: str) -> None:
        self._failures += 1
        self._failed_s = self._utc_s()
        # Errors of the library may quote what was sent.
        why = why.replace(self._config.url, "its URL")
        why = (why.replace(self._key, "(the key)") if self._key else why)[:300]
        if why != self._trouble:
            self._trouble = why
            now = self.at(self._failed_s)
            instead = f"{now.mg_per_kwh / 1000:g} g/kWh, {now.source}" if now else "what is static"
            self._say(f"carbon: {self._config.host}: {why}; going on with {instead}")

    async def _keep(self, reading: Reading) -> None:
        try:
            await trio.to_thread.run_sync(self._cache.write, reading)
        except OSError as error:
            self._say(f"carbon: can't keep what {self._config.host} said: {error.strerror}")


async def _read(response: httpx2.Response) -> bytes:
    """The body of an answer; BadAnswer when it is too long."""
    body = bytearray()
    # Who leaves the loop leaves the library's generators to the garbage collector, under which
    # trio complains. What is cancelled unwinds them.
    with trio.CancelScope() as enough:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                enough.cancel()
    if len(body) > BODY_BYTES_MAX:
        raise BadAnswer(f"its answer has more than {BODY_BYTES_MAX:,} bytes")
    return bytes(body)
