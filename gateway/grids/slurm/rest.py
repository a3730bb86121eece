"""Slurm by slurmrestd, over HTTP: v0.0.38 and v0.0.42.

The token is read anew for each request, as its renewal only writes its file. Over TCP the token and
the job's environment are as safe as the URL: with http:// they are visible on the wire.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx2
import trio

from federation.clocks import UtcS
from federation.words import duration_text
from gateway.base.secret_files import read_token
from gateway.base.values import ConfigError
from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.slurm.asking import ArrayRequest, rest_body
from gateway.grids.slurm.faults import GONE, fault_of, hide, read_answer, submitted
from gateway.grids.slurm.listing import Partition, SlurmNode, read_nodes, read_partitions, release
from gateway.grids.slurm.quotas import Quotas
from gateway.grids.slurm.settings import RestSettings, SlurmSettings
from gateway.grids.slurm.way import ANSWER_BYTES_MAX, SlurmBounds

KILLS_AT_ONCE: Final = 8


class SlurmRest:
    """A cluster, queried by its slurmrestd."""

    def __init__(self, settings: SlurmSettings, rest: RestSettings) -> None:
        self._settings = settings
        self._rest = rest
        self._token = ""  # as last read: it is hidden in all texts

    async def version(self) -> str:
        """Return Slurm's version, after its controller has answered."""
        found = await self._ask("GET", "ping")
        answers = found.get("pings")
        shown = [each for each in answers or () if isinstance(each, dict)]
        if not any("UP" in (each.get("ping"), each.get("pinged")) for each in shown):
            # An expired token looks the same: the request for jobs reports it.
            await self._ask("GET", "jobs")
            raise GridFault(FailureClass.AGAIN, "slurmrestd runs, but slurmctld does not answer it")
        return f"Slurm {release(found) or 'of an unknown version'}"

    async def jobs(self) -> Mapping[str, Any]:
        """Return the known jobs."""
        return await self._ask("GET", "jobs")

    async def nodes(self, names: Sequence[str] = ()) -> Sequence[SlurmNode]:
        """Return all nodes: by name slurmrestd shows only one at a time."""
        return await trio.to_thread.run_sync(read_nodes, await self._ask("GET", "nodes"))

    async def partitions(self) -> Sequence[Partition]:
        """Return all partitions."""
        return read_partitions(await self._ask("GET", "partitions"))

    async def bounds(self) -> SlurmBounds:
        """Return the limits of its configuration."""
        return SlurmBounds()  # slurmrestd has no such query

    async def quotas(self, qos: Sequence[str]) -> Quotas:
        """Return the limits that apply to us."""
        return Quotas()  # nor one for their use

    async def expect(self, request: ArrayRequest) -> UtcS | None:
        """Return when such a job would begin."""
        return None  # nor one for that

    async def submit(self, request: ArrayRequest) -> None:
        """Submit an array."""
        body = rest_body(self._settings, request, self._rest.api)
        hidden = request.environment.values()
        answer, said = await self._exchange("POST", "job/submit", body, hidden)
        if said and not submitted(answer):
            raise fault_of("slurmrestd", self._hide(said, hidden))

    async def cancel(self, grid_ids: Collection[str]) -> None:
        """Cancel tasks."""
        if self._rest.api != "v0.0.38":
            await self._cancel_all(list(grid_ids))
            return
        # It takes one task at a time.
        limit = trio.CapacityLimiter(KILLS_AT_ONCE)
        faults: list[GridFault] = []

        async def cancel_one(each: str) -> None:
            async with limit:
                try:
                    await self._ask("DELETE", f"job/{each}")
                except GridFault as fault:
                    if not GONE.search(str(fault)):
                        faults.append(fault)

        async with trio.open_nursery() as nursery:
            for each in grid_ids:
                nursery.start_soon(cancel_one, each)
        if faults:
            raise faults[0]

    async def _cancel_all(self, grid_ids: list[str]) -> None:
        found = await self._ask("DELETE", "jobs/", {"jobs": grid_ids})
        statuses = found.get("status")
        for each in statuses if isinstance(statuses, list) else ():
            error = each.get("error") if isinstance(each, dict) else None
            text = error.get("string") if isinstance(error, dict) and error.get("code") else None
            if isinstance(text, str) and text and not GONE.search(text):
                raise fault_of("slurmrestd", text)

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Make a request, and read the answer. Raises GridFault."""
        answer, said = await self._exchange(method, path, body)
        if said:
            raise fault_of("slurmrestd", self._hide(said))
        return answer

    def _hide(self, text: str, more: Collection[str] = ()) -> str:
        return hide(text, (self._token, *more))

    async def _exchange(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        hidden: Collection[str] = (),
    ) -> tuple[Mapping[str, Any], str]:
        """Return an answer, and its errors. Raises GridFault."""
        timeout_s = self._settings.timeout_s
        try:
            with trio.fail_after(timeout_s):
                answer = await self._send(method, path, body, await self._headers())
        except trio.TooSlowError:
            text = f"slurmrestd timed out after {duration_text(timeout_s)}"
            raise GridFault(FailureClass.AGAIN, text) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            text = self._hide(f"{type(error).__name__}: {error}", hidden)
            raise GridFault(
                FailureClass.AGAIN, f"slurmrestd can't be reached at {self._rest.url}: {text[:200]}"
            ) from None
        # It may list all jobs of a large cluster: parsing must not block the loop.
        return await trio.to_thread.run_sync(read_answer, *answer)

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        rest = self._rest
        transport = httpx2.AsyncHTTPTransport(uds=rest.socket or None)
        base = "http://localhost" if rest.socket else rest.url
        url = f"{base}/slurm/{rest.api}/{path}"
        content = None if body is None else json.dumps(body).encode()
        async with (
            httpx2.AsyncClient(transport=transport, timeout=None, follow_redirects=False) as client,
            client.stream(method, url, headers=dict(headers), content=content) as response,
        ):
            return response.status_code, await _read(response)

    async def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._rest.user:
            headers["X-SLURM-USER-NAME"] = self._rest.user
        if self._rest.token_file:
            # It may be on a network file system that does not answer.
            self._token = await trio.to_thread.run_sync(
                _read_token, self._rest.token_file, abandon_on_cancel=True
            )
            headers["X-SLURM-USER-TOKEN"] = self._token
        return headers


def _read_token(name: str) -> str:
    try:
        token = read_token(str(Path(name).expanduser()))
    except ConfigError as error:
        remedy = "create one with `scontrol token`"
        raise GridFault(FailureClass.NEVER, f"{str(error).partition(';')[0]}: {remedy}") from None
    token = token.removeprefix("SLURM_JWT=")  # as `scontrol token` prints it
    if not token.isascii() or not token.isprintable() or " " in token:
        raise GridFault(
            FailureClass.NEVER, f"token_file {name} has no token: create one with `scontrol token`"
        )
    return token


async def _read(response: httpx2.Response) -> bytes:
    """Return the body of an answer; raise GridFault when it is too long."""
    body = bytearray()
    # Leaving the loop early would leave the library's generators to the garbage collector, under
    # which trio complains. Cancellation unwinds them.
    with trio.CancelScope() as enough:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                enough.cancel()
    if len(body) > ANSWER_BYTES_MAX:
        raise GridFault(
            FailureClass.AGAIN, f"the answer of slurmrestd exceeds {ANSWER_BYTES_MAX:,} bytes"
        )
    return bytes(body)
