"""A pool of a delegating grid: the process that speaks for its engine, a child of the gateway.

It is kept as the worker of a local pool is (gateway.grids.local): it dies with the gateway, and
when it ends it is started again, ever more slowly.
"""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.address import SECRET_VARIABLE, TOKEN_VARIABLE
from gateway.config import PoolConfig
from gateway.grids.delegating import Delegated
from gateway.grids.local import LocalGrid
from gateway.interpreter import run_module


@dataclass(frozen=True, slots=True)
class EngineHome:
    """Where the process keeps its files, and the mark that it is known by at its grid."""

    folder: Path
    mark: str


class EnginePool(LocalGrid):
    """Keeps the process of one delegating pool running."""

    def __init__(
        self,
        pool: PoolConfig,
        home: EngineHome,
        address: str,
        credential: str,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(pool, address, credential, say)
        self._home = home

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the process, and tell it what it is to do."""
        pool, delegated = self._pool, self._pool.grid
        assert isinstance(delegated, Delegated)
        told: dict[str, Any] = {
            "kind": delegated.kind.place,
            "table": dict(delegated.table),
            "gateway": self._address,
            "pool": pool.name,
            "name": f"{pool.name}-{os.getpid()}",
            "tags": dict(pool.tags),
            "mark": self._home.mark,
            "folder": str(self._home.folder),
            "parent": os.getpid(),
        }
        environment = dict(os.environ)
        environment.pop(SECRET_VARIABLE, None)  # good for what no worker should do, as is our token
        environment[TOKEN_VARIABLE] = self._credential
        process = subprocess.Popen(
            run_module("gateway.grids.delegate"),
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(json.dumps(told).encode() + b"\n")
        return process
