"""Passes of tasks: the tasks that get one, its rights, and its end. Pure."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from federation.errors import SessionRefused
from federation.messages.messages import Ask, Cancel, Challenge, Hello, LetGo, OpenJob
from federation.objects.labels import read_label
from federation.sessions.handshake import Prover, SharedSecret
from federation.sessions.task_passes import (
    ABOUT,
    HANDS_ON,
    WORKER,
    TaskPass,
    is_pass,
    job_of,
    pass_of_pool,
    read_pass,
    seal,
    subject_of,
)
from federation.users import site_of
from gateway.scheduler.model.terms import NO_WARRANT, Warrant
from gateway.trust.rights import Denied, asker_of, right_to
from gateway.trust.task_passes import PassCredentials, TaskPasses

OPEN = OpenJob(
    *("j2", "child", b"f", False, "default", 0.0, {}, None, 0, None, "", "3.11", False, False),
    wishes={},
)
CHALLENGE = Challenge(1, "london", 0, b"n" * 16)


def job(user="ada", project="risk", path=(), expires_s=1000.0, warrant=NO_WARRANT, label=()):
    given = SimpleNamespace(grant_terms=SimpleNamespace(expires_s=expires_s)) if path else None
    origin = path[-1] if path else site_of(user)
    terms = {"user": user, "project": project, "path": path, "given": given, "origin": origin}
    wishes = SimpleNamespace(label=read_label(label))
    return SimpleNamespace(spec=SimpleNamespace(**terms, warrant=warrant, wishes=wishes))


class World:
    """Jobs that a gateway has, and passes for them."""

    def __init__(self, secret="s3cret", **jobs):
        self.jobs, self.welcome, self.now_s = jobs, {"paris"}, 0.0
        self.revoked = set()
        self.passes = TaskPasses(
            "london",
            secret,
            lambda size: b"k" * size,
            self.jobs,
            self.welcome.__contains__,
            lambda *token: token in self.revoked,
            lambda: self.now_s,
            {"hpc"},
        )
        self.credentials = PassCredentials(self.passes, SharedSecret(secret))

    def come_in(self, found, role="client", **about):
        """A gateway's conclusion from a hello with a pass; SessionRefused."""
        hello = Hello([], role, "n", "mallory", b"m" * 16, "", 0, {ABOUT: found.subject, **about})
        heard = self.credentials.hear(hello)
        proof = found.credentials.prove(Prover.DIALLER, hello, CHALLENGE)
        self.credentials.check(Prover.DIALLER, heard, CHALLENGE, proof)
        # And the gateway proves that it has the key.
        own = self.credentials.prove(Prover.LISTENER, heard, CHALLENGE)
        found.credentials.check(Prover.LISTENER, hello, CHALLENGE, own)
        return heard

    def refusal(self, found, **how):
        with pytest.raises(SessionRefused) as caught:
            self.come_in(found, **how)
        return caught.value.code


def test_its_holder_is_the_user_of_the_job_whatever_the_hello_says():
    world = World(j1=job())
    found = world.passes.give(subject_of("j1"))
    assert world.come_in(found).user == "ada"
    assert read_pass(str(found)) == found
    assert is_pass(str(found))
    assert found.key.hex() not in repr(found)


def test_it_ends_with_its_job():
    world = World(j1=job())
    found = world.passes.give(subject_of("j1"))
    assert world.passes.find_end(found.subject) is None
    del world.jobs["j1"]
    assert world.refusal(found) == "pass"
    assert world.passes.find_end(found.subject).code == "pass"


@pytest.mark.parametrize("key", [b"", b"x" * 32])
def test_a_key_that_this_gateway_did_not_give_is_refused(key):
    world = World(j1=job(), j2=job("bob"))
    assert world.refusal(TaskPass(subject_of("j1"), key)) == "pass"
    other = replace(world.passes.give(subject_of("j2")), subject=subject_of("j1"))
    assert world.refusal(other) == "pass"  # another job's


def test_it_is_for_clients_and_a_workers_for_workers():
    world = World(j1=job(), worker=job("eve"))
    assert world.refusal(world.passes.give(subject_of("j1")), role="worker") == "scope"
    own = world.passes.give(WORKER)
    assert world.come_in(own, role="worker").role == "worker"
    assert world.refusal(own) == "scope"
    # A job that its client calls "worker" has a pass of its own.
    assert job_of(WORKER) == ""
    assert world.passes.give(subject_of("worker")).key != own.key


@pytest.mark.parametrize("subject", [7, None, b"job:j1", ["job:j1"]])
def test_a_subject_is_text(subject):
    world = World(j1=job())
    hello = Hello([], "client", "n", "u", b"m" * 16, "", 0, {ABOUT: subject, "token": "t"})
    if subject is None:
        assert world.credentials.hear(hello) is hello
        return
    with pytest.raises(SessionRefused):
        world.credentials.hear(hello)


def test_a_token_beside_it_is_refused():
    world = World(j1=job())
    assert world.refusal(world.passes.give(subject_of("j1")), token="gft1_x") == "pass"


def test_what_it_is_good_for():
    held = World(j1=job()).passes.read(subject_of("j1"))
    opened = held.complete(OPEN)
    assert opened.project == "risk"  # its job's, as it names none
    held.check(opened)
    held.check(Cancel(1, "j2", [], False))
    peer = SimpleNamespace(handle=1, user="ann", is_local=False)
    asker_of(peer, held.token, right_to("status"), {})
    for verb in ("token", "drain", "report", "trust", "statement", "a verb of tomorrow"):
        with pytest.raises(Denied, match="lacks the scope"):
            asker_of(peer, held.token, right_to(verb), {})
    with pytest.raises(Denied, match="risk"):
        held.check(held.complete(replace(OPEN, project="another")))
    asked = held.complete(Ask(1, "object_host", {"project": "default"}))
    assert asked.details == {"project": "risk"}
    assert held.complete(Ask(1, "object", {})).details == {"project": "risk"}
    assert held.complete(LetGo("default", [])).project == "risk"
    with pytest.raises(Denied, match="risk"):
        held.check(held.complete(Ask(1, "object_host", {"project": "another"})))
    assert opened.wishes == {}
    for verb in ("reserve", "unreserve"):
        with pytest.raises(Denied, match="can't reserve slots"):
            held.check(Ask(1, verb, {"project": "risk"}))


def test_a_task_of_another_site_comes_in_where_its_users_may_and_stays():
    world = World(c1=job("ada@rome", path=("rome",)), c2=job("ada@paris", path=("paris",)))
    worker = {HANDS_ON: True}
    assert world.passes.sealed_for(worker, "c1") == b""
    assert world.refusal(world.passes.give(subject_of("c1"))) == "pass"
    found = world.passes.give(subject_of("c2"))
    assert world.come_in(found).user == "ada@paris"
    held = world.passes.read(found.subject)
    assert held.complete(replace(OPEN, wishes={"sites": ["rome"]})).wishes == {"sites": ["london"]}
    world.now_s = 1000.0  # its grant has expired
    assert world.refusal(found) == "pass"


def opened_by(world, number):
    """A job that a task of a job opens, by that one's pass."""
    held = world.passes.read(world.passes.give(subject_of(f"j{number}")).subject)
    world.jobs[f"j{number + 1}"] = job(held.token.user, warrant=held.warrant)


@pytest.mark.parametrize("generations", [1, 2, 3])
def test_it_ends_with_the_token_of_its_job_however_far_it_was_handed_on(generations):
    world = World(j1=job(warrant=Warrant("london", "abc", 50.0)))
    for number in range(1, generations):
        opened_by(world, number)
    found = world.passes.give(subject_of(f"j{generations}"))
    assert world.come_in(found).user == "ada"
    world.revoked.add(("london", "abc"))
    assert world.refusal(found) == "pass"
    assert world.passes.find_end(found.subject) is not None
    world.revoked.clear()
    world.now_s = 50.0
    assert world.refusal(found) == "pass"


@pytest.mark.parametrize("generations", [2, 3])
def test_what_tasks_of_another_site_open_stays_and_ends_with_the_grant(generations):
    world = World(j1=job("ada@paris", path=("paris",), expires_s=50.0))
    for number in range(1, generations):
        opened_by(world, number)
    found = world.passes.give(subject_of(f"j{generations}"))
    assert world.passes.read(found.subject).complete(OPEN).wishes["sites"] == ["london"]
    world.now_s = 50.0
    assert world.refusal(found) == "pass"


def test_a_foreign_users_task_comes_in_as_long_as_its_site_is_welcome():
    world = World(c1=job("eve@paris"))
    found = world.passes.give(subject_of("c1"))
    assert world.come_in(found).user == "eve@paris"
    world.welcome.clear()
    assert world.refusal(found) == "pass"


@pytest.mark.parametrize(
    ("about", "shown"),
    [({}, "s3cret"), ({"token": "gft1_x"}, "gft1_x"), ({ABOUT: WORKER}, "its pass")],
)
def test_it_is_sealed_by_what_the_worker_came_in_with(about, shown):
    world = World(j1=job())
    shown = str(world.passes.give(WORKER)) if ABOUT in about else shown
    sealed = world.passes.sealed_for({HANDS_ON: True, **about}, "j1")
    key = world.passes.give(subject_of("j1")).key
    assert sealed != key
    assert seal(sealed, shown, subject_of("j1")) == key
    assert seal(sealed, "another", subject_of("j1")) != key


def test_a_worker_that_knows_no_passes_gets_none():
    assert World(j1=job()).passes.sealed_for({}, "j1") == b""


def test_where_nobody_comes_in_without_a_pass():
    world = World(j1=job())
    credentials = PassCredentials(world.passes, None)
    with pytest.raises(SessionRefused) as caught:
        credentials.hear(Hello([], "client", "n", "u", b"m" * 16, "", 0, {}))
    assert caught.value.code == "token"


def test_workers_of_a_pool_come_in_by_a_pass_that_is_good_in_each_life_and_for_that_pool_alone():
    world, next_life = World(), World()
    found = pass_of_pool("s3cret", "hpc")
    for each in (world, next_life):
        assert each.come_in(found, role="worker", pool="hpc").role == "worker"
    assert world.refusal(found, role="worker", pool="local") == "pass"
    assert world.refusal(found, role="worker") == "pass"
    assert world.refusal(found, pool="hpc") == "scope"
    for secret, pool in (("s3cret", "other"), ("another", "hpc")):
        assert world.refusal(pass_of_pool(secret, pool), role="worker", pool=pool) == "pass"
    assert "s3cret" not in str(found)


def test_without_a_secret_a_pool_has_no_pass():
    assert World("").refusal(pass_of_pool("", "hpc"), role="worker", pool="hpc") == "pass"


def test_what_a_pools_worker_hands_on_is_sealed_by_its_pass():
    world = World(j1=job())
    found, subject = pass_of_pool("s3cret", "hpc"), subject_of("j1")
    sealed = world.passes.sealed_for({HANDS_ON: True, ABOUT: found.subject}, "j1")
    assert seal(sealed, str(found), subject) == world.passes.give(subject).key


def test_what_its_tasks_open_has_the_label_of_their_job_as_it_is_then():
    """A task that had read EU data opened calls without its label."""
    world = World(j1=job())
    held = world.passes.read(subject_of("j1"))
    assert "label" not in held.complete(OPEN).wishes
    world.jobs["j1"] = job(label=["EU", "UK"])  # its task has read more since
    assert held.complete(OPEN).wishes["label"] == ["EU", "UK"]
    own = replace(OPEN, wishes={"label": ["EU", "US"]})
    assert held.complete(own).wishes["label"] == ["EU"]
    assert held.complete(replace(OPEN, wishes={"label": ["US"]})).wishes["label"] == ["nowhere"]
    wrong = replace(OPEN, wishes={"label": [":"]})  # intake refuses it
    assert held.complete(wrong).wishes == wrong.wishes
    del world.jobs["j1"]  # its end has not reached the session yet
    assert "label" not in held.complete(OPEN).wishes
