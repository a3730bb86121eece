"""Two and three sites, real processes over tls+tcp: forwarding, and the faults it survives."""

import itertools
import json
import os
import random
import signal
import sys
import time

import pytest
from support.answers import answer
from support.members import (
    LEASE_S,
    MemberSite,
    dear_and_cheap,
    federate,
    relay_through,
    run,
    settled,
)
from support.processes import wait_until

from federation.errors import TaskCrashed

pytestmark = [pytest.mark.slow, pytest.mark.real]

TASKS = 300_000  # so many that they are not done before a contract is made


def square(number):
    return number * number


def nap(seconds):
    time.sleep(seconds)
    return seconds


def note(folder, number):
    """Leaves a trace of having run."""
    with open(os.path.join(folder, str(number)), "a") as file:
        file.write("x")
    return number


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A dear small site and a cheap larger one without faults."""
    with dear_and_cheap(tmp_path_factory.mktemp("pair")) as members:
        yield members


@pytest.fixture
def fragile(tmp_path):
    """The same, to be broken."""
    with dear_and_cheap(tmp_path) as members:
        yield members


def test_a_map_is_forwarded_to_where_it_is_cheap_and_both_sides_book_the_same(pair):
    london, paris = pair
    with london.client() as client:
        assert list(client.map(square, range(TASKS))) == [n * n for n in range(TASKS)]
        where = {row[0]: row for row in client.ask("report", kind="usage", by=["pool"])["rows"]}
    assert "paris/local" in where
    wait_until(lambda: settled(london, paris), "the books to agree")
    assert london.deals("buy")["settled"] > TASKS // 2  # London only tries how long one takes


def speak(number):
    print(f"out {number}")
    print(f"err {number}", file=sys.stderr)
    return number


def test_an_error_and_a_print_come_back_from_afar(pair, capsys):
    london, paris = pair
    with london.client() as client:
        told = client.options(sites=["paris"], prints=True).submit(speak, 1)
        assert told.result(timeout=300) == 1
        assert capsys.readouterr() == ("out 1\n", "err 1\n")
        kept = client.options(sites=["paris"]).submit_job(speak, range(2))
        assert kept.wait(300) == "done"
        assert {(each.task, each.stream, each.text) for each in kept.logs()} == {
            *((0, "stdout", "out 0"), (0, "stderr", "err 0")),
            *((1, "stdout", "out 1"), (1, "stderr", "err 1")),
        }
        assert capsys.readouterr() == ("", "")
        job = next(each["id"] for each in paris.ask("jobs", all_users=True) if ":" in each["id"])
        assert paris.ask("logs", job=job)["pieces"] == []  # it is kept at home
        view = client.options(sites=["paris"])
        with pytest.raises(ZeroDivisionError):
            view.submit(divmod, 1, 0).result(timeout=300)
        assert view.submit(square, 12).result(timeout=300) == 144


def both(left, right):
    return [left, right]


def test_calls_that_waited_for_others_run_at_another_site_with_their_inputs(pair):
    london, paris = pair
    done = paris.ask("status")["tasks_done"]
    with london.client() as client:
        view = client.options(sites=["paris"])
        squares = [view.submit(square, number) for number in range(8)]
        pairs = [view.submit(both, one, two) for one, two in itertools.pairwise(squares)]
        assert view.submit(both, pairs, 1).result(timeout=300) == [
            [[n * n, (n + 1) ** 2] for n in range(7)],
            1,
        ]
    assert paris.ask("status")["tasks_done"] == done + 8 + 7 + 1


@pytest.mark.parametrize("sites", [["paris"], ["london", "paris"]], ids=len)
def test_a_task_that_kills_its_slot_does_so_twice_in_the_whole_federation(pair, tmp_path, sites):
    london, _ = pair

    def die(number):
        note(tmp_path, number)
        if number == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with london.client() as client:
        view = client.options(sites=sites, retries=5)
        futures = [view.submit(die, number) for number in range(20)]
        for number, future in enumerate(futures):
            if number == 7:
                with pytest.raises(TaskCrashed, match="SIGKILL"):
                    future.result(timeout=300)
            else:
                assert future.result(timeout=300) == number
    assert (tmp_path / "7").read_text() == "xx"


def test_a_job_that_may_only_run_here_stays_here(pair):
    london, paris = pair
    before = paris.ask("status")["tasks_done"]
    with london.client() as client:
        assert sum(client.options(sites=["london"]).map(square, range(100))) == 328350
    assert paris.ask("status")["tasks_done"] == before


def test_every_gateway_shows_the_whole_federation(pair):
    for member in pair:
        rows = {row["site"]: row for row in member.ask("sites")}
        assert set(rows) == {"london", "paris"}
        assert rows[member.name]["state"] == "here"
        pools = {row["site"]: row for row in member.ask("pools")}
        assert (pools["paris"]["slots_total"], pools["london"]["slots_total"]) == (2, 1)
        assert pools["paris"]["price_nanos"] < pools["london"]["price_nanos"]


def test_explain_says_where_a_job_would_go_and_why_not_elsewhere(pair):
    london, _ = pair
    found = london.ask("explain", tasks=1000, task_s=0.1)
    assert [share["site"] for share in found["shares"]] == ["paris"]
    found = london.ask("explain", tasks=1, tags={"gpu": 1})
    assert {group["reason"] for group in found["refused"]} == {"tag-missing"}
    assert sum(group["count"] for group in found["refused"]) == 2


def dry_run(member, *options, code=0):
    """The answer of `gridfed explain` for a job with these options."""
    where = ["--gateway", member.address]
    return run("explain", *where, "--tasks", "1000", "--task-s", "36", *options, code=code)


@pytest.mark.parametrize(
    ("options", "site"),
    [
        ([], "paris"),
        (["--sites", "london"], "london"),
        (["--not-sites", "paris"], "london"),
        (["--max-cost", "0.01 USD", "--objective", "fastest"], "paris"),  # 0.04 a task in London
    ],
    ids=" ".join,
)
def test_the_command_line_asks_about_a_job_with_limits(pair, options, site):
    found = answer(dry_run(pair[0], *options, "--json"))
    assert {share["site"] for share in found["shares"]} == {site}


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--within-s", "20"], "deadline"), (["--jurisdictions", "XX"], "jurisdiction")],
)
def test_the_command_line_is_told_why_a_job_would_go_nowhere(pair, options, reason):
    found = answer(dry_run(pair[0], *options, "--json"))
    assert found["shares"] == []
    assert reason in json.dumps(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-cost", "5"], "is not an amount of money"),
        (["--objective", "best"], "it must be cheapest"),
        (["--sites", "london,"], "sites must be"),
        (["some-job"], "--tasks, --task-s: remove these options"),
    ],
    ids=str,
)
def test_a_job_that_can_not_be_is_refused_before_anybody_is_asked(pair, options, words):
    assert words in dry_run(pair[0], *options, code=2)


def test_a_client_explains_a_function_before_and_a_job_after_it_was_submitted(pair):
    london, _ = pair
    with london.client() as client:
        dear = client.options(sites=["london"])
        found = dear.explain(nap, tasks=1000, task_s=0.1)
        assert [share["site"] for share in found["shares"]] == ["london"]
        assert [group["reason"] for group in found["refused"]] == ["site-forbidden"]
        future = client.submit(nap, 60.0)
        job = client.options(sites=["paris"]).submit_job(nap, [60.0])
        for what in (future, future.job, job):
            found = client.explain(what)
            assert found["job"] == getattr(what, "id", future.job)
            assert found["candidates"]
        future.cancel(stop=True)
        job.cancel(stop=True)


@pytest.mark.thorough
def test_a_job_goes_on_through_a_site_that_knows_more(tmp_path):
    shows = '[[show]]\nreaders = ["paris"]\n[[show]]\nhidden = true\n'
    tokyo = MemberSite(tmp_path, "tokyo", 2, "0.04 USD", f"tags = {{ gpu = 2 }}\n{shows}")
    london, paris = (MemberSite(tmp_path, name, 1, "4 USD") for name in ("london", "paris"))
    members = london, paris, tokyo
    try:
        federate(*members, hidden=1)
        relay_through(paris, london, tokyo)
        wait_until(
            lambda: (
                len([row for row in paris.ask("pools") if row["slots_total"]]) == 3
                and any(row["site"] == "paris" for row in london.ask("pools"))
            ),
            "the adverts",
        )
        with london.client() as client:
            view = client.options(tags={"gpu": 1})
            assert list(view.map(square, range(200))) == [n * n for n in range(200)]
        for buyer, seller in (london, paris), (paris, tokyo):
            wait_until(
                lambda one=buyer, other=seller: (
                    one.deals("buy") == other.deals("sell") == {"settled": 200}
                ),
                f"the books of {buyer.name} and {seller.name} to agree",
            )
        assert {row["site"] for row in london.ask("deals")} == {"paris"}
        found = answer(run("report", "margin", "--gateway", paris.address, "--json"))
        [kept] = found["rows"]
        assert (kept["sold_to"], kept["bought_from"]) == ("london", "tokyo")
        sold = run("report", "statement", "--gateway", paris.address, "--json")
        accounts = {row["site"]: row for row in answer(sold)["rows"]}
        assert kept["tasks"] == accounts["london"]["sold_tasks"] == 200
        assert kept["took"] == accounts["london"]["sold"] == accounts["london"]["relayed_sold"]
        assert kept["gave"] == accounts["tokyo"]["bought"] == accounts["tokyo"]["relayed_bought"]
        assert "kept: " in run("report", "margin", "--gateway", paris.address)
    finally:
        for member in members:
            member.gateway.stop()


def test_a_pool_that_is_shown_to_one_site_alone_is_seen_and_used_by_it_and_by_nobody_else(tmp_path):
    shows = '[[show]]\nreaders = ["london"]\n[[show]]\nhidden = true\n'
    paris = MemberSite(tmp_path, "paris", 2, "0.04 USD", shows)
    london, lyon = (MemberSite(tmp_path, name, 1, "4 USD") for name in ("london", "lyon"))
    members = paris, london, lyon
    try:
        federate(*members, hidden=1)

        def seen(member):
            return {row["site"] for row in member.ask("pools")}

        wait_until(lambda: seen(london) == {"london", "lyon", "paris"}, "london sees paris' pool")
        wait_until(lambda: seen(lyon) == {"london", "lyon"}, "lyon sees all but that")
        with london.client() as client:
            view = client.options(sites=["paris"])
            assert list(view.map(square, range(100))) == [n * n for n in range(100)]
        assert {row["site"] for row in lyon.ask("sites")} == {"london", "lyon", "paris"}
        assert seen(lyon) == {"london", "lyon"}
    finally:
        for member in members:
            member.gateway.stop()


def test_a_seller_that_is_killed_costs_a_lease_and_no_task(fragile):
    london, paris = fragile
    with london.client() as client:
        results = client.map(square, range(100_000))
        first = [next(results) for _ in range(10_000)]
        paris.gateway.kill()
        rest = list(results)
    assert first + rest == [n * n for n in range(100_000)]


@pytest.mark.thorough
def test_a_seller_that_is_paused_and_goes_on_delivers_nothing_twice(fragile, tmp_path):
    london, paris = fragile
    with london.client() as client:
        results = client.options(sites=["paris"]).map(nap, [0.05] * 200)
        next(results)
        os.kill(paris.gateway.pid, signal.SIGSTOP)
        time.sleep(LEASE_S * 1.5 + 2)  # longer than the lease, which is what is tested
        os.kill(paris.gateway.pid, signal.SIGCONT)
        assert len(list(results)) == 199
    wait_until(lambda: settled(london, paris), "the books to agree")


@pytest.mark.thorough
def test_a_buyer_that_is_killed_takes_up_its_detached_job_and_pays_once(fragile, tmp_path):
    london, paris = fragile
    folder = tmp_path / "ran"
    folder.mkdir()
    with london.client() as client:
        view = client.options(sites=["paris"], project="nightly")
        job = view.submit_job(nap, [0.02] * 400, name="nightly")
        wait_until(lambda: client.job(job.id).progress().done > 50, "some of it to be done")
    london.gateway.kill()
    london.start()
    with london.client() as client:
        handle = client.job(job.id)
        assert len(list(handle.results())) == 400
    wait_until(lambda: settled(london, paris), "the books to agree")
    rows = london.ask("report", kind="usage", by=["job"])["rows"]
    assert next(row for row in rows if row[0] == job.id)


TERMS = """
[pool.tariff]
version = "paris-7"
preemptible = 0.5
minimum = "0.00001 USD"
step_s = 0.5
bands = [{ name = "always", from = "00:00", to = "24:00", price = "0.04 USD" }]
"""


@pytest.mark.thorough
def test_a_buyer_that_is_killed_pays_by_the_terms_that_were_quoted_before(tmp_path):
    with dear_and_cheap(tmp_path, TERMS) as (london, paris):
        with london.client() as client:
            view = client.options(sites=["paris"], preemptible=True)
            job = view.submit_job(nap, [0.02] * 400, name="nightly")
            wait_until(lambda: client.job(job.id).progress().done > 50, "some of it to be done")
        london.gateway.kill()
        london.start()
        with london.client() as client:
            assert len(list(client.job(job.id).results())) == 400
        wait_until(lambda: settled(london, paris), "the books to agree")
        by = ["site", "tariff", "window", "class"]
        rows = london.ask("report", kind="usage", by=by)["rows"]
        assert {tuple(row[:4]) for row in rows} == {
            ("paris", "paris-7", "always", "preemptible")
        }, rows


def submit_naps(member, done, **options):
    """Submit a detached job; its id, once so many of its tasks are done."""
    with member.client() as client:
        job = client.options(**options).submit_job(nap, [0.02] * 150, name="nightly")
        wait_until(lambda: client.job(job.id).progress().done >= done, "some of it to be done")
        return job.id


@pytest.mark.thorough
def test_both_are_killed_again_and_again_and_nothing_is_lost_or_paid_for_twice(tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with dear_and_cheap(tmp_path) as pair:
        london, paris = pair
        for each in pair:
            each.keep_port()
        for _ in range(8):
            sites = chance.choice((["paris"], ["london", "paris"]))
            job = submit_naps(london, chance.choice((0, 2, 20, 80, 140)), sites=sites)
            killed = chance.choice(((london,), (paris,), (london, paris), (paris, london)))
            for each in killed:
                each.gateway.kill()
            for each in killed:
                each.start()
            with london.client() as client:
                assert len(list(client.job(job).results())) == 150
        wait_until(lambda: settled(london, paris), "the books to agree")
        for each in pair:
            run("audit", "--config", str(each.config))  # which fails where anything is wrong
