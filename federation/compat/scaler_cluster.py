"""A gateway with a pool of this host as a child process, as Scaler's SchedulerClusterCombo."""

import atexit
import contextlib
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

READY_S: Final = 60.0
STOP_S: Final = 30.0

_log = logging.getLogger("gridfed")
_combos: "dict[str, SchedulerClusterCombo]" = {}


class SchedulerClusterCombo:
    """Starts a gateway with slots on this host; `shutdown`, or the interpreter's exit, ends it.

    Needs gridfed[gateway]. Its books are in a temporary folder, and go with it.

    Args:
        n_workers: the number of slots; with none, calls wait for `gridfed worker`.
        address: the address to listen at; by default a Unix socket of this user alone.
        per_worker_capabilities: tags of the slots.
        protected: whether `Client.shutdown` is refused.
        settings: further arguments of Scaler's; ignored, with a log line.
    """

    def __init__(
        self,
        n_workers: int,
        address: str | None = None,
        *,
        per_worker_capabilities: Mapping[str, int] | None = None,
        protected: bool = True,
        **settings: Any,
    ) -> None:
        if settings:
            _log.info("%s: no meaning here", ", ".join(sorted(settings)))
        self.is_protected = protected
        self._folder = Path(tempfile.mkdtemp(prefix="gridfed-combo-"))
        self._address = str(address) if address else f"ipc://{self._folder / 'gateway.sock'}"
        verb = ["up", "--slots", str(n_workers)] if n_workers else ["gateway"]
        command = [sys.executable, "-P", "-m", "gateway", *verb]
        command += ["--listen", self._address, "--state", str(self._folder / "state"), "--json"]
        if per_worker_capabilities and n_workers:
            tags = (f"{name}={n}" if n > 0 else name for name, n in per_worker_capabilities.items())
            command += ["--tags", ",".join(tags)]
        self._log = self._folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        atexit.register(self.shutdown)
        try:
            self._wait_ready()
        except BaseException:
            self.shutdown()
            raise
        _combos[self._address] = self

    def _wait_ready(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.rstrip() == b"}":
                return
        said = self._log.read_text(errors="replace")[-2_000:]
        raise RuntimeError(f"the gateway has ended before it was ready:\n{said}")

    def get_address(self) -> str:
        """Return the address for clients."""
        return self._address

    def shutdown(self) -> None:
        """End the gateway and its slots. Idempotent."""
        atexit.unregister(self.shutdown)
        _combos.pop(self._address, None)
        process = self._process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder)


def shut_down_at(address: str) -> bool:
    """End the gateway of this process at an address; False if there is none, or it is protected."""
    found = _combos.get(address)
    if found is None or found.is_protected:
        return False
    found.shutdown()
    return True
