"""Answers requests about drains: of the whole site, of the workers of a name, of a host.

Drains of hosts and workers are on disk before the answer says so, and hold until they are ended:
for workers that come back, and after a restart of the gateway. The drain of the site ends with the
gateway's process.
"""

import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from federation.words import count
from gateway.api.context import BadQuestion, SiteContext
from gateway.base.details import Details
from gateway.ledger.db.drains.records import DrainEnded, DrainKept
from gateway.scheduler.model.events import DrainAsked, DrainKind, DrainOrdered
from gateway.scheduler.model.intake import HOST_CHARS_MAX
from gateway.scheduler.model.jobs import Worker
from gateway.scheduler.quotas.drains import DRAINS_MAX, host_names
from gateway.trust.rights import Asker


async def drain(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Drain the workers of a name, or the whole site if no `worker` is named; or end that."""
    on, name = details.get("on", True) is True, details.get("worker", "")
    if not name:
        site.expect(DrainAsked(0, on))
        return {"site": site.config.name, "draining": on}
    if not isinstance(name, str):
        raise BadQuestion("worker must be text")
    found = [each for each in _own(site) if each.name == name]
    if not found and not site.broker.drains.has(DrainKind.WORKER, name):
        raise BadQuestion(f"no worker {name[:60]!r} found{_near(_own(site), name)}")
    await _order(site, asker, DrainOrdered(DrainKind.WORKER, name, on))
    return {"worker": name, "workers": len(found), "draining": on}


async def drain_host(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Drain all workers of a host, of every pool, present and to come; or end that."""
    on, name = details.get("on", True) is True, details.get("host")
    if not isinstance(name, str) or not 0 < len(name) <= HOST_CHARS_MAX or not name.isprintable():
        raise BadQuestion(f"host must be 1 to {HOST_CHARS_MAX} printable characters")
    name = name.lower().rstrip(".")
    drains = site.broker.drains
    if not on and not drains.has(DrainKind.HOST, name):
        known = [each.name for each in await _kept(site) if each.kind == DrainKind.HOST]
        said = ", ".join(known[:20]) if known else "none"
        raise BadQuestion(f"host {name[:60]!r} is not drained; drained hosts: {said}")
    found = [each for each in _own(site) if name in host_names(each.host)]
    await _order(site, asker, DrainOrdered(DrainKind.HOST, name, on))
    return {"host": name, "workers": len(found), "draining": on}


async def drains(site: SiteContext, _asker: Asker, _details: Details) -> Any:
    """List the drains of hosts and workers that are in force, with their workers here now."""
    rows = []
    for each in await _kept(site):
        covered = [
            worker
            for worker in _own(site)
            if each.name
            in (host_names(worker.host) if each.kind == DrainKind.HOST else (worker.name,))
        ]
        rows.append(
            {
                "kind": each.kind,
                "name": each.name,
                "by": each.by,
                "since_s": each.at_s,
                "workers": len(covered),
                "in_flight": sum(worker.in_flight for worker in covered),
            }
        )
    return rows


VERBS = {"drain": drain, "drain_host": drain_host, "drains": drains}


def _near(workers: Iterable[Worker], name: str) -> str:
    """Return what was meant by a name that no worker has, as the end of a sentence."""
    known = list(workers)
    wanted = name.lower().rstrip(".")
    if any(wanted in host_names(each.host) for each in known):
        return f": it is a host: `gridfed drain --host {shlex.quote(name)}`"
    of_pool = sorted({each.name for each in known if each.offer.pool == name})
    if of_pool:
        more = f" and {len(of_pool) - 3:,} more" if len(of_pool) > 3 else ""
        return (
            f": it is a pool, with {count(len(of_pool), 'worker')}: {', '.join(of_pool[:3])}{more}"
        )
    near = get_close_matches(name, sorted({each.name for each in known}), n=1)
    if near:
        return f": did you mean {near[0]!r}?"
    pools = get_close_matches(name, sorted({each.offer.pool for each in known}), n=1)
    if pools:
        return f": did you mean the pool {pools[0]!r}? `gridfed workers` lists its workers"
    return ": `gridfed workers` lists them" if known else ": no worker is here"


async def _order(site: SiteContext, asker: Asker, event: DrainOrdered) -> None:
    if event.on and len(site.broker.drains) >= DRAINS_MAX:
        raise BadQuestion(
            f"{DRAINS_MAX:,} drains are in force: end some with `gridfed drain --resume`"
        )
    utc_s = site.runtime.utc_s()
    kept = DrainKept(event.target, event.name, asker.user, utc_s)
    await site.harden(kept if event.on else DrainEnded(event.target, event.name))
    site.expect(event)


async def _kept(site: SiteContext) -> list[DrainKept]:
    found: list[DrainKept] = await site.read(site.store.drains.all)
    return found


def _own(site: SiteContext) -> list[Worker]:
    """Return the workers of this site: contracts with other sites act as workers, too."""
    return [each for each in site.broker.workers.values() if not each.job]
