"""Traces one call from `Client.submit` to a slot and back: the modules that its payload passes.

    trace_call ─► a client, a gateway, its agent and its slot, each a process of its own, traced by
                  the `sitecustomize` that this module writes ─► a file of steps each ─► CallPath

The client submits `bytes.upper(ARGUMENT)` to a site of one slot that has run a call before. The
profiler of each process (sys.setprofile) looks at every frame of our modules when it starts and
when it ends:

- A frame *carries* the call if one of its local variables, or the value that it returns, holds
  ARGUMENT or RESULT: itself, pickled or packed or not, or within containers and frozen dataclasses
  (messages, events, effects). A dataclass that changes is the book of a part; it holds the call if
  one of its own fields is the payload or a list of payloads, as in a bundle, and not if it knows
  something else that does, as a job or a worker. `self` does not count, nor do other objects: a
  part that keeps the call and is asked for something else is not passed it.
- A module is on the path if one of its frames carries the call, in whichever process. The
  constructor of a dataclass counts for the module of its class.
- A *return* is a frame that carries the call and is called from another module while its own module
  is further up the stack: a call-back into a module that the call has left. Frames further up that
  ran before the call (or its result) came to the process do not count, nor do coroutines: those are
  loops, which hand the call in. So an answer over the wire, or the end of a function, is no return.

`python -m tests.support.callpath` prints the path of a call, by process.
"""

import dataclasses
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ARGUMENT, RESULT = b"callpath:2b6c0e8d71f94a35", b"CALLPATH:2B6C0E8D71F94A35"
MARKS = (ARGUMENT, RESULT)
TEXTS = tuple(mark.decode() for mark in MARKS)
DEPTH = 8  # of values within values; ours have fewer levels
FOLDER_VARIABLE = "GRIDFED_CALLPATH"
PACKAGES = ("federation.", "gateway.", "policies.")
START = """import importlib.util as util
spec = util.spec_from_file_location("callpath", {path!r})
module = util.module_from_spec(spec)
spec.loader.exec_module(module)
module.install()
"""
CLIENT = """import sys
from federation import Client
address, argument = sys.argv[1], sys.argv[2].encode()
with Client(address) as client:
    assert client.submit(bytes.upper, b"first").result() == b"FIRST"
    assert client.submit(bytes.upper, argument).result() == argument.upper()
"""
PROCESSES = ("client", "gateway", "agent", "slot")
READY_S = 120.0


# --- in the traced processes -------------------------------------------------------------------


def mark_in(value: Any, depth: int = DEPTH) -> int | None:
    """Return the mark that a value holds, 0 for ARGUMENT and 1 for RESULT; None: neither."""
    if isinstance(value, memoryview):
        try:
            value = value.tobytes()
        except ValueError:  # it was released
            return None
    if isinstance(value, (bytes, bytearray)):
        return next((at for at, mark in enumerate(MARKS) if mark in value), None)
    if isinstance(value, str):
        return next((at for at, text in enumerate(TEXTS) if text in value), None)
    inside: Iterable[Any] = ()
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        inside = tuple(value)
    elif isinstance(value, dict):
        inside = (*value.keys(), *value.values())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, each.name, None) for each in dataclasses.fields(value)]
        if not value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            inside = [each for each in inside if isinstance(each, (bytes, list))]
            depth = min(depth, 2)
    if depth == 0:
        return None
    found = (mark_in(each, depth - 1) for each in inside)
    return next((at for at in found if at is not None), None)


class Tracer:
    """Writes each kind of step once: process, module, function, and the modules it came back by."""

    def __init__(self, folder: Path) -> None:
        words = sys.orig_argv
        started = [each for each in PROCESSES if f"gateway.worker.{each}" in " ".join(words)]
        self._process = "slot" if "gateway.worker.slot.slot" in words else ""
        self._process = self._process or (started or ["gateway" if "up" in words else "client"])[0]
        self._file = folder / f"{self._process}-{os.getpid()}"
        self._known: set[tuple[str, ...]] = set()
        # By mark: the frames that ran when it came to this process. They are kept, so that no
        # other frame gets the identity of one of them.
        self._loops: dict[int, list[FrameType]] = {}

    def note(self, frame: FrameType, event: str, returned: Any) -> None:
        """Take an event of the profiler."""
        module = self._module(frame) if event in ("call", "return") else ""
        if not module:
            return
        values = [value for name, value in frame.f_locals.items() if name != "self"]
        mark = mark_in([returned, *values])
        if mark is None:
            return
        if mark not in self._loops:
            self._loops[mark] = list(_stack(frame.f_back))
        step = (module, frame.f_code.co_qualname, *self._left_by(frame, module, mark))
        if step not in self._known:
            self._known.add(step)
            with self._file.open("a") as file:
                print(json.dumps([self._process, *step]), file=file)

    def _module(self, frame: FrameType) -> str:
        """Return the name of a frame's module if it is ours, else nothing."""
        name = frame.f_globals.get("__name__") or ""  # None while an interpreter ends
        if name == "__main__" and (spec := frame.f_globals.get("__spec__")) is not None:
            name = spec.name
        return name if name.startswith(PACKAGES) else ""

    def _left_by(self, frame: FrameType, module: str, mark: int) -> list[str]:
        """Return the modules between a frame and the one before it of its module, if any."""
        between: list[str] = []
        for caller in _stack(frame.f_back):
            if any(caller is each for each in self._loops[mark]):
                return []
            name = self._module(caller)
            if name == module and not caller.f_code.co_flags & inspect.CO_COROUTINE:
                return between
            if name and name not in between:
                between.append(name)
        return []


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def install() -> None:
    """Trace this process from now on, in all of its threads."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is not None:
        tracer = Tracer(Path(folder))
        threading.setprofile(tracer.note)
        sys.setprofile(tracer.note)


# --- in the test -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class CallPath:
    """The path of a call.

    Attributes:
        steps: process, module and function of the frames that carried it, in the order in which a
            process met them; the modules that it came back by follow.
    """

    steps: list[list[str]]

    @property
    def modules(self) -> list[str]:
        """The modules that carried the call, in the order in which they were met."""
        return list(dict.fromkeys(step[1] for step in self.steps))

    @property
    def returns(self) -> list[str]:
        """The functions by which the call came back to a module that it had left."""
        found = (
            f"{step[1]}.{step[2]} by {', '.join(reversed(step[3:]))}"
            for step in self.steps
            if len(step) > 3
        )
        return list(dict.fromkeys(found))


def trace_call() -> CallPath:
    """Run one call through processes of its own, and return the path that it took."""
    with tempfile.TemporaryDirectory(prefix="gridfed-callpath-") as name:
        folder = Path(name)
        (folder / "start").mkdir()
        (folder / "steps").mkdir()
        start = START.format(path=str(Path(__file__).resolve()))
        (folder / "start" / "sitecustomize.py").write_text(start)
        environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "start"),
            FOLDER_VARIABLE: str(folder / "steps"),
        }
        _run(folder, environment)
        steps = []
        for process in PROCESSES:
            for path in sorted((folder / "steps").glob(f"{process}-*")):
                steps += [json.loads(line) for line in path.read_text().splitlines()]
        return CallPath(steps)


def _run(folder: Path, environment: dict[str, str]) -> None:
    address = f"ipc://{folder / 'gateway.sock'}"
    python = [sys.executable, "-P"]
    gateway = subprocess.Popen(
        [
            *(*python, "-m", "gateway", "up", "--slots", "1", "--listen", address),
            *("--state", str(folder / "state"), "--json"),
        ],
        env=environment,
        stdout=subprocess.PIPE,
    )
    try:
        assert gateway.stdout is not None
        assert gateway.stdout.readline(), "the gateway did not start"
        subprocess.run(
            [*python, "-c", CLIENT, address, TEXTS[0]], env=environment, check=True, timeout=READY_S
        )
    finally:
        gateway.terminate()
        gateway.communicate(timeout=READY_S)


def main() -> None:
    """Print the path of a call."""
    path = trace_call()
    for step in path.steps:
        came = f"   [came back by {', '.join(reversed(step[3:]))}]" if len(step) > 3 else ""
        print(f"{step[0]:8} {step[1]:45} {step[2]}{came}")
    print(f"\n{len(path.modules)} modules, {len(path.returns)} returns")


if __name__ == "__main__":
    main()
