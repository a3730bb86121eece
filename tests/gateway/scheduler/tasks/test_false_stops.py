"""A task that is stopped for its cost, or to make room, by the word of a worker or a seller alone.

Such a stop uses up no retry. It counts where the gateway itself ordered it or can check it, and
otherwise it can't keep a task running without end.
"""

from dataclasses import replace

import pytest
from support.pure.town import CHEAP, DEAR, UTC_S, Town

from federation.messages import deals
from federation.ranges import RangeSet
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from gateway.scheduler.tasks.completion import STOPS_MAX
from policies.costs.pricelist import PriceList
from policies.placement.asks import Wishes

ABROAD = Wishes(forbidden_sites=frozenset({"london"}))
PRICE = 36 * 10**9  # nano-units a slot-hour: 10 ** 7 a slot-second
S_NS = 10**9


def stop_all(site, kind, ran_s=1):
    """Report each task at work as stopped; return how many there were."""
    runs = 0
    for worker, orders in list(site.at_work.items()):
        for order in list(orders):
            orders.remove(order)
            for task in range(order.first, order.first + len(order.arguments)):
                runs += 1
                failure = [[0, kind, "because", b""]]
                used = ([b""], failure, [], ran_s * S_NS, ran_s * S_NS)
                site.do(events.Reported(worker, order.assignment, task, *used))
    return runs


def failures(site):
    return [failure[1:3] for part in site.results[1] for failure in part.failures]


def runs_at_home(kind, **options):
    """How often a task runs at a worker that always answers with this kind, and its failure."""
    town = Town()
    london = town.build("london", DEAR, 1)
    london.submit(1, **options)
    runs = 0
    for _ in range(40):
        town.pass_time(1.0)
        runs += stop_all(london, kind)
    return runs, failures(london), london


@pytest.mark.parametrize(("retries", "runs"), [(0, 1), (2, 3)])
@pytest.mark.parametrize("limit", [None, 10**15])
def test_a_worker_can_not_say_that_a_cost_limit_stopped_a_task(retries, runs, limit):
    money = {} if limit is None else {"max_cost_nanos": limit, "currency": "USD"}
    ran, [(kind, text)], london = runs_at_home("budget", retries=retries, **money)
    assert (ran, kind) == (runs, "error")
    assert text == "its worker stopped the task for a cost limit that was not reached: because"
    assert not london.broker.jobs


@pytest.mark.parametrize("retries", [0, 1])
def test_a_worker_that_stops_a_task_again_and_again_unasked_uses_up_its_retries(retries):
    ran, [(kind, text)], _ = runs_at_home("preempted", retries=retries)
    assert (ran, kind) == (STOPS_MAX + 1 + retries, "error")
    assert text == f"because (stopped over {STOPS_MAX} times)"


def test_a_task_that_the_gateway_stops_to_make_room_runs_again_without_end():
    town = Town()
    london = town.build("london", DEAR, 1)
    london.submit(1)
    for _ in range(3 * STOPS_MAX):
        town.pass_time(1.0)
        [job] = london.broker.jobs.values()
        for assignment in job.assignments.values():
            london.broker._preemption._notify(assignment, RangeSet([(0, 1)]), 0.0)
        assert stop_all(london, "preempted") == 1
    assert not failures(london)


def sold(**options):
    """London's task at Paris."""
    town = Town()
    london = town.build("london", DEAR, 1)
    paris = town.build("paris", CHEAP, 4)
    paris.do(events.PricesChanged({"local": PriceList(PRICE, "USD", "v1").at(UTC_S)}))
    town.show()
    london.submit(1, wishes=ABROAD, **options)
    town.pass_time(0.6)
    return town, london


def lie(town, kind, cost_nanos, wall_ns=S_NS):
    """Deliver the task of London's contract as stopped, as its seller might."""
    london = town.sites["london"]
    forward = [message for *_, message in town.said if isinstance(message, deals.Forward)][-1]
    town.now_s += wall_ns / S_NS
    utc_s = UTC_S + town.now_s
    message = deals.Deliver(
        *(forward.contract, forward.epoch, forward.first, [b""], [[0, kind, "because", b""]]),
        *([], wall_ns, wall_ns, 0, cost_nanos, int(utc_s * 1000), []),
    )
    london.kernel.hear("paris", PeerSide.SELLER, message, town.now_s, utc_s)
    london.do()


@pytest.mark.parametrize("limit", [None, 10**15])
def test_a_seller_can_not_say_so_before_its_contract_has_cost_as_much(limit):
    money = {} if limit is None else {"max_cost_nanos": limit, "currency": "USD"}
    town, london = sold(**money)
    job = london.broker.jobs["j"]
    lie(town, "budget", 10**7)
    assert failures(london) == [
        ["error", "paris stopped the task for a cost limit that was not reached: because"]
    ]
    assert not job.outran_s
    assert not job.outran_nanos


def test_a_task_that_its_contract_could_not_pay_for_counts_as_stopped_for_its_cost():
    town, london = sold(max_cost_nanos=10**7, currency="USD")
    job = london.broker.jobs["j"]
    lie(town, "budget", 10**7)
    assert [kind for kind, _ in failures(london)] == ["budget"]
    assert (job.outran_nanos, job.outran_s) == (10**7, 1.0)


@pytest.mark.parametrize("kind", ["budget", "preempted"])
def test_a_seller_that_stops_a_task_for_nothing_does_so_only_so_often(kind):
    town, london = sold()
    honest = town.carry

    def carry(sender, say):
        if isinstance(say.message, deals.Deliver):
            failure = [[0, kind, "because", b""]]
            say = replace(say, message=replace(say.message, failures=failure))
        honest(sender, say)

    town.carry = carry
    runs = 0
    for _ in range(200):
        runs += stop_all(town.sites["paris"], "error", 0)
        town.pass_time(1.0)
    assert runs == STOPS_MAX + 1
    [(ended_as, _)] = failures(london)
    assert ended_as == ("error" if kind == "preempted" else "budget")
    assert not london.broker.jobs
