"""Jobs with an environment at the broker: their workers, and the end of failed environments."""

import pytest
from support.pure.broker import Peers

from federation.messages import messages
from federation.messages.wire import pack
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events, matching
from gateway.scheduler.model.effects import SendToClient, SendToWorker
from gateway.scheduler.model.stored_terms import stored_terms, terms_plain
from gateway.scheduler.model.terms import JobSpec
from policies.placement.asks import Wishes
from policies.placement.environments import tags_of
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff

IMAGE = "image:localhost/quant:1"
OFFERS = tags_of(["localhost/*"], ["requirements"])
FAILURE = [[0, "environment", "no such image", b""]]


class World:
    """A broker with a client, and workers by number."""

    def __init__(self, offers: dict[str, CapacityOffer] | None = None) -> None:
        self.peers = Peers()
        self.broker = Broker({"local": Tariff(1, "USD", "test")}, offers, peers=self.peers)
        self.now_s = 1000.0
        self.effects: list = []
        self.do(events.ClientJoined(1, "ann"))

    def do(self, event: events.Event) -> list:
        self.now_s += 1.0
        self.effects = self.broker.handle(event, self.now_s) + self.broker.settle(self.now_s)
        return self.effects

    def join(self, worker: int, tags: dict, python: str = "3.11", job: str = "") -> list:
        return self.do(events.WorkerJoined(worker, f"w{worker}", "local", 1, tags, python, job=job))

    def submit(self, environment: str = IMAGE, tasks: int = 1, **changes) -> list:
        terms = {"price": None, "path": (), "tags": {}, **changes}
        job, function = terms.pop("job", "j"), terms.pop("function", b"f" * 32)
        spec = JobSpec(
            *("f", function, False, "ann", "risk", 0.0, terms.pop("tags"), None, 0, None, None),
            *("3.11", False, Wishes(environment=environment)),
            **terms,
        )
        opened = self.do(events.JobOpened(1, job, spec))
        return opened + self.do(events.TasksArrived(1, job, 0, [b""] * tasks))

    def fail(self, order: SendToWorker) -> list:
        assign = order.message
        return self.do(
            events.Reported(order.worker, assign.assignment, assign.first, [b""], FAILURE)
        )


def orders(effects: list) -> list[SendToWorker]:
    return [
        each
        for each in effects
        if isinstance(each, SendToWorker) and isinstance(each.message, messages.Assign)
    ]


def orders_of(world: World, job: str) -> int:
    """The numbers of a job's assignments."""
    [number] = world.broker.jobs[job].assignments
    return number


def told(effects: list, kind: type) -> list:
    return [
        each.message
        for each in effects
        if isinstance(each, SendToClient) and isinstance(each.message, kind)
    ]


def test_it_goes_to_who_offers_it_whatever_his_python():
    world = World()
    world.join(2, {})
    world.join(3, OFFERS, "3.12")
    assert [each.worker for each in orders(world.submit())] == [3]


def test_what_nobody_offers_is_refused_with_a_name():
    world = World()
    world.join(2, tags_of(["quay.io/*"], []))
    refused, *_ = told(world.submit(), messages.RejectJob)
    assert refused.code == "environment-missing"
    assert "does not allow image localhost/quant:1, only quay.io/*" in refused.reason


def test_of_a_pool_and_its_worker_the_worker_knows():
    offer = CapacityOffer("pool local", "local", {}, "3.11", "USD")
    world = World({"pool local": offer})
    refused, *_ = told(world.submit(), messages.RejectJob)
    assert "pool local does not allow image" in refused.reason
    world.join(2, tags_of(["quay.io/*"], []))
    refused, *_ = told(world.submit(job="k"), messages.RejectJob)
    assert refused.reason == (
        "no pool here can ever run it: worker w2 does not allow image localhost/quant:1, "
        "only quay.io/*"
    )


def test_what_one_worker_can_t_make_is_anothers_and_the_first_is_asked_no_more():
    world = World()
    world.join(2, OFFERS)
    world.join(3, OFFERS)
    [first] = orders(world.submit())
    again = orders(world.fail(first))
    assert [each.worker for each in again] == [5 - first.worker]
    # For this job only.
    job = world.broker.jobs["j"]
    refusal = matching.refusal(job, world.broker.workers[first.worker])
    assert refusal is not None
    assert refusal.reason == "environment-failed"
    [results] = told(world.fail(again[0]), messages.Results)
    assert results.failures == FAILURE


def test_without_another_it_fails_at_once_and_costs_nothing():
    world = World()
    world.join(2, OFFERS)
    world.join(3, {})  # offers nothing of the kind
    world.join(4, OFFERS, job="another")  # a contract for another job
    [order] = orders(world.submit())
    [results] = told(world.fail(order), messages.Results)
    assert results.failures == FAILURE
    assert not orders(world.effects)


def test_a_task_whose_environment_fails_goes_elsewhere_though_another_of_its_report_failed():
    world = World()
    world.broker.durations.learn(b"f" * 32, 1_000, 10**9)
    world.join(2, OFFERS)
    [order] = orders(world.submit(tasks=2))
    world.join(3, OFFERS)
    failures = [[0, "error", "t", b""], *([[1, *FAILURE[0][1:]]])]
    number = order.message.assignment
    effects = world.do(events.Reported(2, number, 0, [b"", b""], failures))
    assert [each.failures for each in told(effects, messages.Results)] == [failures[:1]]
    assert [(each.worker, each.message.first) for each in orders(effects)] == [(3, 1)]


def test_a_job_whose_environment_failed_on_a_worker_does_not_hold_up_others_there():
    """They need the same as it does, and are behind it in the queue: another site runs a task."""
    world = World()
    world.join(2, OFFERS)
    [order] = orders(world.submit(tasks=2))
    world.submit(job="k", tasks=2)
    world.join(3, OFFERS, job="k")
    assert world.broker.jobs["k"].in_flight == 1
    [next_order] = orders(world.fail(order))
    assert (next_order.worker, next_order.message.job) == (2, "k")


def test_a_plan_does_not_undo_that_an_environment_failed_while_another_worker_may_make_it():
    world = World()
    world.join(2, OFFERS)
    world.join(3, OFFERS)
    [order] = orders(world.submit())
    world.submit(job="k")
    failure = [[0, "environment", "no such image", b""]]
    number = order.message.assignment
    world.do(events.Reported(order.worker, number, 0, [b""], failure, wall_ns=10**9))
    assert world.broker.jobs["j"].waiting == 1
    assert not orders(world.do(events.PlacesChosen("j", None)))


def test_what_workers_here_can_t_make_waits_for_another_site_as_long_as_there_is_one():
    world = World()
    world.peers.makes = "rome"
    world.join(2, OFFERS)
    [order] = orders(world.submit())
    assert not told(world.fail(order), messages.Results)
    assert not orders(world.effects)
    # It comes as a contract, and fails too: who knows of nobody else says why.
    [sold] = orders(world.join(9, OFFERS, job="j"))
    world.peers.makes = ""
    [results] = told(world.fail(sold), messages.Results)
    assert results.failures == FAILURE


def test_what_nobody_is_left_for_is_tried_here_once_more_and_fails_with_its_reason():
    world = World()
    world.peers.makes = "rome"
    world.join(2, OFFERS)
    [order] = orders(world.submit())
    world.fail(order)
    world.peers.makes = ""
    [again] = orders(world.do(events.PlacesChosen("j", None)))
    [results] = told(world.fail(again), messages.Results)
    assert results.failures == FAILURE


def test_of_a_job_that_was_sold_the_buyer_decides():
    world = World()
    world.join(2, OFFERS)
    world.join(3, OFFERS)
    [order] = orders(world.submit(price=Tariff(1, "USD", "sold"), path=("paris",)))
    [results] = told(world.fail(order), messages.Results)
    assert results.failures == FAILURE


def test_nothing_waits_for_what_is_made_for_minutes_but_the_job_that_wants_it():
    world = World()
    world.join(2, OFFERS)
    [order] = orders(world.submit())
    world.do(events.EnvironmentsPrepared(2, frozenset({b"f" * 32})))
    message = order.message
    handed_back = events.HandedBack(2, message.assignment, ((message.first, message.first + 1),))
    assert not orders(world.do(handed_back))
    job = world.broker.jobs["j"]
    refusal = matching.refusal(job, world.broker.workers[2])
    assert refusal is not None
    assert refusal.reason == "environment-preparing"
    # The slot is there for others; and another worker may have made it already.
    assert [each.message.job for each in orders(world.submit("", job="k", function=b"g" * 32))] == [
        "k"
    ]
    assert [each.worker for each in orders(world.join(3, OFFERS))] == [3]
    world.do(events.WorkerGone(3, "lost"))
    world.do(events.Reported(2, orders_of(world, "k"), 0, [b""], []))
    again = orders(world.do(events.EnvironmentsPrepared(2, frozenset())))
    assert [(each.worker, each.message.job) for each in again] == [(2, "j")]


@pytest.mark.parametrize(
    ("changes", "origin", "holds"),
    [
        ({}, "", ""),
        ({"tags": {"gpu": 2, "linux": True}}, "", "gpu=2"),
        ({"price": Tariff(1, "USD", "sold"), "path": ("rome", "paris")}, "paris", ""),
    ],
)
def test_a_worker_is_told_whose_it_is_and_what_it_holds(changes, origin, holds):
    world = World()
    world.join(2, {"gpu": 4, "linux": True, **OFFERS})
    [order] = orders(world.submit(**changes))
    assert (order.message.origin, order.message.holds) == (origin, holds)


@pytest.mark.parametrize("environment", [IMAGE, "packages:uv:" + "0a" * 32, ""])
def test_a_restart_forgets_no_environment(environment):
    spec = JobSpec(
        *("f", b"f" * 32, True, "ann", "risk", 0.0, {}, None, 0, None, None),
        *("3.11", False, Wishes(environment=environment)),
    )
    assert stored_terms(pack(terms_plain(spec)))["wishes"].environment == environment
