"""What several tests need and no fixture gives."""

import datetime
import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from federation import Client

READY_S = 30.0
STOP_S = 20.0


def wait_until(
    condition: Callable[[], object], what: str = "the condition", at_most_s: float = 40.0
) -> None:
    """Look again and again until it holds."""
    until_s = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < until_s, f"{what} did not come about"
        time.sleep(0.005)


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
        self._out = self.log.open("ab")
        self.process = subprocess.Popen(
            [*inside, sys.executable, "-m", "gateway", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._out,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            cwd=folder,
        )

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
                found: dict[str, Any] = json.loads(b"".join(lines))
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
        self._out.close()

    def stop(self) -> int:
        """End it, politely at first; its children too."""
        try:
            family = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        _gone, alive = psutil.wait_procs(family, timeout=5.0)
        for process in alive:
            process.kill()
        self._close()
        return code


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

    def add_worker(self, slots: int = 1, *extra: str) -> Process:
        arguments = ["worker", "--gateway", self.address, "--slots", str(slots), *extra]
        worker = Process(arguments, self.folder, f"worker{len(self._workers)}")
        self._workers.append(worker)
        return worker

    def client(self, **kwargs: Any) -> Client:
        return Client(self.address, **kwargs)

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        self.gateway.stop()


def make_certificate(folder, name="gateway"):
    """A self-signed leaf with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
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
