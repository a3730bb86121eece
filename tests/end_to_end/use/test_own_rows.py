"""Two users of one site: each sees their own rows, the operator and an auditor see all."""

import time
from types import SimpleNamespace

import pytest
from support.processes import wait_until

from federation import Client
from federation.errors import GridError, JobNotFound
from federation.signed.tokens import Scope
from gateway.config.site import load

pytestmark = pytest.mark.real

RULES = """
[[budget]]
name = "anns"
who = "user:ann"
amount = "50 USD"
period = "month"
[[budget]]
name = "bobs"
who = "user:bob"
amount = "50 USD"
period = "month"
[fair_share]
[[fair_share.share]]
name = "ann"
who = "user:ann"
shares = 1
[[fair_share.share]]
name = "bob"
who = "user:bob"
shares = 1
"""


class Users:
    """Clients of one site, by the secret or as if by a token."""

    def __init__(self, inner, monkeypatch):
        self._held = {}
        self._inner = inner
        self._clients = []
        monkeypatch.setattr(inner.site.server, "token_of", lambda peer: self._held.get(peer.user))

    def client(self, user, *scopes, at_home=False, projects=None):
        if scopes:
            token = SimpleNamespace(
                allows=lambda scope, project=None: scope in scopes, projects=projects
            )
            self._held[user] = SimpleNamespace(token=token)
        addresses = self._inner.site.addresses
        address = next(each for each in addresses if each.startswith("ipc") == at_home)
        self._clients.append(Client(address, user=user))
        return self._clients[-1]

    def close(self):
        for client in self._clients:
            client.shutdown(cancel_futures=True)


@pytest.fixture
def users(make_inner, tmp_path, monkeypatch):
    file = tmp_path / "site.toml"
    file.write_text(RULES)
    found = load(str(file))
    inner = make_inner(
        slots=1,
        listen=(f"ipc://{tmp_path / 'gw.sock'}", "tcp://127.0.0.1:0"),
        budgets=found.budgets,
        fair_share=found.fair_share,
    )
    made = Users(inner, monkeypatch)
    yield made
    made.close()


def names(rows):
    return {row["user"] for row in rows}


def billed(client, **details):
    made = client.ask("report", kind="cost", by=["user"], **details)
    return {row[made["columns"].index("user")] for row in made["rows"]}


def test_each_sees_their_own_and_the_operator_all(users):
    ann, bob = users.client("ann"), users.client("bob")
    jobs = {}
    for client, user in ((ann, "ann"), (bob, "bob")):
        job = client.options(project="risk", name=f"of {user}").submit_job(abs, [-32])
        assert list(job.results()) == [32]
        job.wait(60)
        jobs[user] = job.id
    reader = users.client("eve", Scope.SUBMIT, Scope.REPORT)
    auditor = users.client("audrey", Scope.AUDIT)
    narrow = users.client("fred", Scope.AUDIT, projects=frozenset({"fx"}))
    operator = users.client("root", at_home=True)
    both = {"ann", "bob"}

    assert names(ann.jobs()) == {"ann"}
    assert names(ann.jobs(all_users=True)) == both
    assert names(reader.jobs()) == set()
    assert names(auditor.jobs()) == names(operator.jobs()) == both
    assert names(narrow.jobs()) == set()
    with pytest.raises(GridError, match="scope audit"):
        reader.ask("jobs", all_users=True)

    with pytest.raises(JobNotFound):
        reader.job(jobs["ann"]).details()
    with pytest.raises(JobNotFound):
        narrow.job(jobs["ann"]).details()
    assert auditor.job(jobs["ann"]).details()["user"] == "ann"
    with pytest.raises(GridError, match="found here: `gridfed jobs` lists yours"):
        reader.job(jobs["ann"]).explain()
    with pytest.raises(GridError):  # results are for their user alone
        list(auditor.job(jobs["ann"]).results())

    assert billed(ann) == {"ann"}
    assert billed(bob) == {"bob"}
    assert billed(reader) == set()
    assert billed(auditor) == billed(operator) == billed(ann, all_users=True) == both
    assert billed(narrow) == set()
    with pytest.raises(GridError, match="you may see only"):
        billed(reader, where=[["user", "ann"]])
    with pytest.raises(GridError, match="you may see only"):
        billed(narrow, where=[["project", "risk"]])

    def budgets(client, **details):
        return {each["name"] for each in client.ask("budgets", **details)}

    assert budgets(ann) == {"anns"}
    assert budgets(reader) == set()
    assert budgets(auditor) == budgets(operator) == {"anns", "bobs"}

    def shares(client):
        return {each["who"] for each in client.ask("shares")["shares"]} & {"user:ann", "user:bob"}

    assert shares(ann) == {"user:ann"}
    assert shares(operator) == {"user:ann", "user:bob"}

    for verb in ("statement", "deals", "page", "alerts"):
        with pytest.raises(GridError, match="audit"):
            reader.ask(verb)


def test_a_worker_tells_only_their_user_which_job_it_runs(users):
    ann, bob = users.client("ann"), users.client("bob")
    running = ann.options(name="long").submit(time.sleep, 600)
    operator = users.client("root", at_home=True)

    def told(client):
        workers = client.ask("workers")
        return {slot["job"] for worker in workers for slot in worker["slot_details"]} - {""}

    wait_until(lambda: told(ann), "the pulse")
    assert told(ann) == told(operator) == {running.job}
    assert told(bob) == set()
    ann.job(running.job).cancel(stop=True)
