"""A site's environment in one place, so that a simulation can replace it."""

import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from federation.clocks import MonoS, UtcS
from federation.errors import GridError
from federation.sessions.nng import NngPort
from federation.transport import Port, TlsSettings
from gateway.base.callers import Callers
from gateway.base.clocks import mono_now, utc_now
from gateway.config.site import SiteConfig, make_folder
from gateway.ledger.store.store import SqlStore, Store
from gateway.logs.limits import LogLimits
from gateway.logs.task_logs import TaskLogs


def open_sql_store(config: SiteConfig, **callbacks: Any) -> Store:
    """Return the store that a configuration names, and make its folder; as SqlStore."""
    make_folder(config.state_path)
    return SqlStore(config.database_url, **callbacks)


def open_task_logs(config: SiteConfig, say: Callable[[str], None]) -> TaskLogs | None:
    """Return the keeper of tasks' output, or None where none is kept, or none can be.

    A file that can't be opened is no reason to run nothing: the operator is told.
    """
    if not config.site_log_bytes:
        return None
    limits = LogLimits(config.task_log_bytes, config.job_log_bytes, config.site_log_bytes)
    try:
        make_folder(config.state_path)
        return TaskLogs(config.state_path, limits, say)
    except (sqlite3.Error, OSError, GridError) as error:
        say(f"logs: the output of tasks is not kept: {type(error).__name__}: {error}")
        return None


def open_nng_port(
    addresses: Sequence[str], on_pipe_change: Callable[[], None], tls: TlsSettings | None = None
) -> Port:
    """Return a port of sockets that tells the gateway's own user from slots; as NngPort."""
    return NngPort(addresses, on_pipe_change, tls, Callers().is_owner)


@dataclass(frozen=True, slots=True)
class RuntimeEnvironment:
    """The clock, randomness, the network and the disk.

    `mono_s` is monotonic, `utc_s` counts from 1970. `open_port(addresses, on_pipe_change, tls)` and
    `open_store(config, on_trouble=…, on_fatal=…)` are as NngPort and SqlStore,
    `open_logs(config, say)` as `open_task_logs`. `read(query, *args)`
    runs a query on the store that takes time.
    """

    mono_s: Callable[[], MonoS] = mono_now
    utc_s: Callable[[], UtcS] = utc_now
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    open_port: Callable[..., Port] = open_nng_port
    open_store: Callable[..., Store] = open_sql_store
    open_logs: Callable[..., TaskLogs | None] = open_task_logs
    read: Callable[..., Awaitable[Any]] = trio.to_thread.run_sync
