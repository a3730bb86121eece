"""The local grid: one worker agent on this host, a child process of the gateway.

The agent dies with the gateway (PDEATHSIG), so that a restarted gateway never finds workers of its
predecessor using the same cores. When the agent dies it is restarted, with growing delays.
"""

import os
import subprocess
from collections.abc import Callable
from typing import Final

import trio

from federation.address import SECRET_VARIABLE, TOKEN_VARIABLE
from federation.words import duration_text
from gateway.base.child import wait_for_exit
from gateway.base.clocks import mono_now
from gateway.base.interpreter import run_module
from gateway.config.environments import OWN_USER
from gateway.config.site import PoolConfig
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
        objects: the address of the object host, and the agent's ticket for it; empty: none.
    """

    def __init__(
        self,
        pool: PoolConfig,
        address: str,
        credential: str,
        say: Callable[[str], None],
        tasks_dial: str = "",
        objects: tuple[str, str] = ("", ""),
    ) -> None:
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
            started_s = mono_now()
            code = await self._run_once()
            lived_s = mono_now() - started_s
            wait_s = RESTART_MIN_S if lived_s > STEADY_S else min(2 * wait_s, RESTART_MAX_S)
            self._say(
                f"pool {self._pool.name}: the worker ended with code {code}, restarting in "
                f"{duration_text(wait_s)}"
            )
            await trio.sleep(wait_s)

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start an agent in this very thread: it is killed when the thread that started it ends."""
        command = run_module("gateway.worker.agent")
        command += ["--gateway", self._address, "--slots", str(self._pool.slots_wanted)]
        command += ["--pool", self._pool.name, "--name", f"{self._pool.name}-{os.getpid()}"]
        command += ["--memory", str(self._pool.memory_bytes), "--die-with-parent"]
        tags = ",".join(show_tag(name, value) for name, value in self._pool.tags.items())
        command += ["--tags", tags] if tags else []
        command += ["--slot-user", self._pool.user, "--tasks-dial", self._tasks_dial]
        command += ["--objects", self._objects[0]]
        command += self._pool.agent_options
        environment = dict(os.environ)
        # it grants more than any worker needs, as does our token
        environment.pop(SECRET_VARIABLE, None)
        environment[TOKEN_VARIABLE] = self._credential
        environment[TICKET_VARIABLE] = self._objects[1]
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
        try:
            return await wait_for_exit(process)
        finally:
            if process.poll() is None:
                await _stop(process)


async def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the agent: politely, then for good. Shielded, so that it never outlives us."""
    with trio.CancelScope(shield=True):
        process.terminate()
        with trio.move_on_after(STOP_S):
            await wait_for_exit(process)
        if process.poll() is None:
            process.kill()
            await wait_for_exit(process)
