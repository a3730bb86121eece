"""Opens the pool controllers of pools from their configuration."""

import hashlib
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import make_url

from federation.address import is_home, is_local
from federation.clocks import UtcS
from federation.errors import GridError
from federation.sessions.task_passes import pass_of_pool
from gateway.base.secret_files import read_token
from gateway.base.values import ConfigError, SettingError
from gateway.config.pools import Delegated
from gateway.config.site import PoolConfig, SiteConfig, make_folder
from gateway.grids.contract import GridFault, GridKind, Launch
from gateway.grids.delegating import Home
from gateway.grids.delegation.engine_pool import EngineHome, EnginePool
from gateway.grids.kinds import find_kind, open_engine, open_grid, read_settings
from gateway.grids.scaling.pool_controller import Expect, PoolController
from gateway.scheduler.broker import Broker
from gateway.trust.keys import write_private

MARK_CHARS: Final = 12  # of a site's and a pool's name, each
INSTALL: Final = "install"  # in the state folder: a number that identifies this installation


def open_controllers(
    config: SiteConfig,
    addresses: Sequence[str],
    broker: Broker,
    *,
    expect: Expect,
    utc_s: Callable[[], UtcS],
    say: Callable[[str], None],
    reprice: Callable[[PoolConfig], None],
) -> list[PoolController]:
    """Open a pool controller for each pool whose workers a grid starts.

    Args:
        addresses: where this gateway listens.

    Raises:
        GridError: a grid, or a need of its pilots, is unusable.
    """
    controllers = []
    for pool in config.pools:
        if pool.scale is None:
            continue
        launch = launch_of(config, pool, addresses, say)
        try:
            kind = find_kind(pool.kind)
            assert isinstance(kind, GridKind), "delegating kinds do not scale"
            grid = open_grid(kind, pool.grid, launch)
        except SettingError as error:
            raise GridError(f"pool {pool.name}: {error}") from None
        if not kind.is_here and not pool.scale.dial and is_local(launch.address):
            launch.say(
                f"its pilots will dial {launch.address}, which only this host can reach: "
                "unless they run here, add an address for other hosts to listen in [site], "
                f'for example "tls+tcp://{_own_name()}:7461", or set dial in '
                "[pool.scale] (docs/grids.md)"
            )
        controllers.append(
            PoolController(
                *(pool, grid, broker),
                expect=expect,
                utc_s=utc_s,
                say=say,
                preferences=config.preferences,
                reprice=reprice,
            )
        )
    return controllers


def _own_name() -> str:
    """Return this host's name as others may know it: never `localhost`."""
    names = (socket.getfqdn(), socket.gethostname())
    return next((each for each in names if not each.startswith("localhost")), "HOST")


def open_engine_pools(
    config: SiteConfig, address: str, say: Callable[[str], None]
) -> list[EnginePool]:
    """Return the pool controllers of the processes of delegating pools, which dial us at
    `address`.
    """
    pools = []
    for pool in config.pools:
        if pool.is_delegated:
            mark = mark_of(config, pool)
            home = EngineHome(config.state_path / "pools" / mark, mark)
            make_folder(home.folder)
            secret = config.rules.secret
            credential = str(pass_of_pool(secret, pool.name)) if secret else ""
            pools.append(EnginePool(pool, home, address, credential, say))
    return pools


async def probe_engine(config: SiteConfig, pool: PoolConfig) -> dict[str, Any]:
    """Check whether a delegating pool's engine is reachable, beside the process that serves it.

    The result is that of PoolController.probe: steps and failure, and no pilot.
    """
    delegated, mark = pool.grid, mark_of(config, pool)
    assert isinstance(delegated, Delegated)
    kind = delegated.kind
    home = Home(pool.name, mark, config.state_path / "pools" / mark, lambda _line: None)
    try:
        words = await open_engine(kind, read_settings(kind, delegated.table), home).check()
    except (GridFault, SettingError) as fault:
        return {"steps": [], "failed": ["check", str(fault)], "pilot": ""}
    return {"steps": [["check", words]], "failed": None, "pilot": ""}


def launch_of(
    config: SiteConfig, pool: PoolConfig, addresses: Sequence[str], say: Callable[[str], None]
) -> Launch:
    """Return the owner of a pool's pilots, and their needs. Raises GridError."""
    scale = pool.scale
    assert scale is not None
    environment = {}
    if scale.token_file:
        try:
            environment["GRIDFED_TOKEN"] = read_token(scale.token_file)
        except ConfigError as error:
            raise GridError(f"pool {pool.name}: {error}") from None
    elif why := needs_token(config):
        raise GridError(f"pool {pool.name}: {why}")
    elif config.rules.secret:  # grants more than any pilot needs
        environment["GRIDFED_TOKEN"] = str(pass_of_pool(config.rules.secret, pool.name))
    if scale.ca_file:
        environment["GRIDFED_TLS_CA_FILE"] = scale.ca_file
    mark = mark_of(config, pool)
    folder = config.state_path / "pools" / mark
    make_folder(folder)
    return Launch(
        config.name,
        pool.name,
        mark,
        scale.dial or _far(pool.name, addresses),
        environment,
        folder,
        lambda text: say(f"pool {pool.name}: {text}"),
        scale.dial_for_s,
        tuple(pool.agent_options),
    )


def needs_token(config: SiteConfig) -> str:
    """Return why pilots without a token can't be admitted; empty if they can."""
    if not config.token_required:
        return ""
    return (
        "this site requires tokens, so its pilots need one: set token_file in [pool.scale] "
        "(`gridfed token --user NAME --scopes work:POOL`)"
    )


def check_dial(pool: PoolConfig, addresses: Sequence[str]) -> None:
    """Check that the pilots of a pool can be told an address to dial. Raises GridError."""
    if pool.scale is not None and not pool.scale.dial:
        _far(pool.name, addresses)


def mark_of(config: SiteConfig, pool: PoolConfig) -> str:
    """Return the mark of our pilots at a pool's grid: the same in each run, and unique.

    It begins with readable names, and ends with a digest that identifies our books: another gateway
    of the same name, on a shared grid, has other books. Raises GridError if it can't be recorded.
    """
    # A pool with a folder keeps the mark of that, and so its pilots. Older marks use the path of
    # the state (before 2026-11-23; two hosts may share that), or the number from before the books
    # were moved to a server.
    known = [str(config.state_path.absolute())]
    note = config.state_path / INSTALL
    if note.exists():
        known.append(_number(note))
    for ours in known:
        former = _mark(config.name, pool.name, ours)
        if (config.state_path / "pools" / former).is_dir():
            return former
    return _mark(config.name, pool.name, _books(config))


def _mark(site: str, pool: str, ours: str) -> str:
    digest = hashlib.sha256(f"{site}\0{pool}\0{ours}".encode()).hexdigest()[:12]
    return f"{_plain(site)}-{_plain(pool)}-{digest}"


def _books(config: SiteConfig) -> str:
    """Identify our books: those on a database server by its address, as the host may be a new one.

    Books in a file are identified by a number in the state's folder, drawn once.
    """
    if config.database and not config.database.startswith("sqlite"):
        url = make_url(config.database)
        return f"{url.host}:{url.port}/{url.database}"
    note = config.state_path / INSTALL
    try:
        if not note.exists():
            make_folder(config.state_path)
            write_private(note, secrets.token_hex(16).encode())
    except OSError as error:
        raise GridError(f"the id of this installation can't be stored: {error}") from None
    return _number(note)


def _number(note: Path) -> str:
    try:
        found = note.read_text().strip()
    except OSError as error:
        raise GridError(f"the id of this installation can't be stored: {error}") from None
    if not found:
        raise GridError(f"{note} is empty: pilots are found by its content; restore the file")
    return found


def _plain(name: str) -> str:
    return "".join(each if each.isascii() and each.isalnum() else "-" for each in name)[:MARK_CHARS]


def _far(pool: str, addresses: Iterable[str]) -> str:
    """Return the address that other hosts can dial, if there is one; else one of this host."""
    address = min(addresses, key=is_home)
    if address.partition("://")[2].startswith(("0.0.0.0:", "[::]:")):
        raise GridError(
            f"pool {pool}: {address} is a wildcard address, and pilots need an address that "
            "they can dial: set dial in [pool.scale]"
        )
    return address
