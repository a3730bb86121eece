"""Asks a source on the net the same question at intervals, and keeps the latest answer.

A source gets a few seconds and may answer little; redirects are not followed. After a failure it is
asked again soon, then with a growing back-off. Failures are logged once while they last, and never
raised.
"""

from collections.abc import Callable
from math import inf
from typing import Final, Generic, Protocol, TypeVar

import httpx2
import trio

from federation.clocks import UtcS
from federation.words import duration_text
from gateway.carbon.answers import BadAnswer, Foreseen, Reading
from gateway.carbon.cache import Cache
from gateway.config.carbon import HttpConfig

BODY_BYTES_MAX: Final = 1 << 18
RETRY_S: Final = 30.0  # after a failure; twice as long after each more, up to `every_s`
RETRY_DOUBLINGS_MAX: Final = 16
WAIT_MAX_S: Final = 600.0  # the clock may be set during a sleep

T = TypeVar("T", bound=Reading | Foreseen)


class CarbonQuestion(Protocol[T]):
    """A question, and the reading of its answer."""

    def url(self, utc_s: UtcS) -> str:
        """Return the URL for a request at a time."""

    def read(self, body: bytes, etag: str, utc_s: UtcS) -> T:
        """Read an answer; BadAnswer."""

    def confirmed(self, known: T, utc_s: UtcS) -> T:
        """Return the known answer, renewed because the source says that it has not changed."""

    def instead(self, utc_s: UtcS) -> str:
        """Return the value in use while no answer comes, for people."""


class Asking(Generic[T]):
    """One question to one source.

    Args:
        question: the question.
        config: the interval, the time-out, and the header for a key.
        key: sent in that header; shown nowhere else.
        cache: keeps the latest answer.
        utc_s: the clock.
        say: tells people.

    Attributes:
        known: the latest answer; None: nothing that counts.
    """

    def __init__(
        self,
        question: CarbonQuestion[T],
        config: HttpConfig,
        key: str,
        cache: Cache[T],
        utc_s: Callable[[], UtcS],
        say: Callable[[str], None],
    ) -> None:
        self._question = question
        self._config = config
        self._key = key
        self._cache = cache
        self._utc_s = utc_s
        self._say = say
        self.known: T | None = cache.read(utc_s())
        self._failures = 0
        self._failed_at_s = UtcS(-inf)
        self._trouble = ""
        self._url = question.url(utc_s())  # of the latest request

    async def follow(self, client: httpx2.AsyncClient, heard: Callable[[], None]) -> None:
        """Ask for ever; `heard` is called when something may have changed."""
        while True:
            wait_s = self.wait_s(self._utc_s())
            if wait_s > 0:
                await trio.sleep(min(wait_s, WAIT_MAX_S))
            else:
                await self.renew(client)
                heard()

    def wait_s(self, utc_s: UtcS) -> float:
        """Return how long until the next request."""
        every_s = self._config.every_s
        if self._failures:
            doublings = min(self._failures - 1, RETRY_DOUBLINGS_MAX)
            every_s = min(every_s, RETRY_S * float(2**doublings))
            wait_s = self._failed_at_s + every_s - utc_s
        else:
            wait_s = self.known.checked_s + every_s - utc_s if self.known else 0.0
        return min(wait_s, every_s)  # the clock may have been set back

    async def renew(self, client: httpx2.AsyncClient) -> None:
        """Ask once. Failures are logged, once while they last, and never raised."""
        try:
            with trio.fail_after(self._config.timeout_s):
                found = await self._ask(client)
        except trio.TooSlowError:
            self._fail(f"timed out after {duration_text(self._config.timeout_s)}")
        except BadAnswer as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - no source may end a gateway
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._failures, self.known = 0, found
            if self._trouble:
                self._trouble = ""
                self._say(f"carbon: {self._config.host} is available again")
            await self._keep(found)

    async def _ask(self, client: httpx2.AsyncClient) -> T:
        known = self.known
        headers = {"If-None-Match": known.etag} if known and known.etag else {}
        self._url = self._question.url(self._utc_s())
        async with client.stream("GET", self._url, headers=headers) as response:
            if response.status_code == httpx2.codes.NOT_MODIFIED and known and known.etag:
                return self._question.confirmed(known, self._utc_s())
            if response.status_code != httpx2.codes.OK:
                raise BadAnswer(f"HTTP status {response.status_code}")
            # A few packed bytes may unpack to a great many: the source was asked not to pack, so
            # packed answers are not opened.
            if response.headers.get("content-encoding", "identity") != "identity":
                raise BadAnswer("its response is compressed, which is not supported")
            body = await _read(response)
            etag = response.headers.get("etag", "")
        return self._question.read(body, etag, self._utc_s())

    def _fail(self, why: str) -> None:
        self._failures += 1
        self._failed_at_s = self._utc_s()
        # Errors of the library may quote the request.
        why = why.replace(self._url, "its URL")
        why = (why.replace(self._key, "(the key)") if self._key else why)[:300]
        if why != self._trouble:
            self._trouble = why
            instead = self._question.instead(self._failed_at_s)
            self._say(f"carbon: {self._config.host}: {why}; using {instead}")

    async def _keep(self, found: T) -> None:
        try:
            await trio.to_thread.run_sync(self._cache.write, found)
        except OSError as error:
            self._say(
                f"carbon: the response of {self._config.host} could not be stored: {error.strerror}"
            )


async def _read(response: httpx2.Response) -> bytes:
    """Return the body of an answer; BadAnswer when it is too long."""
    body = bytearray()
    # Leaving the loop would leave the library's generators to the garbage collector, under which
    # trio complains. Cancelling unwinds them.
    with trio.CancelScope() as enough:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                enough.cancel()
    if len(body) > BODY_BYTES_MAX:
        raise BadAnswer(f"its response has more than {BODY_BYTES_MAX:,} bytes")
    return bytes(body)
