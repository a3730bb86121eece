"""From the configuration of pools to their keepers: what their grids are told at the start."""

import hashlib
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import make_url

from federation.address import is_home, is_local
from federation.errors import GridError
from federation.task_passes import pass_of_pool
from gateway.broker import Broker
from gateway.config import PoolConfig, SiteConfig, make_folder
from gateway.grids.contract import GridFault, GridKind, Launch
from gateway.grids.delegating import Delegated, Home
from gateway.grids.engine_pool import EngineHome, EnginePool
from gateway.grids.keeper import Expect, Keeper
from gateway.grids.kinds import find_kind, open_engine, open_grid, read_settings
from gateway.keys import write_private
from gateway.knobs import ConfigError, KnobError
from gateway.secret_files import read_token

MARK_CHARS: Final = 12  # of a site's and a pool's name, each
INSTALL: Final = "install"  # of the state folder: a number, which installation this is


def open_keepers(
    config: SiteConfig,
    addresses: Sequence[str],
    broker: Broker,
    *,
    expect: Expect,
    utc_s: Callable[[], float],
    say: Callable[[str], None],
    reprice: Callable[[PoolConfig], None],
) -> list[Keeper]:
    """A keeper for each pool whose workers a grid starts.

    Args:
        addresses: where this gateway listens.

    Raises:
        GridError: a grid, or something that its pilots need, can't be used.
    """
    keepers = []
    for pool in config.pools:
        if pool.scale is None:
            continue
        launch = launch_of(config, pool, addresses, say)
        try:
            kind = find_kind(pool.kind)
            assert isinstance(kind, GridKind), "who is handed bundles does not grow"
            grid = open_grid(kind, pool.grid, launch)
        except KnobError as error:
            raise GridError(f"pool {pool.name}: {error}") from None
        if not kind.is_here and not pool.scale.dial and is_local(launch.address):
            launch.say(
                f"its pilots will dial {launch.address}, which only this host can: unless they run "
                f'here, add to listen in [site] an address for others, as in "tls+tcp://'
                f'{socket.getfqdn()}:7461", or set dial in [pool.scale] (docs/grids.md)'
            )
        keepers.append(
            Keeper(
                *(pool, grid, broker),
                expect=expect,
                utc_s=utc_s,
                say=say,
                house=config.house,
                reprice=reprice,
            )
        )
    return keepers


def open_engine_pools(
    config: SiteConfig, address: str, say: Callable[[str], None]
) -> list[EnginePool]:
    """What keeps the process of each delegating pool, which dials us at `address`."""
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
    """Look whether a delegating pool's engine can be reached, beside the process that serves it.

    As Keeper.probe answers: what went well, what did not, and no pilot.
    """
    delegated, mark = pool.grid, mark_of(config, pool)
    assert isinstance(delegated, Delegated)
    kind = delegated.kind
    home = Home(pool.name, mark, config.state_path / "pools" / mark, lambda _line: None)
    try:
        words = await open_engine(kind, read_settings(kind, delegated.table), home).check()
    except (GridFault, KnobError) as fault:
        return {"steps": [], "failed": ["check", str(fault)], "pilot": ""}
    return {"steps": [["check", words]], "failed": None, "pilot": ""}


def launch_of(
    config: SiteConfig, pool: PoolConfig, addresses: Sequence[str], say: Callable[[str], None]
) -> Launch:
    """For whom a pool's grid runs pilots, and what these need. Raises GridError."""
    scale = pool.scale
    assert scale is not None
    environment = {}
    if scale.token_file:
        try:
            environment["GRIDFED_TOKEN"] = read_token(scale.token_file)
        except ConfigError as error:
            raise GridError(f"pool {pool.name}: {error}") from None
    elif config.token_required:
        raise GridError(
            f"pool {pool.name}: this site demands tokens, so its pilots need one: set token_file "
            "in [pool.scale] (`gridfed token --scope work`)"
        )
    elif config.rules.secret:  # which is good for much that no pilot should do
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


def mark_of(config: SiteConfig, pool: PoolConfig) -> str:
    """What a pool's grid knows our pilots by: the same in each life, and nobody else's.

    It begins with names for people, and ends by which books are ours: another gateway of the same
    name, on a grid that both use, has others. Raises GridError where that can't be noted down.
    """
    # A pool that has a folder is known by it, and so are its pilots: by the path of the state, as
    # all were before 2026-11-23 (two hosts may share that), or by the number of before the books
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
    """Which books are ours. A database server's go by its address, for the host may be a new one.

    Where they are a file, by a number in the state's folder, drawn once.
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
        raise GridError(f"can't note down which installation this is: {error}") from None
    return _number(note)


def _number(note: Path) -> str:
    try:
        found = note.read_text().strip()
    except OSError as error:
        raise GridError(f"can't note down which installation this is: {error}") from None
    if not found:
        raise GridError(f"{note} is empty: pilots are found by what it says; put it back")
    return found


def _plain(name: str) -> str:
    return "".join(each if each.isascii() and each.isalnum() else "-" for each in name)[:MARK_CHARS]


def _far(pool: str, addresses: Iterable[str]) -> str:
    """The address that other hosts can dial, if there is one; else one of this host."""
    address = min(addresses, key=is_home)
    if address.partition("://")[2].startswith(("0.0.0.0:", "[::]:")):
        raise GridError(
            f"pool {pool}: {address} is every address of this host, and pilots need one that they "
            "can dial: set dial in [pool.scale]"
        )
    return address
