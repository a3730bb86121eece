"""Helpers that several tests need and no fixture gives."""

import contextlib
import datetime
import ipaddress
import os
import select
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.answers import answer
from support.forked import Forked

from federation import Client
from federation.messages import messages
from federation.payload import seal_call, seal_function
from federation.sessions.handshake import Dialogue, Opened, SharedSecret
from federation.sessions.nng import NngLink
from gateway.config.site import SiteConfig, check
from gateway.runtime.environment import RuntimeEnvironment
from gateway.site import Site

READY_S = 300.0
LOOK_MIN_S, LOOK_MAX_S = 0.005, 0.04
STOP_S = 200.0


class FailingClient(Client):
    """A client that drops its tasks when its test fails: they may never end.

    Its exit would wait for them, and the run of all tests with it.
    """

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        fails = isinstance(error, AssertionError | AttributeError | pytest.fail.Exception)
        super().__exit__(KeyboardInterrupt if fails else kind, error, trace)


class SetClock:
    """The time of day, which a test can set; it goes on from there, or stands."""

    def __init__(self, utc_s: float) -> None:
        self.set(utc_s)

    def __call__(self) -> float:
        """Seconds since 1970, UTC."""
        return time.time() + self.ahead_s if self._stood_s is None else self._stood_s

    def set(self, utc_s: float, *, stands: bool = False) -> None:
        """It is this late now; and stays so until it is set again, if it `stands`."""
        self.ahead_s = utc_s - time.time()
        self._stood_s = utc_s if stands else None


def written(path: Path) -> str:
    """The content of a file of another process; nothing until the file exists."""
    return path.read_text() if path.exists() else ""


def wait_until(
    condition: Callable[[], object], what: str = "the condition", at_most_s: float = 300.0
) -> None:
    """Look again and again until it holds; the longer it takes the more seldom.

    A look is often a request to a gateway, which takes CPU from the awaited work.
    """
    begun_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - begun_s
        assert waited_s < at_most_s, f"{what} did not come about"
        time.sleep(min(LOOK_MAX_S, max(LOOK_MIN_S, waited_s / 20)))


class Process:
    """A gridfed process of a test: its output is kept, and its end is certain."""

    def __init__(
        self,
        arguments: list[str],
        folder: Path,
        name: str,
        inside: Sequence[str] = (),  # a command that runs another, somewhere
        **environment: str,
    ) -> None:
        self.log = folder / f"{name}.log"
        whole = {**os.environ, **environment}
        self.process: subprocess.Popen[bytes] | Forked
        if inside:
            with self.log.open("ab") as out:
                self.process = subprocess.Popen(
                    [*inside, sys.executable, "-m", "gateway", *arguments],
                    stdout=subprocess.PIPE,
                    stderr=out,
                    stdin=subprocess.DEVNULL,
                    env=whole,
                    cwd=folder,
                )
        else:
            self.process = Forked("gateway.command:main", arguments, folder, self.log, whole)
        self.left: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> dict[str, Any]:
        """Read the line that says it is ready; fail with its log if it does not come."""
        assert self.process.stdout is not None
        lines: list[bytes] = []
        for line in self.process.stdout:
            lines.append(line)
            if line.rstrip() == b"}":
                found: dict[str, Any] = answer(b"".join(lines))
                return found
        raise AssertionError(f"it ended before it was ready:\n{self.text()}")

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_S)
        self._close()

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()

    def stop(self) -> int:
        """End it, politely at first; its children too.

        An object host with objects waits for the next gateway, and is `left`.
        """
        try:
            family = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        self.left = [each for each in family if _is_object_host(each)]
        family = [each for each in family if each not in self.left]
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        _gone, alive = psutil.wait_procs(family, timeout=50.0)
        for process in alive:
            process.kill()
        self._close()
        return code


def _is_object_host(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "gateway.objects.host" in process.cmdline()
    return False


class SiteProcess:
    """A gateway of a test, that can be killed and started again over the same state."""

    def __init__(self, folder: Path, slots: int, *extra: str, config: str = "") -> None:
        self.folder = folder
        self.address = f"ipc://{folder / 'gw.sock'}"
        self.state = folder / "state"
        self._slots = slots
        self._extra = list(extra)
        self._starts = 0
        self._workers: list[Process] = []
        self._left: list[psutil.Process] = []
        if config:
            (folder / "site.toml").write_text(config)
            self._extra += ["--config", str(folder / "site.toml")]
        self.start()

    def start(self) -> None:
        verb = ["up", "--slots", str(self._slots)] if self._slots else ["gateway"]
        arguments = [*verb, "--listen", self.address, "--state", str(self.state), "--json"]
        self._starts += 1
        self.gateway = Process(arguments + self._extra, self.folder, f"gateway{self._starts}")
        self.ready = self.gateway.wait_ready()

    def kill(self) -> None:
        self.gateway.kill()

    def text(self) -> str:
        """The gateway's output since its last start."""
        log = self.folder / f"gateway{self._starts}.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def add_worker(self, slots: int = 1, *extra: str) -> Process:
        arguments = ["worker", "--gateway", self.address, "--slots", str(slots), *extra]
        worker = Process(arguments, self.folder, f"worker{len(self._workers)}")
        self._workers.append(worker)
        return worker

    def client(self, **kwargs: Any) -> Client:
        return FailingClient(self.address, **kwargs)

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        self.gateway.stop()
        self._left += self.gateway.left

    def end(self) -> None:
        """Stop it for good: its object hosts as well."""
        self.stop()
        for process in self._left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(self._left, timeout=50.0)


class InnerSite:
    """A site in a thread of this process; a test can hold its parts."""

    def __init__(
        self, folder: Path, runtime: RuntimeEnvironment | None = None, **config: Any
    ) -> None:
        self.address = f"ipc://{folder / 'gw.sock'}"
        self.said: list[str] = []
        config = {"listen": (self.address,), "state": str(folder / "state"), **config}
        self.site = Site(check(SiteConfig(**config), 0.0), self.said.append, runtime)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        assert self._ready.wait(READY_S)

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._scope = nursery.cancel_scope
            try:
                await nursery.start(self.site.run)
            finally:
                self._ready.set()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run something in the site's own thread."""
        return trio.from_thread.run_sync(function, *arguments, trio_token=self._token)

    def stop(self) -> None:
        def end() -> None:
            if self.site.addresses:  # as Site.wind_up does: else local workers wait to be heard
                self.site.listener.goodbye("the gateway is shutting down", trio.current_time())
            self._scope.cancel()

        if self._thread.is_alive():
            self._token.run_sync_soon(end)
        self._thread.join(STOP_S)
        assert not self._thread.is_alive()


class Visitor:
    """A client that speaks the bare protocol, and does nothing by itself."""

    def __init__(self, address: str, name: str = "visitor") -> None:
        self.link = NngLink(address, lambda: None)
        wait_until(lambda: self.link.is_up, "the pipe")
        hello = messages.Hello([], "client", name, name, b"", "", 0, {})
        self.dialogue = Dialogue(hello=hello, credentials=SharedSecret(""), random_bytes=os.urandom)
        self.dialogue.connected(0.0)
        self.heard: list[Any] = []
        wait_until(lambda: any(isinstance(each, Opened) for each in self.hear()), "the welcome")

    def say(self, *said: Any) -> None:
        for message in said:
            self.dialogue.post(message)
        self.hear(0.0)

    def hear(self, wait_s: float = 0.02) -> list[Any]:
        """All received messages, including those that arrive now."""
        self.dialogue.flush(self.link.send, time.monotonic())
        select.select([self.link.fileno()], [], [], wait_s)
        for frame in self.link.receive():
            self.heard += self.dialogue.receive(frame, time.monotonic())
        self.dialogue.flush(self.link.send, time.monotonic())
        return self.heard

    def wait_for(self, kind: type[Any], what: str = "") -> Any:
        """The first message of a kind that is heard."""
        found: list[Any] = []

        def is_heard() -> bool:
            found[:] = [message for message in self.hear() if type(message) is kind]
            return bool(found)

        wait_until(is_heard, what or kind.__name__)
        return found[0]

    def open_job(
        self, function: Callable[..., Any], job: str, calls: list[Any], **changes: Any
    ) -> None:
        """Send a function, a job, and its calls of one argument each."""
        sealed = seal_function(function)
        fields = {
            "job": job,
            "name": "visit",
            "function": sealed.digest,
            "detached": False,
            "project": "p",
            "priority": 0.0,
            "tags": {},
            "timeout_s": None,
            "retries": 0,
            "max_cost_nanos": None,
            "currency": "",
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "prints": False,
            "again": False,
            "wishes": {},
            **changes,
        }
        self.say(
            messages.PutFunction(sealed.digest, sealed.body),
            messages.OpenJob(**fields),
            messages.Tasks(job, 0, [seal_call((call,), {}) for call in calls]),
            messages.CloseJob(job, len(calls), []),
        )

    def close(self) -> None:
        self.link.close()


class Relay:
    """Stands between a dialler and a listener on tcp, and counts the connections that were cut.

    The messages of the listener arrive `delay_s` later. With `at_port` it takes that of an earlier
    relay.
    """

    def __init__(self, address: str, delay_s: float = 0.0, at_port: int = 0) -> None:
        self.delay_s = delay_s
        scheme, _, place = address.partition("://")
        host, _, port = place.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", at_port))
        self.address = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cut = 0
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        carriers = []
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                break  # closed
            carriers.append(threading.Thread(target=self._carry, args=(near,)))
            carriers[-1].start()
        for carrier in carriers:
            carrier.join()

    def _carry(self, near: socket.socket) -> None:
        with contextlib.ExitStack() as ends:
            ends.enter_context(near)
            try:
                far = ends.enter_context(socket.create_connection(self._target))
            except OSError:
                return  # nobody listens any more: the dialler is refused as well
            self._open |= {near, far}
            to = {near: far, far: near}
            try:
                while True:
                    for end in select.select([near, far], [], [])[0]:
                        data = end.recv(1 << 16)
                        if not data:
                            return
                        if end is far:
                            time.sleep(self.delay_s)
                        to[end].sendall(data)
            except OSError:
                return  # reset by one of them
            finally:
                self._open -= {near, far}
                self.cut += 1

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._thread.is_alive():
            for end in list(self._open):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._thread.join(0.01)


def make_certificate(folder, name="gateway", dns_name="localhost"):
    """A self-signed leaf with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName(dns_name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=90))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    pem = certificate.public_bytes(encoding)
    both = folder / f"{name}.pem"
    both.write_bytes(
        pem
        + key.private_bytes(
            encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    alone = folder / f"{name}.crt"
    alone.write_bytes(pem)
    return str(both), str(alone)


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive of our own making; Python has known the filter since 3.11.4."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)
