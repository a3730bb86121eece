"""Jobs by their names and the beginnings of their ids: in the client and at the command line."""

import re
import time

import pytest
from support.answers import answer
from support.command import quick
from support.processes import wait_until

from federation.errors import GridError, JobNotFound

pytestmark = pytest.mark.real


def square(number):
    return number * number


def divide(number):
    return 1 // number


def ended(client, name, count=3):
    job = client.options(name=name).submit_job(square, range(count))
    job.wait(60)
    return job


def test_a_job_is_found_by_its_name_and_by_the_beginning_of_its_id(client):
    job = ended(client, "by-name")
    for text in ("by-name", job.id[:20], job.id):
        found = client.job(text)
        assert list(found.results()) == [0, 1, 4]
        assert found.id == job.id
        assert found.state == "done"


def test_a_name_stands_for_one_job_for_as_long_as_its_handle(client):
    job = ended(client, "pinned")
    handle = client.job("pinned")
    assert handle.state == "done"
    again = ended(client, "pinned")
    assert handle.id == job.id
    assert handle.progress().done == 3
    with pytest.raises(GridError) as caught:
        _ = client.job("pinned").state
    assert all(each.id in str(caught.value) for each in (job, again))
    with pytest.raises(JobNotFound, match=f"job {again.id} .* has ended"):
        client.job("pinned").cancel()


def test_a_job_is_cancelled_by_its_name(client):
    with pytest.raises(JobNotFound):
        client.job("to-cancel").cancel()
    job = client.options(name="to-cancel").submit_job(time.sleep, [60] * 5)
    handle = client.job("to-cancel")
    assert handle.cancel(stop=True) == 5
    assert handle.id == job.id
    assert job.wait(60) == "cancelled"


def test_commands_take_names_and_beginnings(client, shared_site):
    job = ended(client, "at-the-command-line")
    where = ("--gateway", shared_site.address)
    for text in ("at-the-command-line", job.id[:20]):
        assert answer(quick("job", text, "--json", *where))["id"] == job.id
        assert quick("logs", text, *where) == ""
    assert f"job {job.id} has ended (done)" in quick("explain", "at-the-command-line", *where)
    assert "no job 'of-no-name'" in quick("cancel", "of-no-name", *where, code=1)
    assert job.id in quick("forget", "at-the-command-line", *where)
    ended(client, "at-the-command-line")
    told = quick("job", "at-the-command-line", *where, code=1)
    assert "may mean several jobs" in told
    assert f"  {job.id}  at-the-command-line, done, of " in told


def test_jobs_are_listed_by_filters_newest_first(client, shared_site):
    where = ("--gateway", shared_site.address)
    first, second = (ended(client.options(project="listed"), f"listed-{at}") for at in "ab")

    def ids(*options):
        return [each["id"] for each in answer(quick("jobs", "--json", *options, *where))]

    assert ids("--project", "listed") == [second.id, first.id]
    assert ids("--project", "listed", "--all") == [second.id, first.id]
    assert ids("--project", "listed", "--limit", "1") == [second.id]
    assert ids("--project", "listed", "--after", second.id) == [first.id]
    assert ids("--name", "listed-a", "--state", "done") == [first.id]
    assert ids("--name", "listed-a", "--state", "partly-failed") == []
    odd = client.options(name="listed-odd").submit_job(divide, range(2))
    wait_until(lambda: odd.details()["ended_at_s"] is not None)
    for spelling in ("partly-failed", "partly failed"):
        assert ids("--name", "listed-odd", "--state", spelling) == [odd.id]
        assert [each["id"] for each in client.jobs(name="listed-odd", state=spelling)] == [odd.id]
        assert client.ask("jobs", name="listed-odd", state=spelling)[0]["state"] == "partly failed"
    assert "'partly failed'" in quick("jobs", "--state", "odd", *where, code=2)
    assert ids("--project", "listed", "--user", "nobody-of-this-name") == []
    shown = quick("jobs", "--project", "listed", "--limit", "1", *where)
    head, row, more = shown.splitlines()
    assert head.split()[:7] == ["id", "name", "user", "project", "state", "begun", "ended"]
    assert " s " in row
    assert more == f"there may be more: add --all, or --after {second.id}"
    assert quick("jobs", "--name", "none", *where) == "no such jobs\n"
    assert [each["id"] for each in client.jobs(name="listed-b")] == [second.id]


def test_an_order_means_the_only_job_of_a_name_that_has_not_ended(client, shared_site):
    where = ("--gateway", shared_site.address)
    ended(client, "nightly")
    ended(client, "nightly")
    last = client.options(name="nightly").submit_job(time.sleep, [60] * 5)
    assert f"job {last.id}" in quick("hold", "nightly", *where)
    client.job("nightly").prioritise(3.0)
    assert f"job {last.id}" in quick("release", "nightly", *where)
    assert "may mean several jobs" in quick("job", "nightly", *where, code=1)
    other = client.options(name="nightly").submit_job(time.sleep, [60])
    for order in (("cancel",), ("hold",), ("prioritise",)):
        more = ("1",) if order == ("prioritise",) else ()
        told = quick(*order, "nightly", *more, *where, code=1)
        assert "'nightly' may mean several unfinished jobs; name one by its id:" in told
        assert told.count("  nightly, ") == 2
        assert f"  {other.id}  nightly, " in told
        assert " s ago, " in told
    quick("cancel", other.id, *where)
    other.wait(60)
    assert "5 tasks cancelled" in quick("cancel", "nightly", "--stop", *where)
    wait_until(lambda: last.details()["ended_at_s"] is not None)
    for order in ("cancel", "hold", "release"):
        for name in (last.id[:24], last.id):
            told = quick(order, name, *where, code=1)
            assert "has ended" in told, (order, name)
            assert re.search(r", as cancelled \(cancelled by \S+\): only an unfinished job", told)
    with pytest.raises(JobNotFound, match=r"has ended \d+ s ago, .* UTC, as done"):
        client.job(ended(client, "done").id).cancel()


def test_a_beginning_that_is_too_short_says_so(client, shared_site):
    job = ended(client, "long-enough")
    where = ("--gateway", shared_site.address)
    told = quick("job", job.id[:3], *where, code=1)
    assert "the beginning of an id needs at least 4 characters" in told
    short = ended(client, "abc")
    assert answer(quick("job", "abc", "--json", *where))["id"] == short.id
