"""Results that a worker says it has left as objects (gateway.runtime.left_results)."""

from support.pure.broker import WORKER, BrokerWorld, orders, spec, told, written

from federation.clocks import UtcS
from federation.messages.deals import Deliver
from federation.messages.messages import Results
from federation.objects.left import WHOLE, left_value
from federation.objects.manifests import SHA256, digest_text
from gateway.base.tags import OBJECTS_TAG
from gateway.config.limits import ObjectRoom
from gateway.ledger.db.usage.records import UsageRecord
from gateway.objects.catalogue import ObjectCatalogue, ObjectKey
from gateway.runtime.left_results import lost_results, proven, unproven, without_results
from gateway.scheduler.model import events

DIGEST = bytes([SHA256]) + b"d" * 32
CLAIM = left_value(DIGEST, 10)


def catalogue_with(*jobs, size=10, scope="p"):
    found = ObjectCatalogue(ObjectRoom(1 << 20))
    for job in jobs:
        assert not found.put_result(ObjectKey(scope, DIGEST), size, "ann", job, UtcS(1.0))
    return found


def lost(values, catalogue, failed=()):
    return sorted(unproven(values, set(failed), "j", "p", catalogue))


def test_a_result_counts_as_often_as_its_job_holds_it():
    values = [CLAIM, b"\x80x", WHOLE + b"y", CLAIM]
    assert lost(values, catalogue_with("j", "j")) == []
    assert lost(values, catalogue_with("j", "k")) == [3]
    assert lost(values, catalogue_with("j"), failed=[0]) == []


def test_what_another_job_or_project_holds_or_has_another_size_counts_for_nothing():
    assert lost([CLAIM], catalogue_with("k")) == [0]
    assert lost([CLAIM], catalogue_with("j", scope="q")) == [0]
    assert lost([CLAIM], catalogue_with("j", size=11)) == [0]
    assert lost([CLAIM], None) == [0]
    assert lost([CLAIM[:-1]], catalogue_with("j")) == [0]


def world_with(**more):
    world = BrokerWorld(slots=1, tags={OBJECTS_TAG: True})
    world.do(events.JobOpened(1, "j", spec(project="p", results="auto")))
    return world, orders(world.do(events.TasksArrived(1, "j", 0, [b"0"])))[0]


def test_an_invented_result_is_no_success_costs_nothing_and_is_run_again_once():
    world, order = world_with()
    for is_last in (False, True):
        report = events.Reported(WORKER, order.assignment, 0, [CLAIM], [], [], 10**9, 1, left=True)
        world.now_s += 10
        event, texts = proven(report, world.broker.jobs["j"], catalogue_with("k"), "london")
        assert digest_text(DIGEST) in texts[0]
        effects = world.do(event)
        (used,) = written(effects, UsageRecord)
        assert (used.state, used.cost_nanos, used.wall_ns) == ("failed", 0, 0)
        if not is_last:
            (order,) = orders(effects)
    (end,) = told(effects, Results)
    assert end.values == [b""]
    ((at, kind, text, _),) = end.failures
    assert (at, kind) == (0, "object")
    assert text.startswith("site london: ")


def test_a_report_that_is_not_sound_is_left_to_the_broker():
    world, order = world_with()
    job = world.broker.jobs["j"]
    for failures in ([["x", "error", "", b""]], [[[], "error", "", b""]]):
        report = events.Reported(WORKER, order.assignment, 0, [CLAIM], failures, left=True)
        assert proven(report, job, None, "london") == (report, {})


def test_a_delivery_counts_those_results_alone_that_were_fetched():
    world, _ = world_with()
    job = world.broker.jobs["j"]
    values, failures = [CLAIM, b"\x80x", CLAIM, b""], [[3, "error", "no", b""]]
    delivery = Deliver("c", 1, 0, values, failures, [], 1, 1, 1, 5, 1, [], left=True)
    assert not lost_results(delivery, job, catalogue_with("j", "j"))
    assert without_results(delivery, {}, "") is delivery
    lost = lost_results(delivery, job, catalogue_with("j"))
    found = without_results(delivery, lost, "there is no room")
    assert found.values == [CLAIM, b"\x80x", b"", b""]
    assert [each[:2] for each in found.failures] == [[2, "object"], [3, "error"]]
    assert "there is no room" in found.failures[0][2]
    assert found.cost_nanos == 5  # its seller has run it
    assert sorted(lost_results(delivery, None, catalogue_with("j", "j"))) == [0, 2]
