"""Our service on Symphony's hosts: it passes a session's function and its tasks to an invoker.

Runs under the Python that `soamapi` was built for, with the standard library alone. The calls run
in the Python that $GRIDFED_PYTHON names, by gateway.grids.symphony.invoker; see there.
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


class Invoker:
    """The process that runs calls, from here."""

    def __init__(self) -> None:
        environment = dict(os.environ)
        # The Python of `soamapi` is another: what is set for that one would break this.
        for name in ("PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH"):
            environment.pop(name, None)
        environment["PYTHONSAFEPATH"] = "1"  # not whatever lies in the folder that we are in
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
        """Have it do something; its answer."""
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
        """End it."""
        self._process.kill()
        self._process.wait()


class GridfedService(soamapi.ServiceContainer):
    """What Symphony calls."""

    def __init__(self) -> None:
        soamapi.ServiceContainer.__init__(self)
        self._invoker = None  # type: Optional[Invoker]
        self._common = b""

    def on_create_service(self, context: "soamapi.ServiceContext") -> None:
        """Nothing yet: what starts too slowly here is ended by Symphony."""

    def on_session_enter(self, context: "soamapi.SessionContext") -> None:
        """A session: its common data is its function."""
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
        """A task. What fails in its calls is in its output: Symphony must not try those again.

        What fails *here* is raised, and tried again on another host.
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
        """The session has ended; the invoker stays for the next one."""

    def on_destroy_service(self) -> None:
        """The end."""
        self._drop()

    def _reach(self) -> "Invoker":
        """An invoker that knows the function: the one there is, or a new one."""
        if self._invoker is None:
            self._invoker = Invoker()
            self._invoker.ask(b"F", self._common)
        return self._invoker

    def _drop(self) -> None:
        if self._invoker is not None:
            self._invoker.close()
            self._invoker = None


if __name__ == "__main__":
    GridfedService().run()
