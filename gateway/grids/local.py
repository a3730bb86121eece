"""The local grid: one worker agent on this host, a child process of the gateway.

The agent dies with the gateway (PDEATHSIG), so that a restarted gateway never finds workers of its
predecessor using the same cores. When the agent dies it is restarted, with growing delays. An agent
that runs and answers no more (`silence`) is killed with all its processes before that.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import trio

from federation.address import SECRET_VARIABLE, TOKEN_VARIABLE
from federation.clocks import MonoS
from federation.words import duration_text
from gateway.base.child import wait_for_exit
from gateway.base.clocks import mono_now
from gateway.base.interpreter import run_module
from gateway.config.environments import OWN_USER
from gateway.config.site import PoolConfig
from gateway.grids.silence import LOOK_S, Silence
from gateway.worker.settings import TICKET_VARIABLE
from policies.placement.placement import show_tag

RESTART_MIN_S: Final = 0.5
RESTART_MAX_S: Final = 30.0
STEADY_S: Final = 60.0  # an agent that lived this long resets the back-off
STOP_S: Final = 15.0  # time for an agent to stop before it is killed


class LocalGrid:
    """Keeps one worker agent running for a local pool.

    Args:
        pool: the pool.
        address: where the agent dials us.
        credential: the agent's: a worker's pass (federation.sessions.task_passes).
        say: takes lines for the operator.
        tasks_dial: where its tasks dial us; empty: where the agent does.
        objects: returns the address of the object host, and the agent's ticket for it; empty:
            none. It is asked for each agent: a host that is not taken over has another.
        is_here: whether the worker of this name has a session; None: that is not watched.
        grace_s: how long a session outlives its pipe: a worker's lease.
    """

    def __init__(
        self,
        pool: PoolConfig,
        address: str,
        credential: str,
        say: Callable[[str], None],
        tasks_dial: str = "",
        objects: Callable[[], tuple[str, str]] = lambda: ("", ""),
        is_here: Callable[[str], bool] | None = None,
        grace_s: float = 0.0,
    ) -> None:
        self._is_here = is_here
        self._grace_s = grace_s
        self._silence = Silence(mono_now(), grace_s)
        self._state: Callable[[], str] = lambda: "its process has not started yet"
        self._objects = objects
        self._pool = pool
        self._address = address
        self._credential = credential
        self._tasks_dial = tasks_dial
        self._say = say

    async def run(self) -> None:
        """Run the agent, and restart it whenever it ends; until cancelled."""
        wait_s = RESTART_MIN_S
        while True:
            self._silence = Silence(mono_now(), self._grace_s)
            code = await self._run_once()
            lived_s = self._silence.lived_s(mono_now())
            wait_s = RESTART_MIN_S if lived_s > STEADY_S else min(2 * wait_s, RESTART_MAX_S)
            self._say(
                f"pool {self._pool.name}: the worker ended with code {code}, restarting in "
                f"{duration_text(wait_s)}"
            )
            self._state = _ended_text(code, mono_now() + wait_s)
            await trio.sleep(wait_s)

    @property
    def name(self) -> str:
        """The name of its worker."""
        return f"{self._pool.name}-{os.getpid()}"

    @property
    def pool(self) -> str:
        """The name of the pool."""
        return self._pool.name

    @property
    def why_no_worker(self) -> str:
        """Why the pool has no worker, as a part of a sentence; for while it has none."""
        return self._state()

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start an agent in this very thread: it is killed when the thread that started it ends."""
        command = run_module("gateway.worker.agent")
        command += ["--gateway", self._address, "--slots", str(self._pool.slots_wanted)]
        command += ["--pool", self._pool.name, "--name", self.name]
        command += ["--memory", str(self._pool.memory_bytes), "--die-with-parent"]
        command.append(str(os.getpid()))  # it may be gone before the agent can ask
        tags = ",".join(show_tag(name, value) for name, value in self._pool.tags.items())
        command += ["--tags", tags] if tags else []
        command += ["--slot-user", self._pool.user, "--tasks-dial", self._tasks_dial]
        command += ["--objects", self._objects()[0]]
        command += self._pool.agent_options
        environment = dict(os.environ)
        # it grants more than any worker needs, as does our token
        environment.pop(SECRET_VARIABLE, None)
        environment[TOKEN_VARIABLE] = self._credential
        environment[TICKET_VARIABLE] = self._objects()[1]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=self._folder,
            start_new_session=True,
        )

    @property
    def _folder(self) -> str | None:
        """The agent's working directory; None: ours.

        If we are root its slots may run as another user, who may be able to write to our directory:
        then an empty or relative entry of $PYTHONPATH would have the agent import that user's
        files.
        """
        return "/" if os.geteuid() == 0 and self._pool.user != OWN_USER else None

    async def _run_once(self) -> int:
        process = self._start()
        self._state = lambda: self._silence.text(process.pid)
        try:
            async with trio.open_nursery() as nursery:
                if self._is_here is not None:
                    nursery.start_soon(self._watch, process, self._is_here)
                code = await wait_for_exit(process)
                nursery.cancel_scope.cancel()
            return code
        finally:
            if process.poll() is None:
                await _stop(process)

    async def _watch(
        self, process: "subprocess.Popen[bytes]", is_here: Callable[[str], bool]
    ) -> None:
        """Kill the agent, with the processes of its slots, once it is silent for too long."""
        while not self._silence.look(mono_now(), is_here=is_here(self.name)):  # noqa: ASYNC110
            await trio.sleep(LOOK_S)
        silent = duration_text(self._silence.silent_s)
        self._say(
            f"pool {self._pool.name}: the worker's process {process.pid} runs, and has had no "
            f"session for {silent}, as if a task had stopped it: it is killed"
        )
        self._state = lambda: (
            f"its process {process.pid} did not answer and was killed, and has not ended yet"
        )
        _kill_all(process)


def _ended_text(code: int, again_at_s: MonoS) -> Callable[[], str]:
    """Return the text about an agent that has ended, as it is at the time of a question."""
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def text() -> str:
        left = duration_text(max(0.0, again_at_s - mono_now()))
        return f"its process {how}, and another starts in {left}: the gateway's log has its words"

    return text


def _kill_all(process: "subprocess.Popen[bytes]") -> None:
    """Kill an agent and its descendants: slots have sessions of their own, and may be stopped too.

    The processes are held before the first signal, so that none is a stranger with a reused number.
    """
    with contextlib.ExitStack() as held:
        below = []
        for pid in _descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                held.callback(os.close, descriptor)
                below.append(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for descriptor in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def _descendants(pid: int) -> Iterator[int]:
    """Yield the children of a process, and theirs."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)


async def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the agent: politely, then for good. Shielded, so that it never outlives us."""
    with trio.CancelScope(shield=True):
        process.terminate()
        with trio.move_on_after(STOP_S):
            await wait_for_exit(process)
        if process.poll() is None:
            _kill_all(process)
            await wait_for_exit(process)
