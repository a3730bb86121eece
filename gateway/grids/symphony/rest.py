"""The interface over HTTPS: SYMREST for sessions and tasks, EGO's REST for our number of slots.

No process of ours uses a library of IBM's. Logging on with user and password gives tokens (as
cookies) that last eight hours; they are renewed long before, and requested again when refused.

    GET  …/auth/login · GET …/auth/renew
    POST …/clientapi/session                {sessionName, sessionType, …, commonData}
    PUT  …/clientapi/session/tasks          {taskInputList: [{inputDataBlock}]}
    PUT  …/clientapi/session/taskresults    {taskOutputFormat}: tasks that have ended since
    DELETE …/clientapi/session/tasks        kill
    DELETE …/clientapi/session              close
"""

import base64
import binascii
import contextlib
import json
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx2
import trio

from federation.clocks import MonoS
from gateway.base.clocks import mono_now
from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.symphony.settings import SLOTS_MAX, SymphonySettings
from gateway.grids.symphony.ways import ConnectionCut, Gone, Heard, SymphonyOutcome, is_id, words

SYMREST: Final = "/platform/rest/symrest/v1"
EGO: Final = "/platform/rest/ego/v1"
RENEW_S: Final = 4 * 3600.0  # of the eight hours that a token lasts
REQUEST_S: Final = 60.0
CLOSE_S: Final = 5.0  # for closing sessions in the end,
CLOSE_AGAIN_S: Final = 0.2  # retried after this time
POLL_MIN_S: Final = 0.02  # if the server does not wait for results by itself
POLL_MAX_S: Final = 1.0
RESULTS_MAX: Final = 100  # of one answer
NAMED_MAX: Final = 100  # tasks requested by their ids at a time
ANSWER_BYTES_MAX: Final = 512 << 20
TOKEN_CHARS_MAX: Final = 4096
Query = Mapping[str, str | int]
NO_QUERY: Final[Query] = {}
FAULTS_MAX: Final = 5  # in a row of one session's polls


class RestClient:
    """One REST server: logs on, and again when its token has expired."""

    def __init__(self, url: str, prefix: str, settings: SymphonySettings) -> None:
        self._base = url.rstrip("/") + prefix
        self._settings = settings
        self._csrf = ""
        self._client: httpx2.AsyncClient | None = None
        self._log_on_lock = trio.Lock()

    async def log_on(self) -> None:
        """Get a token by user and password."""
        before = self._csrf
        async with self._log_on_lock:
            if self._csrf != before:
                return  # another task has just done so
            user, password = self._settings.login()
            answer = await self._send("GET", "/auth/login", auth=(user, password))
            self._csrf = _token(answer, "")

    async def keep_on(self) -> None:
        """Renew the token for as long as this runs.

        A server that is unreachable meanwhile ends nothing: the next request logs on, or fails with
        the reason.
        """
        while True:
            await trio.sleep(RENEW_S)
            try:
                answer = await self._send("GET", "/auth/renew")
                self._csrf = _token(answer, self._csrf)
            except GridFault:
                with contextlib.suppress(GridFault):
                    await self.log_on()

    async def ask(
        self, method: str, path: str, query: Query = NO_QUERY, body: Any = None
    ) -> dict[str, Any]:
        """Make a request; return its answer. Raises GridFault."""
        try:
            return await self._send(method, path, query, body)
        except _LoggedOff:
            await self.log_on()
            return await self._send(method, path, query, body)

    async def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _send(
        self,
        method: str,
        path: str,
        query: Query = NO_QUERY,
        body: Any = None,
        *,
        auth: tuple[str, str] | None = None,
    ) -> dict[str, Any]:
        client = self._client = self._client or self._open()
        given = {key: value for key, value in query.items() if value != ""}
        if self._csrf and auth is None:
            given["csrftoken"] = self._csrf
        what = f"{method} {path}"
        try:
            with trio.fail_after(REQUEST_S):
                async with client.stream(
                    method, self._base + path, params=given, json=body, auth=auth
                ) as response:
                    content = await _take(what, response)
        except (httpx2.HTTPError, OSError, trio.TooSlowError) as error:
            raise ConnectionCut(FailureClass.AGAIN, f"{what}: {_words(error)}") from None
        return _read(what, response.status_code, content)

    def _open(self) -> httpx2.AsyncClient:
        """Open a client. Raises GridFault when the authorities can't be read."""
        try:
            context = ssl.create_default_context(cafile=self._settings.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            text = f"ca_file {Path(self._settings.ca_file)}: {_words(error)}"
            raise GridFault(FailureClass.NEVER, text) from None
        return httpx2.AsyncClient(
            verify=context,
            follow_redirects=False,
            timeout=None,
            headers={"Accept": "application/json"},
        )


class _LoggedOff(ConnectionCut):
    """The token has expired."""


def _words(error: BaseException) -> str:
    """Return the text of an error, or of its cause: the outermost one is often empty."""
    at: BaseException | None = error
    while at is not None:
        if str(at):
            return f"{type(error).__name__}: {at}"[:500]
        at = at.__cause__ or at.__context__
    return type(error).__name__


def _token(answer: Mapping[str, Any], before: str) -> str:
    """Return the token of an answer, or the previous one. Raises GridFault."""
    token = answer.get("csrftoken", before)
    if not isinstance(token, str) or len(token) > TOKEN_CHARS_MAX or not token.isprintable():
        raise GridFault(FailureClass.AGAIN, "the csrftoken of SYMREST is not text")
    return token


async def _take(what: str, response: httpx2.Response) -> bytes:
    """Return an answer's bytes. Raises ConnectionCut before they fill all memory."""
    content = bytearray()
    async with aclosing(response.aiter_bytes()) as parts:
        async for part in parts:
            content += part
            if len(content) > ANSWER_BYTES_MAX:
                raise ConnectionCut(FailureClass.AGAIN, f"{what}: the answer is too large")
    return bytes(content)


def _read(what: str, status: int, content: bytes) -> dict[str, Any]:
    """Return an answer's fields. Raises GridFault with the failure class."""
    if status == 401:
        raise _LoggedOff(
            FailureClass.NEVER, f"{what}: access denied: check the name and the password"
        )
    text = f"{what}: status {status}: {content[:500].decode(errors='replace')}"
    if status >= 500 or 300 <= status < 400:  # a redirection is not from SYMREST itself
        raise ConnectionCut(FailureClass.AGAIN, text)
    try:
        answer = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        if status >= 400:  # from a starting server, or a proxy: SYMREST itself writes JSON
            raise ConnectionCut(FailureClass.AGAIN, text) from None
        raise GridFault(FailureClass.AGAIN, f"{what}: the answer is not JSON") from None
    if not isinstance(answer, dict):
        raise GridFault(FailureClass.AGAIN, f"{what}: the answer is not an object")
    if status >= 400:
        raise GridFault(FailureClass.AGAIN if status in (408, 429) else FailureClass.NEVER, text)
    return answer


class RestInterface:
    """See Way."""

    def __init__(self, settings: SymphonySettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._rest = RestClient(settings.url, SYMREST, settings)
        self._where: Query = {
            "applicationName": settings.application,
            "clusterId": settings.cluster,
        }
        self._polls: dict[str, trio.CancelScope] = {}
        self._failing: dict[str, MonoS] = {}  # sessions whose polls fail, since when
        self._nursery: trio.Nursery | None = None
        self._hear: Callable[[Heard], None] = lambda _heard: None
        self._leaves = False

    async def check(self) -> str:
        """See Way."""
        try:
            await self._rest.log_on()
        finally:
            await self._rest.close()
        return f"application {self._settings.application} by SYMREST at {self._settings.url}"

    async def run(
        self,
        hear: Callable[[Heard], None],
        leaves: bool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See Way."""
        self._hear = hear
        self._leaves = leaves
        try:
            await self._rest.log_on()
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._rest.keep_on)
                task_status.started()
        finally:
            self._nursery = None
            if not self._leaves:
                with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_S):
                    async with trio.open_nursery() as nursery:
                        for session in list(self._polls):
                            nursery.start_soon(self._close_at_last, session)
            with trio.CancelScope(shield=True):
                await self._rest.close()
            self._polls.clear()

    async def open(self, name: str, common: bytes) -> str:
        """See Way."""
        settings = self._settings
        wanted: dict[str, Any] = {
            "sessionName": name,
            "sessionType": settings.session_type,
            "commonData": [["SOAM_BYTES", base64.b64encode(common).decode()]],
        }
        more = {
            "sessionTag": settings.tag,
            "sessionPriority": settings.priority,
            "serviceName": settings.service,
            "resourceGroupFilter": settings.resource_group,
        }
        wanted |= {key: value for key, value in more.items() if value}
        answer = await self._rest.ask("POST", "/clientapi/session", self._where, wanted)
        session = _id(answer.get("sessionId"))
        if session is None:
            text = words(answer.get("errorMessage", "the answer has no session id"), 500)
            raise GridFault(FailureClass.AGAIN, f"can't open a session: {text}")
        self._listen(session)
        return session

    def leave(self) -> None:
        """See Way."""
        self._leaves = self._settings.take_up_s > 0

    async def reopen(self, session: str, tasks: Sequence[str]) -> bool:
        """See Way. The first poll shows whether it is open."""
        self._listen(session, tasks)
        return True

    def _listen(self, session: str, tasks: Sequence[str] = ()) -> None:
        assert self._nursery is not None
        self._polls[session] = trio.CancelScope()
        self._nursery.start_soon(self._poll, session, self._polls[session], deque(tasks))

    async def send(self, session: str, inputs: Sequence[bytes]) -> list[str | None]:
        """See Way."""
        tasks = [{"inputDataBlock": base64.b64encode(data).decode()} for data in inputs]
        answer = await self._rest.ask(
            "PUT",
            "/clientapi/session/tasks",
            {**self._where, "sessionId": session},
            {"taskInputList": tasks},
        )
        found: list[str | None] = [None] * len(inputs)
        for at, each in enumerate(_dicts(answer, "taskIds")[: len(found)]):
            if not each.get("errorMessage"):
                found[at] = _id(each.get("taskId"))
            if found[at] is None:
                self._say(f"SYMREST refused a task: {words(each.get('errorMessage'), 500)}")
        return found

    async def kill(self, session: str, tasks: Sequence[str]) -> None:
        """See Way."""
        await self._rest.ask(
            "DELETE",
            "/clientapi/session/tasks",
            {**self._where, "sessionId": session, "filter": ",".join(tasks)},
        )

    async def close(self, session: str) -> None:
        """See Way."""
        if session in self._polls:  # it stays there until it is closed, for the final attempt
            self._polls[session].cancel()
        try:
            await self._rest.ask(
                "DELETE", "/clientapi/session", {**self._where, "sessionId": session}
            )
        except GridFault as fault:
            if fault.failure_class is not FailureClass.NEVER or isinstance(fault, _LoggedOff):
                raise  # else there is none: it was closed, or aborted
        self._polls.pop(session, None)
        self._failing.pop(session, None)

    async def _close_at_last(self, session: str) -> None:
        """Close a session, with retries while there is time; else a later run closes it."""
        said = ""
        while True:
            try:
                await self.close(session)
                return
            except GridFault as fault:
                if str(fault) != said:
                    said = str(fault)
                    self._say(f"can't close session {session}: {said}")
                if fault.failure_class is FailureClass.NEVER:
                    return
            await trio.sleep(CLOSE_AGAIN_S)

    async def _poll(self, session: str, scope: trio.CancelScope, old: deque[str]) -> None:
        """Poll for ended tasks; the session is gone when that is refused.

        Tasks of a former connection (`old`) are requested by their ids: their outcome may have been
        in transit to that connection, and is given only once to a request for any.

        Raises GridFault when it fails for long: then the state of all sessions is unknown.
        """
        faults, wait_s = 0, POLL_MIN_S
        with scope:
            while True:
                try:
                    named = list(islice(old, NAMED_MAX))
                    outcomes = await self._fetch(session, named)
                    faults = 0
                    self._failing.pop(session, None)
                    old.rotate(-len(named))
                except GridFault as fault:
                    faults += 1
                    if self._is_gone(session, fault):
                        self._polls.pop(session, None)
                        self._hear(Gone(session, str(fault)))
                        return
                    if faults >= FAULTS_MAX:
                        self.leave()
                        raise
                    outcomes = []
                for outcome in outcomes:
                    self._hear(outcome)
                    if outcome.task in old:
                        old.remove(outcome.task)
                wait_s = POLL_MIN_S if outcomes else min(2 * wait_s, POLL_MAX_S)
                await trio.sleep(wait_s)

    def _is_gone(self, session: str, fault: GridFault) -> bool:
        """Whether a poll's fault means that the session has ended.

        A refused log-on says nothing of sessions. A single session whose polls fail for `take_up_s`
        must not end the connection of all others for ever.
        """
        if isinstance(fault, _LoggedOff):
            return False
        mono_s = mono_now()
        since_s = self._failing.setdefault(session, mono_s)
        is_gone = (
            fault.failure_class is FailureClass.NEVER
            or mono_s - since_s > self._settings.take_up_s > 0
        )
        if is_gone:
            del self._failing[session]
        return is_gone

    async def _fetch(self, session: str, tasks: Sequence[str]) -> list[SymphonyOutcome]:
        answer = await self._rest.ask(
            "PUT",
            "/clientapi/session/taskresults",
            {
                **self._where,
                "sessionId": session,
                "countMax": RESULTS_MAX,
                "filter": ",".join(tasks),
            },
            {"taskOutputFormat": ["SOAM_BYTES"]},
        )
        return [_outcome(session, each) for each in _dicts(answer, "taskResults")]


def _dicts(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return a list of objects in an answer, with {} for non-objects. Raises GridFault."""
    found = answer.get(key, [])
    if not isinstance(found, list):
        raise GridFault(FailureClass.AGAIN, f"{key} in the answer is not a list")
    return [each if isinstance(each, dict) else {} for each in found]


def _id(found: Any) -> str | None:
    """Return an id if it is valid: some servers write numbers."""
    text = str(found) if type(found) is int else found
    return text if is_id(text) else None


def _outcome(session: str, result: dict[str, Any]) -> SymphonyOutcome:
    task = _id(result.get("taskId")) or ""  # "" matches no task
    if result.get("errorMessage"):
        return SymphonyOutcome(session, task, is_ok=False, text=words(result["errorMessage"]))
    try:
        ((_, text),) = result["taskOutput"]
        return SymphonyOutcome(
            session, task, is_ok=True, data=base64.b64decode(text, validate=True)
        )
    except (KeyError, TypeError, ValueError, binascii.Error):
        return SymphonyOutcome(session, task, is_ok=False, text="the output is invalid")


class EgoRoom:
    """Returns a consumer's slots by EGO's REST: those it owns, or those it has if more.

    Not only those it has: EGO gives slots when there is work, and we get work when there are slots.
    """

    def __init__(self, settings: SymphonySettings) -> None:
        self._rest = RestClient(settings.ego_url, EGO, settings)
        self._consumer = settings.consumer
        self._is_on = False

    async def __call__(self) -> int:
        """Return the slots. Raises GridFault."""
        if not self._is_on:
            await self._rest.log_on()
            self._is_on = True
        answer = await self._rest.ask("GET", "/consumers", {"name": self._consumer})
        for each in _dicts(answer, "consumers"):
            if each.get("name") == self._consumer:
                figures = [each.get("deservedslots", 0), each.get("allocatedslots", 0)]
                if not all(type(figure) in (int, float) and figure >= 0 for figure in figures):
                    raise GridFault(
                        FailureClass.AGAIN, f"EGO returned invalid slots: {words(figures, 80)}"
                    )
                return int(min(max(figures), SLOTS_MAX))
        raise GridFault(FailureClass.NEVER, f"EGO knows no consumer {self._consumer}")

    async def close(self) -> None:
        """See AskRoom."""
        self._is_on = False
        await self._rest.close()
