"""The actions of an alert: a body is posted, a program is run.

An action that can't be done raises ActionFailed. The caller decides whether to try again.
"""

import json
import os
import signal
import ssl
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import trio

from federation.words import duration_text
from gateway.config.alerts import AlertPace, Watched
from policies.costs.alerts import Alert, moment, printable

FORMAT: Final = 1  # of the body; it is only ever added to
TERMINATE_S: Final = 2.0  # from SIGTERM to SIGKILL
REST_S: Final = 1.0  # to read a program's last output
OUTPUT_BYTES_MAX: Final = 64 << 10
OUTPUT_CHARS_SHOWN: Final = 500
WORTH_RETRYING: Final = frozenset({408, 425, 429})  # and every 5xx

# Credentials are for no program that is run here.
_SECRETS: Final = ("GRIDFED_SECRET", "GRIDFED_TOKEN")


class ActionFailed(Exception):
    """An action could not be done; `again` is whether a retry may succeed."""

    def __init__(self, reason: str, *, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


class Action(Protocol):
    """A way of notifying people."""

    @property
    def name(self) -> str:
        """The name in the log: nothing secret is in it."""

    async def run(self, body: Mapping[str, Any]) -> None:
        """Do it once, in bounded time. Raises ActionFailed."""


def body_of(alert: Alert, site: str, *, is_test: bool = False) -> dict[str, Any]:
    """Return an alert as it is sent out; docs/configuration.md describes it."""
    return {
        "gridfed_alert": FORMAT,
        "test": is_test,
        "site": printable(site),
        "name": alert.mark.name,
        "kind": alert.kind,
        "severity": alert.severity.value,
        "key": alert.mark.key,
        "level": alert.mark.level,
        "at": moment(alert.at_s),
        "text": alert.text,
        "facts": dict(alert.facts),
    }


def actions_of(watched: Watched, pace: AlertPace) -> list[Action]:
    """Return the actions of an alert."""
    actions: list[Action] = [Webhook(url, pace) for url in watched.webhooks]
    if watched.command:
        actions.append(Command(watched.command, pace.command_timeout_s))
    return actions


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts the body as JSON. Certificates are verified; a redirect is not followed."""

    url: str
    pace: AlertPace

    @property
    def name(self) -> str:
        """The host alone: the path may be a credential for posting."""
        return f"webhook {urlsplit(self.url).hostname}"

    async def run(self, body: Mapping[str, Any]) -> None:
        """Run as in Action."""
        import httpx2  # only here: a gateway without webhooks need not load it

        # One limit for everything: those of the library begin anew with each byte.
        with trio.move_on_after(self.pace.webhook_timeout_s) as limit:
            try:
                async with (
                    httpx2.AsyncClient(verify=self._tls(), follow_redirects=False) as client,
                    client.stream("POST", self.url, json=body) as response,
                ):
                    status = response.status_code  # the rest of the response is not even read
            except (httpx2.HTTPError, OSError) as error:
                raise ActionFailed(f"unreachable ({_why(error)})") from None
            except (httpx2.InvalidURL, ValueError) as error:
                # Not its text, which has the address in it.
                reason = f"invalid address ({type(error).__name__})"
                raise ActionFailed(reason, again=False) from None
        if limit.cancelled_caught:
            raise ActionFailed(f"timed out after {duration_text(self.pace.webhook_timeout_s)}")
        if not 200 <= status < 300:
            what = "a redirect, which is not followed" if 300 <= status < 400 else "not 2xx"
            again = status >= 500 or status in WORTH_RETRYING
            raise ActionFailed(f"HTTP status {status}, {what}", again=again)

    def _tls(self) -> ssl.SSLContext | bool:
        """Return the authorities to trust: the system's, or those of a file alone."""
        if not self.pace.ca_file:
            return True
        return ssl.create_default_context(cafile=str(Path(self.pace.ca_file).expanduser()))


def _why(error: BaseException) -> str:
    """Return the cause of an error: the library's own text is often empty."""
    inner: BaseException | None = error
    while inner is not None and not str(inner):
        inner = inner.__cause__ or inner.__context__
    return printable(str(inner) if inner is not None else type(error).__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """Runs a program, never by a shell: the body on its standard input, some of it in variables.

    It gets a process group of its own, which has ended, all of it, when `run` returns or is
    cancelled. Exit code 0 is success.
    """

    argv: tuple[str, ...]
    timeout_s: float

    @property
    def name(self) -> str:
        """The program."""
        return f"command {printable(self.argv[0])}"

    async def run(self, body: Mapping[str, Any]) -> None:
        """Run as in Action."""
        try:
            process = await trio.lowlevel.open_process(
                list(self.argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_environment(body),
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ActionFailed(f"the command did not start ({reason})", again=False) from None
        said = bytearray()
        try:
            with trio.move_on_after(self.timeout_s) as limit:
                await _converse(process, json.dumps(body).encode(), said)
        finally:
            with trio.CancelScope(shield=True):
                await _end(process, politely=not _has_ended(process))
        text = said.decode(errors="replace").strip().replace("\n", " | ")
        told = f"; output: {printable(text, OUTPUT_CHARS_SHOWN)}" if text else ""
        if limit.cancelled_caught:
            raise ActionFailed(
                f"timed out after {duration_text(self.timeout_s)}, and was ended{told}"
            )
        if process.returncode:
            raise ActionFailed(f"exit code {process.returncode}{told}")


def _environment(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the gateway's environment without secrets, with variables for a short script."""
    environment = {key: each for key, each in os.environ.items() if key not in _SECRETS}
    for key in ("site", "name", "kind", "severity", "key", "level", "text"):
        environment[f"GRIDFED_ALERT_{key.upper()}"] = str(body[key])
    environment["GRIDFED_ALERT_TEST"] = str(int(body["test"]))
    return environment


async def _converse(process: trio.Process, told: bytes, said: bytearray) -> None:
    """Send a program its input, and read its output until it ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_tell, process.stdin, told)
        nursery.start_soon(_hear, process.stdout, said)
        await _exit_of(process)
        _signal(process, signal.SIGKILL)  # its child processes would keep its output open
        nursery.cancel_scope.deadline = trio.current_time() + REST_S


async def _tell(stdin: trio.abc.SendStream, told: bytes) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # it need not listen
        await stdin.send_all(told)
    await stdin.aclose()


async def _hear(stdout: trio.abc.ReceiveStream, said: bytearray) -> None:
    while len(said) < OUTPUT_BYTES_MAX and (
        part := await stdout.receive_some(OUTPUT_BYTES_MAX - len(said))
    ):
        said += part
    await stdout.aclose()  # a program that writes more is ended by it


async def _exit_of(process: trio.Process) -> None:
    """Wait until a program has ended. Its id is still taken then: no other process can have it."""
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _has_ended(process: trio.Process) -> bool:
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


async def _end(process: trio.Process, *, politely: bool) -> None:
    """End a program and all processes that it has started, before its id is given up."""
    if politely:
        _signal(process, signal.SIGTERM)
        with trio.move_on_after(TERMINATE_S):
            await _exit_of(process)
    _signal(process, signal.SIGKILL)
    await process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await stream.aclose()


def _signal(process: trio.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
