"""Work that is at other sites by a wrong estimate goes where it costs less, as far as not begun."""

from collections import Counter
from types import SimpleNamespace

from support.pure.town import DEAR, UTC_S, Town

from gateway.contracts.planning.moving import JOBS_MAX, LOOK_S, MOVED, Moving
from gateway.ledger.db import records
from gateway.scheduler.model import events
from policies.costs.pricelist import PriceList
from policies.placement.asks import Wishes
from policies.tariffs import Extras

ABROAD = Wishes(forbidden_sites=frozenset({"london"}))
STEPS = PriceList(2 * 10**8, "USD", "steps", extras=Extras(step_ns=25 * 10**7))
PLAIN = PriceList(8 * 10**8, "USD", "plain")


def charge(site, prices):
    site.do(events.PricesChanged({"local": prices.at(UTC_S)}))


def usage(site):
    return [each for each in site.books if isinstance(each, records.UsageRecord)]


def test_a_job_whose_first_tasks_were_tiny_leaves_the_pool_that_is_dear_for_the_others():
    """One of a millisecond pays a whole step at Paris; one of half a second a quarter of Rome's."""
    town = Town()
    london, paris = town.build("london", DEAR, 0), town.build("paris", DEAR, 8)
    rome = town.build("rome", DEAR, 2)
    charge(paris, STEPS)
    charge(rome, PLAIN)
    town.show()
    london.broker.durations.learn(b"f" * 32, 1, 10**6)
    london.submit(200, wishes=ABROAD)
    job = london.broker.jobs["j"]
    town.pass_time(1.0)
    assert job.in_flight > 50
    assert not any(paris.at_work.values())
    while london.broker.jobs:
        for _ in range(5):
            town.pass_time(0.1)
        town.show()
        rome.work(2, task_s=0.5)
        paris.work(8, task_s=0.5)
        town.deliver()
    ran = Counter()
    for each in usage(london):
        ran[each.site] += each.tasks
    assert ran.total() == 200
    assert ran["paris"] > 150
    moved = [text for _, text in job.notes if "recalled" in text]
    assert len(moved) == 1
    assert "from rome/local" in moved[0]


def job_named(name, function=b"f" * 32, path=()):
    return SimpleNamespace(id=name, spec=SimpleNamespace(function=function, path=path))


def test_a_job_is_looked_at_once_for_each_change_of_its_duration():
    seconds = {b"f": 1.0}
    jobs = {"j": job_named("j", b"f"), "relayed": job_named("relayed", b"f", ("paris",))}
    moving = Moving(jobs, seconds.get)
    found = []
    for at, task_s in enumerate((1.0, 1.2, MOVED, 1.3, 1.0, 0.9, 0.9), 1):
        seconds[b"f"] = task_s
        found += [(at, each.id) for each in moving.due(["j", "relayed", "gone"], at * LOOK_S)]
        assert not list(moving.due(["j"], at * LOOK_S + LOOK_S / 2))
    assert found == [(3, "j"), (5, "j")]


def test_of_very_many_each_has_its_turn():
    seconds = {b"f": 1.0}
    jobs = {f"j{at}": job_named(f"j{at}", b"f") for at in range(3 * JOBS_MAX)}
    moving = Moving(jobs, seconds.get)
    assert not list(moving.due(jobs, LOOK_S))
    seconds[b"f"] = 2.0
    found = [[each.id for each in moving.due(jobs, at * LOOK_S)] for at in (2, 3, 4, 5)]
    assert [len(each) for each in found] == [JOBS_MAX] * 3 + [0]
    assert {name for names in found for name in names} == set(jobs)
