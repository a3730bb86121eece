"""Gathers what is wrong at a running site, for `gridfed status`."""

from collections.abc import Iterator
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from federation.clocks import UtcS
from federation.errors import GridError
from gateway.api.context import SiteContext
from gateway.api.federation_desk import states_of
from gateway.api.views import problems
from gateway.api.views.problems import Problem
from gateway.checking.findings import Finding
from gateway.checking.kept import KeptFindings
from gateway.config.site import SiteConfig
from gateway.ledger.db.contracts.records import UnsettledDeliveries
from gateway.ledger.db.errors import StoreError
from gateway.scheduler.model.events import Drainer

# Findings about the configuration that turn up while a gateway runs.
_OF_FILES: Final = frozenset(
    {"certificate-expires", "keys-expire", "token-expires", "token", "token-file", "tls-file"}
)


async def find_problems(
    site: SiteContext, kept: KeptFindings, *, is_for_all: bool
) -> list[Problem]:
    """Return all problems; those with other sites, and of files, only to askers that see all."""
    found = [*problems.of_database(site.broker.trouble), *_of_pools(site)]
    if not is_for_all:
        return found
    utc_s = site.runtime.utc_s()
    findings: list[Finding] = await site.runtime.read(_expiring, kept, site.config, utc_s)
    found += [Problem(each.code, each.subject, each.text) for each in findings]
    peers = site.peers
    if peers is None:
        return found
    older = peers.older_books
    found += problems.of_partners(
        states_of(site),
        peers.registry.approved,
        site.exchange.purchases.site_backoff.sites,
        utc_s,
        peers.key_problems(),
        peers.registry.expelled_by,
        peers.registry.site,
    )
    behind = [older.why_not(each) for each in sorted(older.behind)]
    found += problems.of_books(behind, await _unsettled(site, utc_s))
    try:
        known = await peers.order("known", {})
    except GridError:
        return found  # a federation without keys, as in simulations
    found += problems.of_keys(str(known.get("rotation", "")), known.get("awaited", ()))
    return found


def _of_pools(site: SiteContext) -> Iterator[Problem]:
    for controller in site.controllers:
        yield from problems.of_growing_pool(controller.view())
    broker = site.broker
    workers: dict[str, int] = {}
    drained: dict[str, list[str]] = {}
    open_pools = set(broker.growth)  # they start others
    for worker in broker.workers.values():
        pool = worker.offer.pool
        workers[pool] = workers.get(pool, 0) + 1
        if not worker.job and Drainer.OPERATOR in worker.drained_by:
            drained.setdefault(pool, []).append(worker.name)
        else:
            open_pools.add(pool)
    whole = {name: each for name, each in drained.items() if name not in open_pools}
    yield from problems.of_drains(whole, is_whole_site=broker.draining)
    kinds = {pool.name: pool.kind for pool in site.config.pools}
    why = {grid.pool: grid.why_no_worker for grid in site.local_grids}
    yield from problems.of_own_pools(kinds, workers, why)


def _expiring(kept: KeptFindings, config: SiteConfig, utc_s: UtcS) -> list[Finding]:
    return [each for each in kept.of(config, utc_s) if each.code in _OF_FILES]


async def _unsettled(site: SiteContext, utc_s: UtcS) -> list[UnsettledDeliveries]:
    """Return the deliveries that have had no verdict for long; none while the store is away."""
    until_s = utc_s - problems.UNSETTLED_S
    try:
        found: list[UnsettledDeliveries] = await site.runtime.read(
            site.store.contracts.unsettled, until_s, problems.UNSETTLED_MAX
        )
    except (StoreError, SQLAlchemyError):
        return []  # its own problem is told
    return found
