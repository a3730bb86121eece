"""The command line on a real site."""

import csv
import io
import os
import re
import signal
import socket
import time

import psutil
import pytest
from click.testing import CliRunner
from support.answers import answer
from support.command import quick, run
from support.processes import Process, make_certificate, wait_until

from federation import Client
from federation.errors import GridError, JobNotFound
from gateway.cli.main import cli

pytestmark = pytest.mark.real


def square(x):
    return x * x


@pytest.fixture
def site(shared_site, monkeypatch):
    monkeypatch.setenv("GRIDFED_GATEWAY", shared_site.address)
    return shared_site


def test_status(site):
    assert "site local: up" in run("status")
    found = answer(quick("status", "--json"))
    assert found["state"] == "up"
    assert found["pools"][0]["slots"] == 2


def test_jobs_and_job(site):
    with site.client() as client:
        results = client.options(name="shown", project="cli").map(square, range(10))
        assert sum(results) == 285
        client.job(results.job).wait(200)
    assert "shown" in quick("jobs")
    found = answer(run("job", results.job, "--json"))
    assert (found["done"], found["project"], found["state"]) == (10, "cli", "done")
    assert "10 done, 0 failed, 0 cancelled of 10" in quick("job", results.job)
    assert any(row["id"] == results.job for row in answer(quick("jobs", "--json")))
    past = run("explain", results.job)
    assert f"job {results.job} has ended (done): its tasks ran in " in past
    assert "\nlocal: 10 runs from " in past
    assert "a slot-hour of local cost " in past or "the rules are not shown" in past


def test_a_job_whose_tasks_fail_is_not_done(site):
    def price(x):
        if x < 2:
            raise ValueError(f"negative volatility {x}")
        return x

    with site.client() as client:
        job = client.submit_job(price, range(2))
        assert job.wait(200) == "failed"
        told = r"ValueError: negative volatility (\d) \(task \1 of job .*price\(\1\)\)"
        assert re.fullmatch(told, job.first_error)
        assert client.submit_job(price, range(4)).wait(200) == "partly failed"
    shown = CliRunner().invoke(cli, ["job", job.id])
    assert shown.exit_code == 3
    assert "2 failed" in shown.stdout
    assert "first error  ValueError: negative volatility " in shown.stdout
    in_json = CliRunner().invoke(cli, ["job", job.id, "--json"])
    assert (in_json.exit_code, answer(in_json.stdout)["state"]) == (3, "failed")


def test_workers(site):
    (worker,) = answer(quick("workers", "--json"))
    assert worker["slots"] == 2
    assert worker["name"] in quick("workers")


def test_cancel(site):
    with site.client() as client:
        job = client.submit_job(time.sleep, [60] * 5)
        assert "5 tasks cancelled" in quick("cancel", job.id, "--stop")
        assert job.wait(200) == "cancelled"


def test_forget(site):
    with site.client() as client:
        job = client.submit_job(square, range(3))
        other = client.submit_job(time.sleep, [600])
        assert list(job.results()) == [0, 1, 4]
        job.wait(200)
        assert "has not ended: cancel it first" in quick("forget", other.id, code=1)
        assert "are deleted" in quick("forget", job.id)
        with pytest.raises(JobNotFound, match="were deleted"):
            next(job.results())
        assert job.details()["forgotten"]
        other.cancel(stop=True)
    mallory = Client(site.address, user="mallory")
    with mallory, pytest.raises(JobNotFound, match="of yours"):
        mallory.job(job.id).forget()


def test_a_job_that_is_not_there(site):
    assert "no job 'nonesuch'" in quick("job", "nonesuch", code=1)
    assert "no job 'nonesuch'" in quick("cancel", "nonesuch", code=1)


def test_drain_and_back(make_site):
    site = make_site(1)
    address = ["--gateway", site.address]
    (worker,) = answer(quick("workers", "--json", *address))
    assert "is draining" in quick("drain", worker["name"], *address)
    with site.client() as client:
        future = client.submit(square, 4)
        assert answer(quick("workers", "--json", *address))[0]["state"] == "draining"
        assert not future.done()
        quick("drain", worker["name"], "--undo", *address)
        assert future.result(timeout=300) == 16
    assert "--all" in quick("drain", *address, code=2)
    quick("drain", "--all", "--yes", *address)
    done = CliRunner().invoke(cli, ["status", "--json", *address])
    found = answer(done.stdout)
    assert (done.exit_code, found["state"]) == (1, "draining")
    assert [each["code"] for each in found["problems"]] == ["site-drained"]


def test_a_host_is_drained_until_it_is_resumed_whatever_restarts(make_site, tmp_path):
    site = make_site(1)
    address = ["--gateway", site.address]
    host = socket.gethostname()
    with site.client() as client:
        future = client.submit(_until_there, str(tmp_path / "go"))
        wait_until(lambda: slot_states(site) == ["running"], "the start of the task")
        [row] = answer(quick("workers", "--json", *address))
        [job] = row["jobs"]
        assert (row["host"], job["id"], job["tasks"]) == (host, future.job, 1)
        shown = quick("workers", *address)
        assert job["user"] in shown
        assert host in shown
        told = quick("drain", "--host", host.upper(), *address)
        assert told == f"host {host.lower()} (1 worker) is draining\n"
        assert "draining (operator)" in quick("workers", *address)
        (tmp_path / "go").touch()
        assert future.result(300) == "done", "its running task ends there"
        waiting = client.submit(square, 3)
        site.add_worker(1, "--name", "later")
        wait_until(lambda: "worker later joined" in site.gateway.text(), "another agent")
        site.kill()
        site.start()
        wait_until(
            lambda: (
                [each["state"] for each in answer(quick("workers", "--json", *address))]
                == ["draining"] * 2
            ),
            "both are back, and drained",
        )
        assert not waiting.done()
        [row] = answer(quick("drain", "--list", "--json", *address))
        assert (row["kind"], row["name"], row["workers"]) == ("host", host.lower(), 2)
        assert host.lower() in quick("drain", "--list", *address)
        assert "takes work again" in quick("drain", "--host", host, "--resume", *address)
        assert waiting.result(300) == 9
        assert "is not drained" in quick("drain", "--host", host, "--resume", *address, code=1)
        whole = "the whole site takes no new jobs: `gridfed drain --all --resume` ends that"
        assert whole not in quick("drain", "--list", *address)
        quick("drain", "--all", "--yes", *address)
        assert whole in quick("drain", "--list", *address)


def _until_there(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    return "done"


def test_a_waiting_job_says_why(make_site):
    site = make_site(1)
    address = ["--gateway", site.address]
    (worker,) = answer(quick("workers", "--json", *address))
    quick("drain", worker["name"], *address)
    with site.client() as client:
        future = client.submit(square, 4)
        found = answer(quick("job", future.job, "--json", *address))
        assert found["why_waiting"][0]["reason"] == "draining"
        explained = quick("explain", future.job, *address)
        assert "1 task waiting: the only worker is draining: ordered by an operator" in explained
        assert "takes nothing new: its worker drains: an operator has ordered it" in explained
        assert "has no workers now" not in explained
        done = CliRunner().invoke(cli, ["status", *address])
        assert done.exit_code == 1
        assert "1 (1 draining)" in done.stdout
        assert f"`gridfed drain {worker['name']} --resume` ends it" in done.output
        quick("drain", worker["name"], "--undo", *address)
        future.result(timeout=300)


def test_reports_agree_to_the_nano_unit(site):
    with site.client() as client:
        results = client.options(project="reported").map(square, range(3000))
        list(results)
        client.job(results.job).wait(200)
        cost = client.job(results.job).cost()
    groupings = ("project", "user,project", "job,project", "day,project", "pool,project,name")
    for by in (*groupings, "week,weekday,project", "month,hour-of-day,project,worker"):
        found = answer(quick("report", "cost", "--by", by, "--json"))
        mine = [row for row in found["rows"] if row["project"] == "reported"]
        assert sum(row["cost_nanos"] for row in mine) == cost.nanos
        everything = sum(row["cost_nanos"] for row in found["rows"])
        assert everything == found["totals"][0]["cost_nanos"]
        assert everything == found["facts"]["settled_nanos"]["USD"]
    everything = answer(quick("report", "cost", "--all", "--json"))
    assert everything["totals"] == answer(quick("report", "cost", "--json"))["totals"]
    assert everything["facts"]["whose"] == "all"
    chosen = ["--where", "project=reported", "--by", "project,site"]
    (row,) = answer(quick("report", "usage", *chosen, "--json"))["rows"]
    assert (row["site"], row["tasks"], row["tasks_failed"]) == ("local", 3000, 0)
    table = csv.DictReader(io.StringIO(quick("report", "usage", "--by", "job", "--csv")))
    (row,) = [row for row in table if row["job"] == results.job]
    assert int(row["cost_nanos"]) == cost.nanos
    assert int(row["tasks"]) == 3000
    shown = quick("report", "usage", "--by", "project")
    assert "reported" in shown
    assert "tasks failed" in shown
    assert "total" in shown
    assert "nothing is recorded" in quick("report", "cost", "--to", "2001-01-01")


def test_every_kind_of_report(site, tmp_path):
    with site.client() as client:
        list(client.options(project="kinds").map(square, range(10)))
        for kind in ("cost", "usage", "carbon", "savings", "showback"):
            found = client.ask("report", kind=kind, by=["project"])
            assert "kinds" in [row[0] for row in found["rows"]]
            assert found["facts"]["as_of_s"] > 0
    kept = ["report", "savings", "--static-price", "1 USD", "--json"]
    assert answer(quick(*kept))["facts"]["static"]["USD"]["price_nanos"] == 10**9
    assert "static: a grid of" in quick("report", "savings")

    # What stands there unused is in the report long before it is in the books.
    def idle_ns():
        found = answer(quick("report", "utilisation", "--json"))
        return [row["slot_ns"] for row in found["rows"] if row["use"] == "idle"]

    wait_until(lambda: any(each > 10**9 for each in idle_ns()), "idle slots")
    assert "idle" in quick("report", "utilisation", "--by", "hour-of-day,weekday")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "report.parquet")
    assert "written to" in quick("report", "cost", "--by", "project", "--parquet", path)
    found = answer(quick("report", "cost", "--by", "project", "--json"))
    assert [row["project"] for row in parquet.read_table(path).to_pylist()] == [
        row["project"] for row in found["rows"]
    ]


def test_what_runs_is_an_estimate_and_told_apart(make_site):
    site = make_site(1, config='[groups]\n"equity desk" = ["ann"]\n')
    address = ["--gateway", site.address]
    with site.client(user="ann") as client:
        # The first one tells how long it takes.
        assert client.submit(time.sleep, 0.02).result(timeout=300) is None
        job = client.submit_job(time.sleep, [600])
        wait_until(lambda: job.details()["in_flight"] == 1, "the start of the task")
        found = job.details()
        assert found["cost_nanos"] == 0
        assert found["estimated_costs_nanos"]["USD"] > 0
        assert found["as_of_s"] > 0
        assert "more, for the tasks in progress" in quick("job", job.id, *address)
        report = ["report", "cost", "--by", "group", "--json", *address]
        (row,) = answer(quick(*report))["rows"]
        facts = answer(quick(*report))["facts"]
        assert row["group"] == "equity desk"
        assert facts["settled_nanos"] == facts["booked_nanos"] == {"USD": row["cost_nanos"]}
        later = job.details()["estimated_costs_nanos"]["USD"]
        assert found["estimated_costs_nanos"]["USD"] <= facts["estimated_nanos"]["USD"] <= later
        others = answer(quick(*report, "--where", "group=cooks"))
        assert (others["rows"], others["facts"]["estimated_nanos"]) == ([], {})
        job.cancel(stop=True)


@pytest.mark.thorough
def test_slots_are_counted_across_a_kill(make_site):
    site = make_site(1)
    began_s = time.time()
    site.kill()
    site.start()

    def idle_ns():
        found = answer(quick("report", "utilisation", "--json", "--gateway", site.address))
        return sum(row["slot_ns"] for row in found["rows"] if row["use"] == "idle")

    wait_until(lambda: idle_ns() > 10**9, "idle slots")
    site.gateway.stop()
    site.start()
    assert 10**9 < idle_ns() < (time.time() - began_s + 1) * 1e9


def test_names_that_are_code_are_names_in_every_report(make_site):
    site = make_site(1)
    address = ["--gateway", site.address]
    name = "=1+1'; DROP TABLE usage; --<script>[bold]"
    with site.client(user=name) as client:
        assert client.options(project=name, name=name).submit(square, 3).result(timeout=300) == 9
    by = ["--by", "user,project,name"]
    assert name in quick("report", "usage", *by, *address)
    row, *_ = csv.DictReader(io.StringIO(quick("report", "savings", *by, "--csv", *address)))
    assert row["user"] == row["project"] == row["name"] == f"'{name}"
    chosen = ["--where", f"user={name}", "--json", *address]
    (row,) = answer(quick("report", "cost", *chosen))["rows"]
    assert row["user"] == name


@pytest.mark.parametrize(
    ("details", "complaint"),
    [
        ({"kind": "profit"}, "unknown report 'profit'"),
        ({"kind": ["cost"]}, "kind must be text"),
        ({"by": "user"}, "`by` must be a list"),
        ({"by": ["colour"]}, "no report by 'colour'"),
        ({"where": ["project"]}, "`where` must be a list of pairs"),
        ({"where": [["project", 7]]}, "`where` must be a list of pairs"),
        ({"start_s": "yesterday"}, "seconds since 1970"),
        ({"start_s": float("nan")}, "between the years"),
        ({"start_s": 5, "end_s": 5}, "ends before it begins"),
        ({"kind": "utilisation", "start_s": 60}, "by the hour"),
        ({"kind": "utilisation", "by": ["user"]}, "utilisation can't be reported by 'user'"),
        ({"kind": "showback", "where": [["user", "ann"]]}, "add it to --by"),
        ({"whose": 3}, "whose must be text"),
        ({"whose": "theirs"}, "not 'theirs'"),
        ({"kind": "utilisation", "whose": "ours"}, "covers the work"),
        ({"kind": "savings", "static_price": 3}, "static_price must be text"),
        ({"kind": "savings", "static_price": "-1 USD"}, "negative"),
    ],
)
def test_a_question_for_a_report_that_is_wrong_is_answered_in_words(site, details, complaint):
    with site.client() as client, pytest.raises(GridError, match=complaint):
        client.ask("report", **details)


def test_bad_words_are_told(site):
    assert "choose from" in quick("report", "cost", "--by", "colour", code=2)
    assert "only one of" in quick("report", "cost", "--csv", "--json", code=2)
    days = ["--from", "2026-01-02", "--to", "2026-01-01"]
    assert "is not before" in quick("report", "cost", *days, code=2)
    assert "2026-11-20" in quick("report", "cost", "--from", "yesterday", code=2)
    assert "Check the address" in run(
        "status", "--gateway", "ipc:///nowhere/at/all", code=5, anew=True
    )
    assert "must start with" in quick("status", "--gateway", "ws://localhost:1", code=2)
    assert "must end with a port" in quick("status", "--gateway", "tcp://localhost:99999", code=2)
    assert "the limit is 107" in quick("status", "--gateway", f"ipc:///{'x' * 200}", code=2)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[site]\nnmae = 'x'\n", "unknown key 'nmae'"),
        ("[[pool]]\nname = 'p'\nprice = '-1 USD'\n", "negative"),
        ("[[pool]]\nname = 'p'\nkind = 'cloud'\n", "must be"),
        ("[limits]\ngrace_s = 'long'\n", "is not a length of time"),
        ("[site\n", "site.toml"),
        ("[[pool]]\nname = 'p'\nslots = 2\n", "for local pools"),
        ("[[pool]]\nname = 'p'\nkind = 'local'\nmemory_bytes = 9\n", "at least 64 MiB"),
        ("[[pool]]\nname = 'p'\n[[pool]]\nname = 'p'\n", "same name"),
    ],
)
def test_a_bad_configuration_is_told_with_its_place(tmp_path, text, complaint):
    path = tmp_path / "site.toml"
    path.write_text(text)
    assert complaint in quick("gateway", "--config", str(path), "--state", str(tmp_path), code=2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["up", "--price", "free"], "is not an amount of money"),
        (["up", "--memory", "1"], "at least 64M"),
        (["up", "--memory", "-1G"], "is not a size"),
        (["up", "--listen", "foo"], "Invalid value for --listen"),
        (["gateway", "--config", "/nonexistent.toml"], "No such file"),
        (["status", "--gateway", "127.0.0.1:5555"], "must start with"),
    ],
)
def test_a_command_that_is_wrong_is_told_apart_from_one_that_failed(tmp_path, arguments, complaint):
    state = ["--state", str(tmp_path)] if arguments[0] != "status" else []
    assert complaint in quick(*arguments, *state, code=2)


def test_a_gateway_does_not_start_where_another_distribution_owns_a_package_of_ours(tmp_path):
    other = tmp_path / "impostor-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: impostor\nVersion: 1.0\n")
    (other / "top_level.txt").write_text("policies\n")
    said = run("gateway", "--state", str(tmp_path), code=1, PYTHONPATH=str(tmp_path))
    assert "package 'policies' also belongs to impostor" in said


def test_tags_of_workers_and_pools(make_site):
    config = '[[pool]]\nname = "gpus"\nprice = "1 EUR"\ntags = { cuda = true }\n'
    site = make_site(0, config=config)
    site.add_worker(2, "--pool", "gpus", "--tags", "gpu=2,linux")
    with site.client() as client:
        view = client.options(tags={"cuda": True, "gpu": 1, "linux": True})
        assert view.submit(square, 5).result(timeout=300) == 25
        assert client.job(client.jobs()[0]["id"]).cost().currency == "EUR"


@pytest.mark.thorough
def test_a_second_interrupt_ends_it_at_once(make_site):
    site = make_site(1)
    client = site.client()
    client.submit(time.sleep, 600)
    wait_until(lambda: slot_states(site) == ["running"], "the start of the task")
    family = psutil.Process(site.gateway.pid).children(recursive=True)
    site.gateway.process.send_signal(signal.SIGINT)
    # The worker waits for its running task now, and the gateway for the worker.
    wait_until(lambda: "a second signal stops" in site.gateway.text(), "its answer")
    site.gateway.process.send_signal(signal.SIGINT)
    assert site.gateway.process.wait(200) == 130
    _gone, alive = psutil.wait_procs(family, timeout=200)
    assert not alive
    client.shutdown(wait=False, cancel_futures=True)


def until_there(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    return "done in time"


def test_a_gateway_that_stops_lets_running_tasks_end(make_site, tmp_path):
    site = make_site(1)
    client = site.client()
    future = client.submit(until_there, str(tmp_path / "go"))
    wait_until(lambda: slot_states(site) == ["running"], "the start of the task")
    site.gateway.process.send_signal(signal.SIGINT)
    wait_until(lambda: "running tasks have" in site.gateway.text(), "its answer")
    (tmp_path / "go").touch()
    assert future.result(timeout=300) == "done in time"
    assert site.gateway.process.wait(200) == 0
    client.shutdown(wait=False, cancel_futures=True)


def slot_states(site):
    found = answer(quick("workers", "--json", GRIDFED_GATEWAY=site.address))
    return [slot["state"] for worker in found for slot in worker["slot_details"]]


def test_a_worker_that_is_refused_says_so_once(make_site):
    site = make_site(1)
    worker = site.add_worker(1, "--pool", "nope")
    wait_until(lambda: site.gateway.text().count("left: pool ") > 2, "three tries")
    assert worker.text().count("choose one with --pool; the pools are local") == 1


@pytest.mark.thorough
def test_workers_of_one_name_drain_together_and_that_is_said(make_site):
    site = make_site(0)
    for _ in range(2):
        site.add_worker(1, "--name", "twin")
    wait_until(lambda: site.gateway.text().count("worker twin joined") == 2, "the twins")
    told = quick("drain", "twin", "--gateway", site.address)
    assert told == "worker twin (2 workers of that name) is draining\n"


@pytest.mark.thorough
def test_a_worker_that_is_stopped_at_once_is_not_waited_for(make_site):
    site = make_site(0)
    worker = site.add_worker(1, "--name", "hasty")
    with site.client() as client:
        client.submit(time.sleep, 600)
        wait_until(lambda: slot_states(site) == ["running"], "the start of the task")
        worker.process.send_signal(signal.SIGINT)
        wait_until(lambda: "a second signal stops it at once" in worker.text(), "its answer")
        worker.process.send_signal(signal.SIGINT)
        assert worker.process.wait(200) == 130
        wait_until(lambda: "worker hasty left" in site.gateway.text(), "its goodbye")
        assert "did not reconnect" not in site.gateway.text()
        client.shutdown(wait=False, cancel_futures=True)


def test_a_worker_joins_what_up_has_started(make_site):
    site = make_site(1)
    site.add_worker(1, "--name", "guest")
    wait_until(lambda: "worker guest joined" in site.gateway.text(), "the worker")


@pytest.fixture
def tls_site(make_site, tmp_path):
    """A site that shows a certificate and asks for one, and the options to come in with."""
    own, pinned = make_certificate(tmp_path, "gateway")
    mine, known = make_certificate(tmp_path, "dialler")
    config = f'[site]\ntls_certificate_file = "{own}"\ntls_ca_file = "{known}"\n'
    site = make_site(0, "--listen", "tls+tcp://127.0.0.1:0", config=config)
    ca = ["--gateway", site.ready["addresses"][1], "--tls-ca-file", pinned]
    return site, ca, ["--tls-certificate-file", mine]


@pytest.mark.thorough
def test_every_question_can_be_asked_over_mutual_tls(tls_site):
    _, ca, certificate = tls_site
    assert answer(quick("status", "--json", *ca, *certificate))["state"] == "up"
    assert "no workers" in quick("workers", *ca, *certificate)
    assert "the TLS handshake fails" in run("status", *ca, code=5, anew=True)


def test_a_worker_joins_over_mutual_tls_without_naming_the_host(tls_site):
    site, ca, certificate = tls_site
    site.add_worker(1, "--name", "over-tls", *ca, *certificate)
    wait_until(lambda: "worker over-tls joined" in site.gateway.text(), "the worker")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_tls_file_that_is_no_good_is_named(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    address = ["--gateway", "tls+tcp://127.0.0.1:1", "--tls-ca-file", str(path)]
    assert str(path) in quick("status", *address, code=2)


@pytest.mark.parametrize(
    ("arguments", "complaint", "code"),
    [
        (["--state", "/proc/nobody/state"], "/proc/nobody/state can't be made in /proc", 2),
        (["--listen", "ipc:///proc/nobody/gw.sock"], "folder /proc/nobody could not be created", 1),
    ],
)
def test_a_gateway_that_can_not_start_says_why_in_a_line(tmp_path, arguments, complaint, code):
    told = run("gateway", "--state", str(tmp_path), *arguments, code=code)
    assert complaint in told
    assert "Traceback" not in told


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_gateway_names_its_certificate_file_when_it_is_no_good(tmp_path, content):
    path = tmp_path / "own.pem"
    if content is not None:
        path.write_text(content)
    config = tmp_path / "site.toml"
    config.write_text(
        f'[site]\nlisten = ["tls+tcp://127.0.0.1:0"]\nstate = "{tmp_path}"\n'
        f'tls_certificate_file = "{path}"\n'
    )
    told = run("gateway", "--config", str(config), code=2)
    assert f"{config}: line 4: [site] tls_certificate_file: {path}" in told
    assert "Traceback" not in told


def test_another_host_joins_as_the_readme_says(make_site, monkeypatch):
    monkeypatch.setenv("GRIDFED_SECRET", "a" * 64)
    site = make_site(1, "--listen", "tcp://0.0.0.0:0")
    port = site.ready["addresses"][1].rpartition(":")[2]
    site.address = f"tcp://127.0.0.1:{port}"
    site.add_worker(1, "--name", "other", "--tags", "gpu=1")
    wait_until(lambda: "worker other joined" in site.gateway.text(), "the other host")
    with site.client() as client:
        assert client.options(tags={"gpu": 1}).submit(square, 5).result(timeout=300) == 25


def test_a_gateways_log_says_when(site):
    joined = [line for line in site.gateway.text().splitlines() if "joined" in line]
    assert joined
    for line in joined:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line)


def test_wrong_usage_ends_with_2_and_a_refusal_with_1(tmp_path):
    gone = str(tmp_path / "gone")
    client_file = {"GRIDFED_CLIENT_FILE": str(tmp_path / "client.toml")}
    address = "tcp://127.0.0.1:1"
    init = ("init", "--client", address, "--yes", "--token-file", gone)
    assert "token_file" in quick(*init, code=2, **client_file)
    assert "must start with one of" in run("worker", "--gateway", "foo", code=2)
    config = tmp_path / "site.toml"
    config.write_text("")
    said = quick("windows", "nowhere", "--config", str(config), "--file-only", code=1)
    assert "no pool 'nowhere' here" in said


def test_no_client_file_is_left_where_no_gateway_is_reached(tmp_path):
    file, token = tmp_path / "client" / "client.toml", tmp_path / "token"
    token.write_text("gf1.x.y\n")
    init = (
        "init",
        "--client",
        f"ipc://{tmp_path}/nobody.sock",
        "--yes",
        "--token-file",
        str(token),
    )
    run(*init, code=5, GRIDFED_CLIENT_FILE=str(file))
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["token"]


def test_each_line_of_a_log_has_its_time(tmp_path):
    listen = ("--listen", f"ipc://{tmp_path}/gw.sock", "--state", str(tmp_path / "state"))
    gateway = Process(["up", "--slots", "1", *listen, "--json"], tmp_path, "gateway")
    try:
        gateway.wait_ready()
        wait_until(lambda: "works for site" in gateway.text())
    finally:
        gateway.stop()
    lines = gateway.text().splitlines()
    assert len(lines) > 4
    assert [each for each in lines if not re.match(r"\d{4}-\d\d-\d\dT[\d:]{8}Z ", each)] == []
