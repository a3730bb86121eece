"""The problems of a site, as sentences that say how to mend them; for `gridfed status`. Pure.

Each function takes the state of a part of the site, and yields its problems. A problem that passes
by itself is listed while it lasts: it explains to an operator why work waits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from types import MappingProxyType
from typing import Any, Final

from federation.clocks import UtcS
from federation.words import count, duration_text
from gateway.ledger.db.contracts.records import UnsettledDeliveries
from policies.placement.brokering import BackoffEnd

UNSETTLED_S: Final = 3_600.0  # a delivery without a verdict for so long is told
UNSETTLED_MAX: Final = 10_000  # more are not counted
UP: Final = frozenset({"up", "here", "left"})  # states of members that are no problem


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem.

    Attributes:
        code: for scripts to compare, as in "grid-unreachable".
        subject: what it is about, as in "pool hpc".
        text: a sentence, with what to do.
    """

    code: str
    subject: str
    text: str

    def to_plain(self) -> dict[str, str]:
        """Return it as plain data."""
        return asdict(self)


def of_database(trouble: str) -> Iterator[Problem]:
    """Yield the problem of a database that can't be written; `trouble` is empty if it can."""
    if trouble:
        text = (
            f"the database can't be written: {trouble}; results wait until it can: check its disk "
            "and its server"
        )
        yield Problem("database", "database", text)


def of_growing_pool(view: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of a pool whose workers a grid starts, by `PoolController.view`."""
    pool, test = view["pool"], f"`gridfed pool test {view['pool']}`"
    subject = f"pool {pool}"
    if view["trouble"]:
        text = (
            f"the grid of pool {pool} can't be asked: {view['trouble']}; check that it runs, "
            f"with {test}"
        )
        yield Problem("grid-unreachable", subject, text)
    if view["barred"]:
        text = (
            f"the grid refuses the pilots of pool {pool}, so none is started: {view['barred']}; "
            f"fix the cause, then run `gridfed reload` or {test}"
        )
        yield Problem("starts-refused", subject, text)
    elif view["failures"]:
        starts = count(view["failures"], "start")
        text = (
            f"{starts} in a row failed in pool {pool}, the last: {view['failed']}; try again "
            f"with {test}"
        )
        yield Problem("starts-fail", subject, text)


def of_own_pools(
    kinds: Mapping[str, str], workers: Mapping[str, int], why: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield the pools whose workers this gateway starts on its host, and that have none.

    Args:
        kinds: the kind of each pool.
        workers: how many workers each has.
        why: why a pool has none, as its grid knows it.
    """
    for pool, kind in kinds.items():
        if kind == "local" and not workers.get(pool):
            text = f"pool {pool} has no worker: {why.get(pool, 'the gateway has not started it')}"
            yield Problem("no-worker", f"pool {pool}", text)


def of_drains(drained: Mapping[str, Sequence[str]], *, is_whole_site: bool) -> Iterator[Problem]:
    """Yield the drains by which this site, or a whole pool of it, takes nothing new.

    Args:
        drained: by pool, the workers of pools in which an operator has drained every one.
        is_whole_site: whether the site takes no new jobs.
    """
    if is_whole_site:
        text = "this site is drained and refuses new jobs: `gridfed drain --all --resume` ends it"
        yield Problem("site-drained", "site", text)
    for pool, workers in sorted(drained.items()):
        if len(workers) == 1:
            what, how = f"its only worker, {workers[0]},", f"`gridfed drain {workers[0]} --resume`"
        else:
            what, how = f"all its {len(workers):,} workers", "`gridfed drain NAME --resume`"
        text = (
            f"pool {pool} takes nothing new, as {what} drain{'s' * (len(workers) == 1)} by order "
            f"of an operator: {how} ends it, of a host `gridfed drain --host HOST --resume` "
            "(`gridfed drain --list`)"
        )
        yield Problem("pool-drained", f"pool {pool}", text)


def of_partners(
    states: Mapping[str, str],
    approved: Iterable[str],
    site_backoff: Mapping[str, BackoffEnd],
    utc_s: UtcS,
    other_keys: Mapping[str, str],
    expelled_by: Mapping[str, str] = MappingProxyType({}),
    us: str = "",
) -> Iterator[Problem]:
    """Yield the partners that are unreachable, or in back-off.

    Args:
        states: what gossip says of each site.
        approved: the sites that we deal with.
        site_backoff: the whole sites in back-off.
        utc_s: now.
        other_keys: why sites answer but can't be met, as their keys or ours are not known.
        expelled_by: the sites that have expelled ours, and the reason of each.
        us: our own site.
    """
    for site in sorted(approved):
        state = states.get(site, "unknown")
        rest = site_backoff.get(site)
        if site in expelled_by:
            why = f" ({expelled_by[site]})" if expelled_by[site] else ""
            text = (
                f"this site is expelled by {site}{why}: {site} takes no work of ours and sends "
                f"none; ask its operator, or deal with it no more (`gridfed expel {site}`)"
            )
            yield Problem("partner-unreachable", site, text)
        elif state not in UP and site in other_keys:
            yield Problem("partner-keys", site, other_keys[site])
        elif state == "unknown":
            text = (
                f"{site} has not connected yet: it may not have approved this site (`gridfed "
                f"approve {us} FINGERPRINT` there), or its gateway does not run or can't be "
                "reached (`gridfed sites`, `gridfed known`)"
            )
            yield Problem("partner-unreachable", site, text)
        elif state not in UP:
            text = (
                f"{site} is {state}: its gateway does not answer; check that it runs and "
                "can be reached (`gridfed sites`, `gridfed known`)"
            )
            yield Problem("partner-unreachable", site, text)
        elif rest is not None and rest.until_s > utc_s:
            left_s = ceil(rest.until_s - utc_s)
            text = (
                f"{site} {rest.why}: in back-off for {duration_text(left_s)} more; "
                "`gridfed explain JOB` shows whether a job waits for it"
            )
            yield Problem("partner-back-off", site, text)


def of_books(older: Iterable[str], pending: Iterable[UnsettledDeliveries]) -> Iterator[Problem]:
    """Yield the problems of books between sites.

    Args:
        older: a sentence for each site whose books are newer than ours.
        pending: the deliveries that have had no verdict for UNSETTLED_S: the oldest UNSETTLED_MAX.
    """
    for text in older:
        yield Problem("books-older", text.partition(" ")[0], text)
    known = sorted(pending, key=lambda each: (each.site, each.side))
    is_cut = sum(each.records for each in known) >= UNSETTLED_MAX
    for each in known:
        site, number = each.site, each.records
        deliveries = "1 delivery" if number == 1 else f"{number:,} deliveries"
        if is_cut:
            deliveries = f"at least {deliveries}"
        made = "from" if each.side == "buy" else "to"
        text = (
            f"{deliveries} {made} {site} had no verdict for over "
            f"{duration_text(UNSETTLED_S)}: check that the site is up, and see `gridfed "
            f"deliveries {site}`"
        )
        yield Problem("deliveries-unsettled", site, text)


def of_keys(rotation: str, awaited: Iterable[str]) -> Iterator[Problem]:
    """Yield the problem of keys in rotation, which ends by itself once all members know them."""
    if rotation in ("", "none"):
        return
    names = ", ".join(awaited)
    waits = f", waiting for {names}: check that they are up" if names else ""
    text = f"the keys of this site are in rotation ({rotation}){waits}; `gridfed known` shows more"
    yield Problem("keys-rotating", "keys", text)
