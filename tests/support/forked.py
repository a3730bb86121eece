"""Processes of gridfed that begin with its modules loaded: forked from a server that has them.

They are processes like any other, with signals and pipes of their own; but that one ends without
an interpreter that is torn down. Importing the modules takes a second of CPU, which a test would
pay for each gateway that it starts. The long way is taken where the end of an interpreter matters
(`anew`), by the examples, and by programs that start in an environment of their own.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import TimeoutExpired
from typing import BinaryIO
from unittest import mock

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["support.forked_warm"])


def _start_server() -> None:
    """Start it, if it does not run; it finds modules where its environment says, and only there."""
    with mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1])):
        forkserver.ensure_running()


class Forked:
    """The part of subprocess.Popen that is used here.

    Args:
        main: module and function that it runs, as in "gateway.cli.main:cli".
        arguments: those of its command line.
        folder: where it runs.
        log: its stderr is appended to this file.
        environment: all of it.
        is_heard: `stdout` is a pipe, to be closed; else that goes to the log too.
    """

    def __init__(
        self,
        main: str,
        arguments: list[str],
        folder: Path,
        log: Path,
        environment: Mapping[str, str],
        *,
        is_heard: bool = True,
    ) -> None:
        self.stdout: BinaryIO | None = None
        theirs = None
        if is_heard:
            out, theirs = _context.Pipe(duplex=False)
            self.stdout = os.fdopen(os.dup(out.fileno()), "rb")
            out.close()
        self._process = _context.Process(
            target=_begin,
            args=(main, arguments, str(folder), str(log), dict(environment), theirs),
            daemon=True,  # whatever a test forgets is ended with the tests
        )
        _start_server()
        self._process.start()
        if theirs is not None:
            theirs.close()
        assert self._process.pid is not None
        self.args = arguments
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, below zero the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same, as a call."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):  # it ends at this very moment
                os.kill(self.pid, number)

    def kill(self) -> None:
        """As a power cut would."""
        self.send_signal(signal.SIGKILL)


def _begin(
    main: str,
    arguments: list[str],
    folder: str,
    log: str,
    environment: dict[str, str],
    out: Connection | None,
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None  # the server's own, by its environment
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
        os.dup2(file.fileno() if out is None else out.fileno(), 1)
    if out is not None:
        out.close()
    sys.argv = ["gridfed", *arguments]
    module, _, function = main.partition(":")
    try:
        getattr(import_module(module), function)()
    finally:
        atexit._run_exitfuncs()  # the server ends its children without
