"""An operator and a user of one real site: cancel, hold, release, prioritise."""

import os
import time
from concurrent.futures import CancelledError
from functools import partial

import pytest
from click.testing import CliRunner
from support.answers import answer
from support.command import run
from support.members import MemberSite
from support.members import run as run_plainly
from support.processes import wait_until

from federation import Client
from federation.errors import GridError, TaskStopped
from gateway.cli.main import cli

pytestmark = [pytest.mark.slow, pytest.mark.real]
WAIT_S = 200


def nap(folder, number):
    """Run until a file appears."""
    with open(os.path.join(folder, f"begun-{number}"), "w"):
        pass
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.01)
    return number


@pytest.fixture
def site(tmp_path):
    made = MemberSite(tmp_path, "london", slots=1, price="1 USD")
    yield made
    made.gateway.stop()


def begun(folder):
    return len(list(folder.glob("begun-*")))


def user_token(site, user, *scopes):
    made = run_plainly(
        *("token", "--user", user, *(("--scopes", ",".join(scopes)) if scopes else ())),
        *(*site.where, "--json"),
    )
    return answer(made)["token"]


def test_an_operator_holds_and_cancels_a_users_job_and_the_log_says_so(site, tmp_path, monkeypatch):
    monkeypatch.setenv("GRIDFED_GATEWAY", site.address)
    work = tmp_path / "work"
    work.mkdir()
    with Client(site.address, token=user_token(site, "bob")) as client:
        view = client.options(project="risk", name="nightly")
        job = view.submit_job(partial(nap, str(work)), range(4))
        wait_until(lambda: begun(work) == 1, WAIT_S)
        title = f"job {job.id} of bob, project risk"
        assert run("hold", job.id).startswith(f"{title}: held; ")
        assert job.held_by
        (work / "go").touch()
        wait_until(lambda: job.details()["in_flight"] == 0, WAIT_S)
        assert (job.progress().done, begun(work)) == (1, 1)
        assert "the operator releases it with `gridfed release" in job.why_waiting()
        with pytest.raises(GridError, match="only the operator can release it"):
            job.release()

        site.gateway.stop()
        site.start()
        monkeypatch.setenv("GRIDFED_GATEWAY", site.address)
        found = answer(run("job", job.id, "--json"))
        assert found["held_by"]
        assert (found["done"], found["in_flight"]) == (1, 0)
        assert "held" in run("jobs")
        assert "Once it is released:" in run("explain", job.id)
        assert run("prioritise", job.id, "-5") == f"{title}: priority -5 instead of 0\n"
        assert run("release", job.id) == f"{title}: released\n"
        wait_until(lambda: answer(run("job", job.id, "--json"))["done"] == 4, WAIT_S)
    # Orders about one job within some seconds share a line: the last of them comes later.
    line = f"the gateway's own socket): {title}: released"
    wait_until(lambda: line in site.gateway.text(), WAIT_S)


def test_an_operator_cancels_by_a_token_of_scope_admin_and_another_user_does_not(
    site, tmp_path, monkeypatch
):
    work = tmp_path / "work"
    work.mkdir()
    tokens = {}
    for user, scopes in (("bob", ()), ("eve", ()), ("ops", ("admin",))):
        tokens[user] = tmp_path / f"{user}.token"
        tokens[user].write_text(user_token(site, user, *scopes))
        tokens[user].chmod(0o600)
    monkeypatch.setenv("GRIDFED_GATEWAY", site.address)
    with Client(site.address, token=tokens["bob"].read_text()) as client:
        view = client.options(project="risk", name="nightly")
        job = view.submit_job(partial(nap, str(work)), range(4))
        wait_until(lambda: begun(work) == 1, WAIT_S)
        job.hold()
        assert (job.held_by, job.state) == ("bob", "running")
        with pytest.raises(GridError, match="it has been held by bob since"):
            job.hold()
        job.release()
        job.prioritise(2)
        assert (job.held_by, job.details()["priority"]) == ("", 2.0)
        refused = CliRunner().invoke(cli, ["cancel", job.id, "--token-file", str(tokens["eve"])])
        assert refused.exit_code == 1
        assert "none of your unfinished jobs has that id" in refused.output
        title = f"job {job.id} of bob, project risk"
        with Client(site.address, token=tokens["eve"].read_text()) as other:
            twin = other.options(name="nightly").submit_job(abs, [1])
            by_ops = ["--token-file", str(tokens["ops"])]
            refused = CliRunner().invoke(cli, ["cancel", "nightly", *by_ops])
            assert refused.exit_code == 1
            assert "'nightly' may mean several unfinished jobs" in refused.output
            assert f"  {twin.id}  nightly, waiting, of eve, submitted" in refused.output
            run("cancel", "--stop", twin.id, *by_ops)
        done = run("cancel", "--stop", "nightly", *by_ops)  # of another user, by its name
        assert done == f"{title}: 4 tasks cancelled\n"
        (work / "go").touch()
        assert job.wait(WAIT_S) == "cancelled"
        by = "cancelled by ops, the operator"
        assert job.details()["reason"] == by
        assert f"({by})" in run("job", job.id, "--token-file", str(tokens["bob"]))
        with pytest.raises(TaskStopped, match=by):
            list(job.results())
        (work / "own").mkdir()
        own = client.submit(nap, str(work / "own"), 1)
        wait_until(lambda: begun(work / "own") == 1, WAIT_S)
        run("cancel", "--stop", own.job, *by_ops)
        with pytest.raises(CancelledError, match=f"task 0 of job {own.job}: {by}"):
            own.result(WAIT_S)
    log = site.gateway.text()
    assert f"{title}: 4 tasks cancelled" in log
    assert "order by ops (uid " in log
    assert f"cancel of {title}: none of your unfinished jobs has that id" in log
    assert "refused order by eve (uid " in log


def test_a_lost_token_is_found_in_the_list_and_revoked_without_its_text(site):
    """Also after a restart; its open session ends before the command does."""
    lost, kept = user_token(site, "bob"), user_token(site, "bob")
    other = user_token(site, "ann")
    site.gateway.stop()
    site.start()
    with Client(site.address, token=lost) as client, Client(site.address, token=other) as ann:
        assert client.ask("status")
        rows = answer(run("tokens", "list", "--user", "bob", *site.where, "--json"))
        assert len(rows) == 2
        [found] = [row for row in rows if row["used_at_s"]]
        said = run("tokens", "revoke", found["id"], *site.where)
        assert said == f"token {found['id']} of bob is revoked\n"
        with pytest.raises(GridError, match="revoked"):
            client.ask("status")
        with Client(site.address, token=kept) as second:
            assert second.ask("status")
            said = run("token", "--revoke-user", "bob", *site.where)
            assert said.startswith("1 token of bob revoked: ")
            assert 'deny = "user:bob"' in said
            with pytest.raises(GridError, match="revoked"):
                second.ask("status")
        assert ann.ask("status")
    text = run("tokens", "list", *site.where)
    assert "ann" in text
    assert "bob" not in text
    assert "revoked" in run("tokens", "list", "--all", *site.where)
    [file] = site.folder.rglob("tokens.json")
    assert lost not in file.read_text()
    log = site.gateway.text()
    assert f"the gateway's own socket): revocation of a token (token {found['id']})" in log


def test_at_the_own_socket_an_operator_needs_neither_the_secret_nor_a_token(tmp_path, monkeypatch):
    """Where tokens are required and there is a secret as well."""
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    secret.chmod(0o600)
    site = MemberSite(tmp_path, "london", slots=1, price="1 USD", start=False)
    text = site.config.read_text()
    mine = f'secret_file = "{secret}"\ntoken_required = true\n'
    site.config.write_text(text.replace("[site]\n", f"[site]\n{mine}", 1))
    site.start()
    try:
        monkeypatch.setenv("GRIDFED_GATEWAY", site.address)
        assert "site london: up" in run("status")
        assert "is draining" in run("drain", "--all", "--yes")
        assert "takes work again" in run("drain", "--all", "--undo")
        assert run("reload", "--dry-run")
        token = user_token(site, "bob")
        assert "bob" in run("tokens", "list", *site.where)
        with Client(site.address, token=token) as client:
            job = client.submit_job(abs, [-1])
            assert job.wait(WAIT_S) == "done"
        assert "bob" in run("jobs")
        assert "is not the secret of site" in run("status", code=1, GRIDFED_SECRET="another")
    finally:
        site.gateway.stop()


def test_held_jobs_are_held_after_the_gateway_was_killed(site, tmp_path, monkeypatch):
    """Both kinds: the detached one is in the books, the attached one comes again by its client."""
    monkeypatch.setenv("GRIDFED_GATEWAY", site.address)
    detached, attached = tmp_path / "detached", tmp_path / "attached"
    for each in (detached, attached):
        each.mkdir()
    with Client(site.address, token=user_token(site, "bob")) as client:
        blocker = client.submit(nap, str(tmp_path), 0)
        wait_until(lambda: begun(tmp_path) == 1, WAIT_S)
        job = client.submit_job(partial(nap, str(detached)), range(2))
        future = client.options(name="held").submit(nap, str(attached), 0)
        for name in (job.id, future.job):
            run("hold", name)
        site.gateway.kill()
        site.start()
        (tmp_path / "go").touch()
        assert blocker.result(timeout=WAIT_S) == 0  # the slot is free for what is held
        for name in (job.id, future.job):
            found = answer(run("job", name, "--json"))
            assert (found["held_by"] != "", found["why_waiting"][0]["reason"]) == (True, "held")
        assert (begun(detached), begun(attached)) == (0, 0)
        for each in (detached, attached):
            (each / "go").touch()
        run("release", job.id)
        run("release", future.job)
        assert job.wait(WAIT_S) == "done"
        assert future.result(timeout=WAIT_S) == 0
