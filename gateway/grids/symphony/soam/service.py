"""Our service on Symphony's hosts: it passes a session's function and its tasks to an invoker.

It runs under the Python that `soamapi` was built for, with the standard library alone. The calls
run in the Python that $GRIDFED_PYTHON names, by gateway.grids.symphony.invoker; see there.
"""

import os
import subprocess
import sys
from typing import Optional  # noqa: F401 - in a comment

import soamapi
from soam_bytes import HEADER, Bytes

HERE = os.path.dirname(os.path.abspath(__file__))


class InvokerGone(Exception):
    """The invoker has ended, or can't run anything here; the text says why."""


class InvokerProcess:
    """The process that runs calls, as the service sees it."""

    def __init__(self) -> None:
        environment = dict(os.environ)
        # The settings for the Python of `soamapi` would break this other one.
        for name in ("PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH"):
            environment.pop(name, None)
        environment["PYTHONSAFEPATH"] = "1"  # ignores files in the working directory,
        environment["PYTHONNOUSERSITE"] = "1"  # and those that tasks left in the home folder
        library = os.path.join(HERE, "lib")
        if os.path.isdir(library):
            environment["PYTHONPATH"] = library
        if environment.get("GRIDFED_LIBRARY"):
            environment["PYTHONPATH"] = environment["GRIDFED_LIBRARY"]
        python = environment.get("GRIDFED_PYTHON") or sys.executable
        self._process = subprocess.Popen(
            [python, "-m", "gateway.grids.symphony.invoker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def ask(self, kind: bytes, data: bytes) -> bytes:
        """Send a request; return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(HEADER.pack(kind, len(data)) + data)
            self._process.stdin.flush()
        except OSError:
            raise InvokerGone("the invoker has ended") from None
        head = self._process.stdout.read(HEADER.size)
        if len(head) < HEADER.size:
            raise InvokerGone("the invoker has ended with code {}".format(self._process.wait()))
        answer, size = HEADER.unpack(head)
        found = self._process.stdout.read(size)
        if answer != b"O":
            raise InvokerGone(found.decode("utf-8", "replace"))
        return found

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


class GridfedService(soamapi.ServiceContainer):
    """The callbacks of Symphony."""

    def __init__(self) -> None:
        soamapi.ServiceContainer.__init__(self)
        self._invoker = None  # type: Optional[InvokerProcess]
        self._common = b""

    def on_create_service(self, context: "soamapi.ServiceContext") -> None:
        """Do nothing yet: Symphony kills a service that starts too slowly here."""

    def on_session_enter(self, context: "soamapi.SessionContext") -> None:
        """Begin a session: its common data is its function."""
        message = Bytes()
        context.populate_common_data(message)
        self._common = message.data
        try:
            if self._invoker is not None:
                self._invoker.ask(b"F", self._common)
            self._reach()
        except (InvokerGone, OSError) as error:
            self._drop()
            raise soamapi.FailureException(str(error)) from None

    def on_invoke(self, context: "soamapi.TaskContext") -> None:
        """Run a task. Failures of its calls are part of its output: Symphony must not retry those.

        A failure of *this host* is raised, and retried on another one.
        """
        message = Bytes()
        context.populate_task_input(message)
        try:
            output = self._reach().ask(b"I", message.data)
        except (InvokerGone, OSError) as error:
            self._drop()
            raise soamapi.FailureException(str(error)) from None
        context.set_task_output(Bytes(output))

    def on_session_leave(self) -> None:
        """End the session; the invoker stays for the next one."""

    def on_destroy_service(self) -> None:
        """End the service."""
        self._drop()

    def _reach(self) -> "InvokerProcess":
        """Return an invoker that knows the function: the present one, or a new one."""
        if self._invoker is None:
            self._invoker = InvokerProcess()
            self._invoker.ask(b"F", self._common)
        return self._invoker

    def _drop(self) -> None:
        if self._invoker is not None:
            self._invoker.close()
            self._invoker = None


if __name__ == "__main__":
    GridfedService().run()
