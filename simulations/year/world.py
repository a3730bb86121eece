"""The year itself: sites with links or without, people with jobs, and the counts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from federation.messages.messages import Answer, Dropped, RejectJob, Results
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from gateway.scheduler.model.terms import JobSpec
from policies.placement.asks import FASTEST, Objective, Wishes
from simulations.world.clock import Clock
from simulations.world.plan import PYTHON
from simulations.year.facts import log
from simulations.year.member import ELASTIC, OWNED, YearMember
from simulations.year.scenario import YearScenario, YearSitePlan
from simulations.year.work import YearJob, replay

PEOPLE = 1  # the handle of a site's people in its listener
NANOS = 1e9


@dataclass(slots=True)
class Money:
    """A site's expenses and income, in dollars, and its emissions, in grams."""

    cloud: float = 0.0
    power: float = 0.0
    paid: float = 0.0  # to other sites
    earned: float = 0.0  # from them
    carbon_g: float = 0.0
    lent_s: float = 0.0  # slot-seconds for others that were completed
    preempted_s: float = 0.0  # slot-seconds booked as preempted
    days: dict[int, list[float]] = field(default_factory=dict)  # expenses, and grams


@dataclass(frozen=True, slots=True)
class YearOutcome:
    """The result of a year."""

    scenario: YearScenario
    is_federated: bool
    works: list[YearJob]
    members: dict[str, YearMember]
    money: dict[str, Money]
    unfinished: int
    events: int
    ended_s: float


class Year:
    """One run of a scenario.

    Args:
        is_federated: whether the sites know each other; else each is alone.
        progress: called now and then with the number of past days.
    """

    def __init__(
        self,
        scenario: YearScenario,
        *,
        is_federated: bool,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.scenario = scenario
        self.is_federated = is_federated
        self._progress = progress
        self.clock = Clock()
        self.works: list[YearJob] = []
        self._by_payload: dict[bytes, YearJob] = {}
        self._jobs: dict[str, tuple[YearJob, int]] = {}  # by id: the work, and how many tasks
        self.money = {plan.name: Money() for plan in scenario.sites}
        self._left = 0
        self._questions = 0
        self._asked: dict[int, YearJob] = {}
        names = [plan.name for plan in scenario.sites]
        self.members: dict[str, YearMember] = {}
        for plan in scenario.sites:
            others = [name for name in names if name != plan.name] if is_federated else []
            self.members[plan.name] = YearMember(
                self.clock, plan, scenario, others, self._by_payload, self, self._carry
            )
        self._add_departments()
        self._add_production()

    # --- owners of work ------------------------------------------------------------------------

    def _add_departments(self) -> None:
        scenario = self.scenario
        for plan in scenario.sites:
            if not plan.department:
                continue
            self._welcome(plan, plan.department)
            found = log(plan.department)
            lot = Random(f"{scenario.seed} {plan.department}")
            for work in replay(
                plan.department,
                found,
                plan.zone,
                scenario.manners,
                scenario.begin_s,
                scenario.length_s,
                len(self.works),
                lot.randrange(found.weeks),
            ):
                self._add(plan.name, work)

    def _welcome(self, plan: YearSitePlan, user: str) -> None:
        self.members[plan.name].expect(events.ClientJoined(PEOPLE, user))

    def _add(self, site: str, work: YearJob) -> None:
        self.works.append(work)
        self._by_payload[work.payload] = work
        self._left += 1
        self.clock.at(work.at_s, partial(self._submit, site, work))

    def _add_production(self) -> None:
        """Add a run for each time that the window of production begins."""
        scenario, what = self.scenario, self.scenario.production
        plan = next(each for each in scenario.sites if each.name == what.site)
        self._welcome(plan, what.project)
        dice = Random(scenario.seed)
        pool = next(each for each in plan.config().pools if each.name == OWNED)
        ends_s = scenario.begin_s + scenario.length_s
        for span in pool.plan.spans(scenario.begin_s, ends_s):
            if span.window is None or span.window.name != what.window:
                continue
            task_s = float(round(dice.uniform(*what.task_s)))
            work = YearJob(
                key=len(self.works),
                owner=what.project,
                user=what.project,
                at_s=span.from_s - scenario.begin_s,
                run_s=task_s * what.waves,
                tasks=plan.slots * what.waves,
                task_s=task_s,
                objective=FASTEST,
                patience_s=math.inf,
                function=b"risk".ljust(32),
                is_production=True,
            )
            if work.at_s >= 0 and span.from_s < ends_s:
                self._add(plan.name, work)

    # --- actions of people ---------------------------------------------------------------------

    def _submit(self, site: str, work: YearJob) -> None:
        if work.is_production:
            wishes = Wishes(objective=FASTEST, allowed_sites=frozenset({site}))
        else:
            wishes = Wishes(objective=work.objective)
        self._open(site, work, f"{work.owner}-{work.key}", work.tasks, {"owned": True}, wishes)
        if work.patience_s < math.inf:
            self.clock.after(work.patience_s, partial(self._lose_patience, site, work))

    def _open(
        self, site: str, work: YearJob, job: str, tasks: int, tags: dict[str, Any], wishes: Wishes
    ) -> None:
        self._jobs[job] = work, tasks
        spec = JobSpec(
            name=work.owner,
            function=work.function,
            detached=False,
            user=work.user,
            project=work.owner,
            priority=0.0,
            tags=tags,
            timeout_s=None,
            retries=0,
            max_cost_nanos=None,
            currency=None,
            python=PYTHON,
            prints=False,
            wishes=wishes,
        )
        self.members[site].expect(
            events.JobOpened(PEOPLE, job, spec),
            events.TasksArrived(PEOPLE, job, 0, [work.payload] * tasks),
            events.JobClosed(PEOPLE, job, tasks),
        )

    def _lose_patience(self, site: str, work: YearJob) -> None:
        """Take back tasks that have not begun by now, and run them in the cloud."""
        job = self.members[site].broker.jobs.get(f"{work.owner}-{work.key}")
        if job is None:
            return
        self._questions += 1
        self._asked[self._questions] = work
        self.members[site].expect(
            events.CancelAsked(PEOPLE, self._questions, job.id, ((0, work.tasks),), kill=False)
        )
        again_s = self.scenario.manners.again_s
        self.clock.after(again_s, partial(self._lose_patience, site, work))

    def _buy_elastic(self, site: str, work: YearJob, tasks: int) -> None:
        work.elsewhere += tasks
        wishes = Wishes(objective=Objective(time=1.0), allowed_sites=frozenset({site}))
        name = f"{work.owner}-{work.key}-cloud-{work.elsewhere}"
        self._open(site, work, name, tasks, {"elastic": True}, wishes)

    # --- messages to people --------------------------------------------------------------------

    def told(self, site: str, client: int, message: Any) -> None:
        """See Listener."""
        assert client == PEOPLE
        match message:
            case Results():
                work, _ = self._jobs[message.job]
                assert not message.failures, message.failures
                work.done += len(message.values)
                if work.done == work.tasks:
                    work.end_s = self.clock.now_s
                    self._left -= 1
            case Answer():
                work = self._asked.pop(message.request)
                taken = sum(stop - first for first, stop in message.value["taken"])
                if taken:
                    self._buy_elastic(site, work, taken)
            case Dropped() | RejectJob():
                raise AssertionError(f"unexpected refusal: {message}")
            case _:
                raise AssertionError(f"unexpected message {message.kind!r}")

    def booked(self, site: str, record: UsageRecord) -> None:
        """See Listener."""
        money = self.money[site]
        day = money.days.setdefault(int(self.clock.now_s // 86_400), [0.0, 0.0])
        seller = record.pool.partition("/")[0] if "/" in record.pool else ""
        costs = record.cost_nanos / NANOS
        if seller:
            money.paid += costs
            return
        if ":" in record.job:
            money.earned += costs
            money.lent_s += record.wall_ns / NANOS if record.state == "ok" else 0.0
        if record.state == "preempted":
            money.preempted_s += record.wall_ns / NANOS
        if record.pool == ELASTIC:
            spent = costs
            money.cloud += costs
        else:
            spent = record.energy_uj / 3.6e12 * self.members[site].usd_per_kwh
            money.power += spent
        grams = record.carbon_ng / NANOS
        money.carbon_g += grams
        day[0] += spent
        day[1] += grams

    # --- messages between sites ----------------------------------------------------------------

    def _carry(self, source: str, target: str, side: PeerSide, frame: bytes) -> None:
        arrives = partial(self.members[target].hear, source, side, frame)
        self.clock.after(self.scenario.message_s, arrives)

    # --- time ----------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Let all gateways look at the clock, on the minute."""
        for member in self.members.values():
            member.tick()
        if self.is_federated:
            self._advertise()
        self.clock.after(self.scenario.tick_s, self._tick)

    def _advertise(self) -> None:
        for member in self.members.values():
            advert = member.advert()
            for other in self.members.values() if advert is not None else ():
                if other is not member and advert is not None:
                    other.exchange.learn(advert, other.utc_s())

    def run(self) -> YearOutcome:
        """Run it all, and let running work finish at the end."""
        scenario, day = self.scenario, 1
        self.clock.at(0.0, self._tick)
        while day <= scenario.days:
            self.clock.run(day * 86_400.0, lambda: False, look_s=math.inf)
            self._progress(day)
            day += 1
        last_s = scenario.length_s + scenario.settle_days * 86_400.0
        self.clock.run(last_s, lambda: not self._left, look_s=scenario.tick_s)
        return YearOutcome(
            scenario,
            self.is_federated,
            self.works,
            self.members,
            self.money,
            self._left,
            self.clock.events,
            self.clock.now_s,
        )
