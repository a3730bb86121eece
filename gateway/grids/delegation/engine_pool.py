"""A pool of a delegating grid: the process that represents its engine, a child of the gateway.

It is kept like the worker of a local pool (gateway.grids.local): it dies with the gateway, and is
restarted when it ends, with growing delays.
"""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.address import SECRET_VARIABLE, TOKEN_VARIABLE
from gateway.base.interpreter import run_module
from gateway.config.pools import Delegated
from gateway.config.site import PoolConfig
from gateway.grids.local import LocalGrid


@dataclass(frozen=True, slots=True)
class EngineHome:
    """The folder of the process's files, and the mark that identifies it at its grid."""

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
        """Start the process, and send it its settings."""
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
        # it grants more than any worker needs, as does our token
        environment.pop(SECRET_VARIABLE, None)
        environment[TOKEN_VARIABLE] = self._credential
        process = subprocess.Popen(
            run_module("gateway.grids.delegation.delegate"),
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(json.dumps(told).encode() + b"\n")
        return process
