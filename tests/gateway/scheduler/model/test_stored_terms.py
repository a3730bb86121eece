"""A job's terms are the same after a restart: all of them."""

from dataclasses import fields, replace

from support.pure.town import spec

from federation.messages.wire import pack
from gateway.scheduler.model.stored_terms import stored_terms, terms_plain
from gateway.scheduler.model.terms import GivenPriority, JobHold, JobSpec, Warrant
from policies.placement.asks import Objective, WhenClosed, Wishes

# Of the row itself, or of jobs that another site sent, which are not stored.
ELSEWHERE = {"name", "user", "project", "detached", "price", "path", "given", "hops_left", "pool"}
ELSEWHERE |= {"slots_sold"}
ELSEWHERE |= {"results", "far_results"}  # of attached jobs, which their clients open again
ELSEWHERE |= {"has_inputs"}  # the stored calls themselves tell
ELSEWHERE |= {"is_probe"}  # a pool test is over with the session that ran it


def full() -> JobSpec:
    """Terms none of which is as usual."""
    return spec(
        detached=True,
        priority=2.5,
        tags={"linux": True, "gpu": 2},
        timeout_s=7.5,
        retries=3,
        max_cost_nanos=10**10,
        currency="EUR",
        python="3.12",
        prints=True,
        price_class="preemptible",
        wishes=Wishes(
            Objective(money=1.0, time=0.5),
            2e9,
            frozenset({"london", "paris"}),
            frozenset({"tokyo"}),
            frozenset({"EU"}),
            when_closed=WhenClosed.WAIT,
            environment="image:localhost/quant:1",
            deferrable=True,
            whole=True,
        ),
        tasks=12,
        task_s=2.5,
        warrant=Warrant("paris", "0123456789abcdef", 2e9, stays=True),
        hold=JobHold("root", 1.8e9, is_operators=True),
        given_priority=GivenPriority(7.0, "root"),
    )


def test_every_term_of_a_job_is_there_after_a_restart() -> None:
    read = stored_terms(pack(terms_plain(full())))
    assert set(read) == {field.name for field in fields(JobSpec)} - ELSEWHERE
    assert replace(spec(detached=True), **read) == full()


def test_no_wishes_stay_none() -> None:
    assert stored_terms(pack(terms_plain(spec())))["wishes"] == Wishes()


def test_a_job_that_was_stored_before_wishes_were_is_read() -> None:
    terms = terms_plain(full())
    del terms["wishes"]
    assert stored_terms(pack(terms))["wishes"] == Wishes()
