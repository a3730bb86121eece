"""Asks the grids of pools: whether they answer, and would take orders as the pool is configured."""

import tempfile
from pathlib import Path
from typing import Final

import trio

from federation.words import duration_text
from gateway.base.toml_lines import Path as Place
from gateway.base.values import SettingError
from gateway.checking.findings import FindingList
from gateway.config.pools import Delegated, PoolConfig
from gateway.config.site import SiteConfig
from gateway.grids.contract import FailureClass, GridFault, GridKind, Launch
from gateway.grids.delegating import Home
from gateway.grids.kinds import find_kind, open_engine, open_grid, read_settings

ASK_S: Final = 60.0  # the time limit of one grid
MARK: Final = "gridfed-check"  # of pilots that are never started
NOWHERE: Final = "tcp://127.0.0.1:1"  # where they would dial


async def ask_grids(
    config: SiteConfig, findings: FindingList, ask_s: float = ASK_S
) -> dict[str, str]:
    """Ask the grids of all pools at once; return what each says of itself, by pool."""
    told: dict[str, str] = {}

    async def ask(pool: PoolConfig, place: Place) -> None:
        subject = f"[[pool]] {pool.name}, [pool.{pool.kind}]"
        with tempfile.TemporaryDirectory(prefix="gridfed-check-") as folder:
            try:
                with trio.fail_after(ask_s):
                    told[pool.name] = await _ask(config, pool, Path(folder))
            except trio.TooSlowError:
                text = f"the grid did not answer within {duration_text(ask_s)}"
                findings.error("grid-silent", subject, text, place)
            except SettingError as error:
                findings.error("grid", subject, str(error), place, stops=True)
            except GridFault as fault:
                if fault.failure_class is FailureClass.NEVER:
                    findings.error("grid", subject, str(fault), place)
                else:
                    findings.warn("grid-now", subject, f"not at this time: {fault}", place)

    async with trio.open_nursery() as nursery:
        for at, pool in enumerate(config.pools):
            if pool.is_grown or pool.is_delegated:
                nursery.start_soon(ask, pool, ("pool", at, pool.kind))
    return told


async def _ask(config: SiteConfig, pool: PoolConfig, folder: Path) -> str:
    if isinstance(pool.grid, Delegated):
        kind, table = pool.grid.kind, pool.grid.table
        home = Home(pool.name, MARK, folder, lambda _line: None)
        return await open_engine(kind, read_settings(kind, table), home).check()
    found = find_kind(pool.kind)
    assert isinstance(found, GridKind), "only these have a [pool.scale]"
    launch = Launch(config.name, pool.name, MARK, NOWHERE, {}, folder, lambda _line: None)
    return await open_grid(found, pool.grid, launch).check()
