"""The unfinished tasks of each client, and their limit."""

import pytest
from support.pure.town import spec

from gateway.scheduler.model.events import ClientJoined, JobOpened
from gateway.scheduler.model.jobs import Job, QueuedBundle
from gateway.scheduler.model.ports import PortKind
from gateway.scheduler.quotas.accounts import Accounts, ClientLimits

LIMITS = ClientLimits(tasks_max=10, bytes_max=100, jobs_max=2, kept_bytes_max=1000)


def job_of(client, name="j", *, detached=False):
    terms = spec(detached=detached)
    return Job(name, terms, client, 1, 0.0, terms.need, {})


@pytest.fixture
def accounts():
    made = Accounts()
    made.join(ClientJoined(1, "ann"))
    made.join(ClientJoined(2, "bob"))
    return made


def test_too_many_tasks_and_too_many_bytes_are_told_apart(accounts):
    job = job_of(1)
    accounts.begin(job)
    accounts.count(job, 10)
    assert accounts.excess(accounts.clients[1], LIMITS) == ""
    accounts.count(job, 1)
    assert "10 unfinished tasks" in accounts.excess(accounts.clients[1], LIMITS)
    accounts.credit(job, 11)
    job.enqueue(QueuedBundle(0, [b"x" * 101], 101))
    assert "its limit of 100 bytes of unfinished" in accounts.excess(accounts.clients[1], LIMITS)


def test_another_site_is_bounded_by_its_contracts_and_not_here(accounts):
    accounts.join(ClientJoined(3, "ann@london", account="london", port=PortKind.PEER))
    job = job_of(3)
    accounts.begin(job)
    accounts.count(job, 1000)
    assert accounts.excess(accounts.clients[3], LIMITS) == ""


def test_all_contracts_of_a_site_have_one_account(accounts):
    for client in (3, 4):
        accounts.join(ClientJoined(client, "ann@london", account="london", port=PortKind.PEER))
        accounts.count(job_of(client), 5)
    assert accounts.clients[3].account.tasks == 10
    accounts.leave(3)
    assert accounts.clients[4].account.tasks == 5


def test_a_job_that_is_handed_over_is_the_new_clients(accounts):
    job = job_of(1)
    accounts.begin(job)
    job.enqueue(QueuedBundle(0, [b"x" * 50], 50))
    accounts.hand_over(job, 2)
    assert (list(accounts.clients[1].jobs), list(accounts.clients[2].jobs)) == ([], ["j"])
    assert accounts.clients[1].account.held_bytes == 0
    assert accounts.clients[2].account.held_bytes == 50


def test_what_is_not_acknowledged_is_its_clients_until_it_is(accounts):
    job, client = job_of(1, detached=True), accounts.clients[1]
    accounts.begin(job)
    accounts.owe(job, client, 3, 60)
    accounts.owe(job, client, 5, 60)
    assert (job.owed_tasks, client.owed_bytes) == (5, 120)
    assert "of unfinished work" in accounts.excess(client, LIMITS)
    accounts.forgive(job)
    assert (job.owed_tasks, client.owed_bytes, accounts.owing) == (0, 0, {})


def test_no_more_jobs_than_a_client_may_have(accounts):
    for name in "ab":
        accounts.begin(job_of(1, name))
    code, reason = accounts.over_limit(JobOpened(1, "c", spec()), LIMITS)
    assert (code, reason) == ("busy", "the client has 2 unfinished jobs, the maximum")
    assert accounts.over_limit(JobOpened(2, "c", spec()), LIMITS) is None
    accounts.disown(job_of(1, "a"))
    assert accounts.over_limit(JobOpened(1, "c", spec()), LIMITS) is None
