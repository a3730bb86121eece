"""Tokens, and whose results are opened: real gateways, by the commands of their operators."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.answers import answer
from support.members import MemberSite, dear_and_cheap, distrusts, federated, run
from support.processes import Process, make_certificate, wait_until

from federation import Client
from federation.errors import (
    CostLimitReached,
    GatewayUnreachable,
    GridError,
    JobRefused,
    RemoteError,
    ResultUntrusted,
    SessionRefused,
)
from federation.transport import TlsSettings

pytestmark = [pytest.mark.slow, pytest.mark.real]


def square(number):
    return number * number


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A dear small site and a cheap larger one without faults."""
    with dear_and_cheap(tmp_path_factory.mktemp("grants")) as members:
        yield members


def free_port():
    """A free port; a door's port must be known before its gateway starts."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def token(member, *options):
    return answer(run("token", *options, *member.where, "--json"))["token"]


def nap(seconds):
    time.sleep(seconds)


def costs_of(member, user):
    report = member.ask("report", kind="usage", by=["user"], whose="all")
    return [row[report["columns"].index("cost_nanos")] for row in report["rows"] if row[0] == user]


def test_a_tiny_cost_limit_buys_no_long_run_abroad(pair):
    """Its grant pays for a moment: the seller stops it, both sites charge the allowed amount."""
    london, paris = pair
    with london.client(user="thrifty") as client:
        view = client.options(sites=["paris"], max_cost="0.000001 USD")
        with pytest.raises(CostLimitReached, match="cost limit"):
            view.submit(nap, 3600).result(timeout=300)
    wait_until(lambda: costs_of(london, "thrifty") == costs_of(paris, "thrifty@london") == [1000])


def test_a_job_goes_abroad_as_the_user_that_its_token_names(pair):
    london, paris = pair
    text = token(london, "--user", "ada", "--projects", "risk")
    with london.client(token=text, user="mallory") as client:
        view = client.options(project="risk", sites=["paris"])
        assert list(view.map(square, range(100))) == [n * n for n in range(100)]
        rows = paris.ask("report", kind="usage", by=["user", "project"], whose="all")["rows"]
        assert ["ada@london", "risk"] in [row[:2] for row in rows]


def submit_again(begun, revoked):
    """A task that is a client: why its pass counts no more, once a file is there."""
    with Client() as client:
        assert client.submit(square, 3).result(timeout=300) == 9
    Path(begun).touch()
    wait_until(Path(revoked).exists, "the token is revoked")
    deadline_s = time.monotonic() + 300.0
    while time.monotonic() < deadline_s:
        try:
            with Client() as client:
                client.submit(square, 3).result(timeout=60)
        except GridError as error:
            return f"{type(error).__name__}: {error}"
    return "it is good still"


def test_a_task_is_no_client_any_more_when_the_token_of_its_job_is_revoked(pair, tmp_path):
    london, _ = pair
    text = token(london, "--user", "ada")
    begun, revoked = tmp_path / "begun", tmp_path / "revoked"
    with london.client(token=text) as client:
        view = client.options(sites=["london"])
        job = view.submit_job(submit_again, [(str(begun), str(revoked))], star=True)
    wait_until(begun.exists, "its task came in")
    run("token", "--revoke", text, *london.where)
    revoked.touch()
    with london.client(token=token(london, "--user", "ada")) as client:
        assert "revoked" in next(client.job(job.id).results())


def test_a_token_is_good_for_its_projects_and_scopes_only(pair):
    london, _ = pair
    text = token(london, "--user", "ada", "--projects", "risk")
    with london.client(token=text) as client:
        with pytest.raises(JobRefused) as caught:
            client.options(project="fx").submit(square, 2).result(timeout=300)
        assert caught.value.code == "project-not-allowed"
        with pytest.raises(GridError, match="admin"):
            client.ask("drain", on=True)
    looking = token(london, "--user", "eve", "--scopes", "report")
    with london.client(token=looking) as client:
        with pytest.raises(JobRefused) as caught:
            client.submit(square, 2).result(timeout=300)
        assert caught.value.code == "scope-missing"
        assert client.ask("report", kind="usage", by=["user"])["columns"]


def test_a_token_of_one_project_touches_no_other_of_its_user(pair):
    london, _ = pair
    whole = token(london, "--user", "ada")
    narrow = token(london, "--user", "ada", "--projects", "fx")
    with london.client(token=whole) as client, london.client(token=narrow) as other:
        view = client.options(project="risk", sites=["london"])
        ended = view.submit_job(square, [3])
        assert list(ended.results()) == [9]
        ended.wait(300)
        running = view.submit_job(time.sleep, [900])
        for verb, details in (
            ("job", {"job": ended.id}),
            ("results", {"job": ended.id}),
            ("forget", {"job": ended.id}),
            ("explain", {"job": running.id}),
            ("explain", {"project": "risk"}),
        ):
            with pytest.raises(
                GridError, match=r"no job|no detached job|another user|never was|it covers fx"
            ):
                other.ask(verb, **details)
        with pytest.raises(GridError, match="risk"):
            other.job(running.id).cancel(stop=True)
        assert client.ask("job", job=running.id)["state"] == "running"
        running.cancel(stop=True)


def test_a_token_that_is_revoked_ends_its_session(pair):
    london, _ = pair
    text = token(london, "--user", "ada")
    with london.client(token=text) as client:
        assert client.submit(square, 3).result(timeout=300) == 9
        run("token", "--revoke", text, *london.where)
        with pytest.raises((SessionRefused, GatewayUnreachable), match="revoked"):
            wait_until(lambda: client.ask("status") is None, "the end of the session")
    with pytest.raises(SessionRefused, match="revoked"):
        london.client(token=text)


def test_a_client_opens_no_results_of_sites_that_its_user_does_not_trust(pair):
    london, _ = pair
    with london.client(trusted_sites=[]) as client:
        view = client.options(sites=["paris"])
        with pytest.raises(ResultUntrusted, match="paris"):
            view.submit(square, 2).result(timeout=300)
        with pytest.raises(RemoteError, match="ZeroDivisionError"):
            view.submit(divmod, 1, 0).result(timeout=300)
        job = view.submit_job(square, [1, 2, 3])
        assert {type(each) for each in job.results(return_exceptions=True)} == {ResultUntrusted}
        assert client.options(sites=["london"]).submit(square, 3).result(timeout=300) == 9
    with london.client(trusted_sites=["paris"]) as client:
        assert client.options(sites=["paris"]).submit(square, 2).result(timeout=300) == 4


def test_no_work_goes_where_the_operator_takes_no_pickles_from(pair):
    london, paris = pair
    run("trust", "paris", "--no-pickles", *london.where)
    try:

        def reasons():
            found = london.ask("explain", tasks=100_000, task_s=1.0)
            return {group["reason"] for group in found["refused"]}

        wait_until(lambda: reasons() == {"results-not-trusted"}, "the new rule")
        before = paris.ask("status")["tasks_done"]
        with london.client() as client:
            assert sum(client.map(square, range(1000))) == sum(n * n for n in range(1000))
        assert paris.ask("status")["tasks_done"] == before
    finally:
        run("trust", "paris", "--pickles", *london.where)
        # Else whoever comes next finds that nobody may run it.
        wait_until(lambda: not distrusts(london), "the old rule")


def test_where_tokens_are_required_they_come_over_tls_and_nothing_else_does(tmp_path):
    both, leaf = make_certificate(tmp_path, "site")
    site = MemberSite(tmp_path, "london", 1, "1 USD", start=False)
    text = site.config.read_text()
    tls = f'token_required = true\ntls_certificate_file = "{both}"\n'
    text = text.replace("listen = [", f'{tls}listen = ["tls+tcp://127.0.0.1:0", ', 1)
    site.config.write_text(text + '\n[[pool]]\nname = "far"\n')
    site.start()
    worker = None
    try:
        address = next(each for each in site.ready["addresses"] if each.startswith("tls+tcp"))
        seen = TlsSettings(ca_file=leaf, server_name="localhost")
        with pytest.raises(SessionRefused, match="requires a token"):
            Client(address, tls=seen)
        with Client(address, tls=seen, token=token(site, "--user", "ada")) as client:
            assert client.submit(square, 5).result(timeout=300) == 25
            reach = ["--gateway", address]
            reach += ["--tls-ca-file", leaf, "--tls-server-name", "localhost"]
            own = tmp_path / "ada.token"
            own.write_text(token(site, "--user", "ada") + "\n")
            assert "requires a token" in run("status", *reach, code=1)
            assert "site london: up" in run("status", *reach, "--token-file", str(own))
            assert "the file is empty" in run("status", *reach, "--token-file", "/dev/null", code=2)
            command = ["worker", *reach, "--pool", "far", "--slots", "1"]
            refused = subprocess.run(
                [sys.executable, "-m", "gateway", *command], capture_output=True, timeout=60
            )
            assert refused.returncode == 77
            assert b"requires a token" in refused.stderr
            file = tmp_path / "worker.token"
            file.write_text(token(site, "--user", "host-1", "--scopes", "work:local") + "\n")
            worker = Process([*command, "--token-file", str(file)], tmp_path, "elsewhere")
            said = "its token does not cover pool far"
            wait_until(lambda: said in site.gateway.text(), "the refusal")
            worker.stop()
            file.write_text(token(site, "--user", "host-1", "--scopes", "work:far") + "\n")
            worker = Process([*command, "--token-file", str(file)], tmp_path, "worker")
            wait_until(
                lambda: "far" in {each["pool"] for each in client.ask("workers")}, "the worker"
            )
    finally:
        if worker is not None:
            worker.stop()
        site.gateway.stop()


@pytest.mark.thorough
def test_a_client_that_loses_its_gateway_goes_to_a_site_that_it_never_heard_of(tmp_path):
    both, alone = make_certificate(tmp_path)
    doors = [f"tls+tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    members = tuple(
        MemberSite(tmp_path, name, 1, "1 USD", start=False) for name in ("london", "paris")
    )
    for member, door in zip(members, doors, strict=True):
        text = member.config.read_text()
        text = text.replace('gateway.sock"]', f'gateway.sock", "{door}"]', 1)
        text = text.replace("[site]\n", f'[site]\ntls_certificate_file = "{both}"\n', 1)
        text = text.replace("[federation]\n", f'[federation]\ndoors = ["{door}"]\n', 1)
        member.config.write_text(text)
        member.start()
    london, paris = members
    with federated(*members):
        run("trust", "london", "--users", "--may-send", "all", "--may-run", "all", *paris.where)
        text = token(london, "--user", "ada", "--sites", "london,paris")
        tls = TlsSettings(ca_file=alone, server_name="localhost")
        with (
            Client(doors[0], token=text, tls=tls) as client,
            Client(doors[0], token=text, tls=tls, trusted_sites=["london"]) as wary,
        ):
            for each in (client, wary):
                wait_until(lambda each=each: each._engine._line.itinerary.has_others, "the door")
                assert each.submit(square, 3).result(timeout=300) == 9
            london.gateway.kill()
            assert client.submit(square, 4).result(timeout=300) == 16
            assert client.address == doors[1]
            with pytest.raises(ResultUntrusted, match="paris"):
                wary.submit(square, 4).result(timeout=300)
        rows = paris.ask("report", kind="usage", by=["user"], whose="all")["rows"]
        assert "ada@london" in [row[0] for row in rows]
