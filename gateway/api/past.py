"""Why an ended job ran where it ran: from what was recorded, by the rules as they were then.

    usage rows ─► places ─┐
    contracts ────────────┼─► explain_past ─► places with prices, and the rules that applied there
    configuration of then ┘

The decision itself is not recorded: it depended on load and adverts of the moment. What is in the
books is where the tasks ran, at which price, and under which version of the rules; the rules of a
version are kept for ever, so they are applied once more to the owner of the job.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from federation.money import format_money
from federation.words import count
from gateway.base.job_states import REJECTED
from gateway.config.pools import PoolConfig
from gateway.config.site import SiteConfig
from gateway.ledger.db.contracts.records import ContractRow
from gateway.ledger.db.usage.records import JobPlace
from policies.access.claims import EVERYTHING, NOTHING, REST, Claim
from policies.access.entitlements import ELSEWHERE, NO_WINDOW, Work
from policies.parties import Owner

NOT_KNOWN: Final = "the rules of that time can't be applied to the present file"


class PastJob(NamedTuple):
    """A job that has ended.

    Attributes:
        state, reason: as people are shown them; `reason` is empty of a job with failed tasks.
        whose: its owner, with the groups that it was opened with.
        data: the classes of its data.
        done, failed, cancelled: the number of its tasks that ended so.
        first_error: of the first task that failed, in one line.
    """

    job: str
    state: str
    reason: str
    whose: Owner
    priority: float
    data: frozenset[str]
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    first_error: str = ""

    @property
    def end(self) -> str:
        """Its end in words: `partly failed: 2 of 4 tasks failed, the first with ValueError: …`."""
        if self.failed:
            total = self.done + self.failed + self.cancelled
            first = f", the first with {self.first_error}" if self.first_error else ""
            return f"{self.state}: {self.failed:,} of {count(total, 'task')} failed{first}"
        if self.reason.startswith(self.state):  # as in "cancelled by ann"
            return self.reason
        return f"{self.state}{f': {self.reason}' if self.reason else ''}"


def explain_past(
    job: PastJob,
    places: Iterable[JobPlace],
    contracts: Iterable[ContractRow],
    configs: Mapping[int, SiteConfig | str],
) -> dict[str, Any]:
    """Return where a job ran, and why it might.

    Args:
        job: the job.
        places: where its tasks ran, by the usage records.
        contracts: those that were bought for it.
        configs: the configuration in force, by version of the rules; a text: why it is not known.
    """
    rows = [_place(job, each, configs.get(each.rules, NOT_KNOWN)) for each in places]
    ended = f"job {job.job} has ended ({job.end})"
    if rows:
        where = f"{len(rows)} places or terms" if len(rows) > 1 else "one place"
        text = f"{ended}: its tasks ran in {where}"
    else:
        text = f"{ended}: the books record no run of its tasks"
    return {
        "job": job.job,
        "state": job.state,
        "text": text,
        "past": rows,
        # The text that older clients print of any explanation.
        **{key: [] for key in ("shares", "candidates", "refused")},
        "contracts": [asdict(each) for each in contracts],
    }


def explain_refused(job: str, text: str) -> dict[str, Any]:
    """Return why a job was refused, in the form of an explanation of one that has ended."""
    return {
        "job": job,
        "state": REJECTED,
        "text": text,
        **{key: [] for key in ("past", "shares", "candidates", "refused", "contracts", "rules")},
    }


def _place(job: PastJob, place: JobPlace, config: SiteConfig | str) -> dict[str, Any]:
    site, slash, pool = place.pool.rpartition("/")
    found = asdict(place) | {
        "site": site,
        "pool": pool if slash else place.pool,
        "price": format_money(place.price_nanos, place.currency),
        "list_price": format_money(place.list_price_nanos, place.currency),
        "cost": format_money(place.cost_nanos, place.currency),
    }
    if isinstance(config, str):
        return found | {"why": [], "rules_unknown": config}
    reasons = _elsewhere(job, config, place) if site else _here(job, config, place)
    return found | {"why": list(reasons), "rules_unknown": ""}


def _here(job: PastJob, config: SiteConfig, place: JobPlace) -> Iterator[str]:
    """Yield the rules that applied in a pool of ours."""
    pool = next((each for each in config.pools if each.name == place.pool), None)
    if pool is None:
        yield f"pool {place.pool} is not in the present configuration: its rules are not shown"
        return
    window = pool.plan.at(place.first_at_s)
    claims = window.claims if window is not None else pool.plan.base
    claim = next((each for each in claims.named if each.who.includes(job.whose)), REST)
    if window is not None:
        yield f"window {window.name!r} was open: {claim_text(claim)}"
    elif pool.plan.windows:
        yield f"no window was open: {claim_text(claim)}"
    elif claims.named:
        yield claim_text(claim)
    yield from _entitled(job, config, place, place.pool, window.name if window else NO_WINDOW)
    yield from _bound(job, config)
    yield price_text(pool, place)
    yield from _others(config, place)


def _elsewhere(job: PastJob, config: SiteConfig, place: JobPlace) -> Iterator[str]:
    """Yield the rules by which work went to another site."""
    yield from _entitled(job, config, place, ELSEWHERE, NO_WINDOW)
    yield from _bound(job, config)
    amount = format_money(place.price_nanos, place.currency)
    named = f", tariff {place.tariff}" if place.tariff else ""
    yield f"it was bought there for {amount} per slot-hour{named}"
    yield from _others(config, place)


def _entitled(
    job: PastJob, config: SiteConfig, place: JobPlace, pool: str, window: str
) -> Iterator[str]:
    rules = config.entitlements
    work = Work(
        job.whose, 0.0, "preemptible" if place.price_class == "preemptible" else "guaranteed"
    )
    rule = rules.verdict(work, pool, window).rule
    if rule is not None:
        yield f"an [[entitlement]] was about it: {rule}"


def _bound(job: PastJob, config: SiteConfig) -> Iterator[str]:
    for rule in config.residency:
        if rule.binds(job.whose, job.data):
            yield f"a [[residency]]{f' ({rule.change})' if rule.change else ''} bound it: {rule}"


def claim_text(claim: Claim) -> str:
    """Describe a party's claim on a pool at that time."""
    if claim == REST:
        return "it was under no claim of its own: it had the slots that the claims left"
    parts = [f"guaranteed {claim.guaranteed}" if claim.guaranteed != NOTHING else "no guarantee"]
    if claim.guaranteed != NOTHING and claim.lends != EVERYTHING:
        parts.append(f"of which it lends {claim.lends}")
    if claim.borrows != EVERYTHING:
        parts.append(f"borrows at most {claim.borrows}")
    return f"it was under the claim of {claim.who}: {', '.join(parts)}"


def price_text(pool: PoolConfig, place: JobPlace) -> str:
    """Return the price of a slot-hour, and its tariff, in words."""
    amount = format_money(place.price_nanos, place.currency)
    named = f", tariff {place.tariff}" if place.tariff else ""
    window = f", its window {place.window!r}" if place.window else ""
    least = format_money(place.list_price_nanos, place.currency)
    listed = f"; the list price then was {least}" if least != amount else ""
    return f"a slot-hour of {pool.name} cost {amount}{named}{window}{listed}"


def _others(config: SiteConfig, place: JobPlace) -> Iterator[str]:
    """Yield the prices of the site's other pools, which the job did not take."""
    found = [
        f"{each.name} {each.price}"
        for each in config.pools
        if each.name != place.pool and each.prices.currency == place.currency
    ]
    if found:
        yield f"list prices of this site's other pools then: {', '.join(found)}"
