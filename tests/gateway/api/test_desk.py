"""The desk of a whole site: its refusals, and the rows of each caller, verb by verb."""

import re
from types import SimpleNamespace

import pytest
import trio
from support.desk import NOON_S, counter_of
from support.pure.broker import spec

from federation.clocks import MonoS
from federation.engine.explained import Explanation
from federation.errors import ProtocolError
from federation.messages.messages import Ask
from federation.reasons import Reason
from federation.signed.tokens import Scope
from gateway.config.site import PoolConfig
from gateway.ledger.db.jobs.records import AttachedLost
from gateway.runtime.user_pace import (
    BURST,
    OPERATOR_BURST,
    OPERATOR_BURST_S,
    OPERATOR_ORDERS_PER_S,
    OPERATOR_SHARE,
    ORDERS_PER_S,
    OrderPace,
    QuestionPace,
)
from gateway.scheduler.model import events
from gateway.scheduler.model.stored_terms import spec_of
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.costs.budgets import Budget
from policies.parties import read_party
from policies.reservations.reservations import ReservationRules

HOUR_S = 3600.0
WORKERS = (PoolConfig("workers"),)
NOT_HERE = "no job 'j-x' found here"
# What is refused of the operator, who may ask everything: verb, details, and what the text has.
REFUSED = [
    ("dance", {}, "no question 'dance'; known questions: status, jobs"),
    ("status", {"more": 1}, "status has no detail 'more'; its details: none"),
    *((verb, {}, "the detail job is missing") for verb in ("hold", "release", "prioritise")),
    *((verb, {"job": "j-x"}, "no unfinished job 'j-x' found") for verb in ("hold", "release")),
    ("hold", {"job": "j-x", "now": 1}, "hold has no detail 'now'; its details: job"),
    ("drain", {"worker": "w", "now": 1}, "drain has no detail 'now'; its details: on, worker"),
    ("drain", {"worker": "w-x"}, "no worker 'w-x' found"),
    ("drain", {"worker": 7}, "worker must be text"),
    ("drain_host", {}, "host must be 1 to 255 printable characters"),
    ("drain_host", {"host": "a\n"}, "host must be 1 to 255 printable characters"),
    ("drain_host", {"host": "h", "on": False}, "host 'h' is not drained; drained hosts: none"),
    ("jobs", {"limit": -1}, "limit must be a whole number, from 0 to 1,000"),
    ("jobs", {"limit": 1001}, "limit must be a whole number, from 0 to 1,000"),
    ("jobs", {"limit": True}, "limit must be a whole number, from 0 to 1,000"),
    ("jobs", {"of_user": 7}, "user must be text of at most 200 characters"),
    ("jobs", {"name": "x" * 201}, "name must be text of at most 200 characters"),
    ("jobs", {"state": "odd"}, "state 'odd': must be one of waiting, running, open, cancelling"),
    ("jobs", {"after": "j-x"}, NOT_HERE),
    ("jobs", {"all_users": "yes"}, "all_users must be true or false"),
    ("job", {}, "the detail job is missing"),
    ("job", {"job": 7}, "job must be 1 to 1,000 printable characters"),
    ("job", {"job": "j-x"}, NOT_HERE),
    ("results", {"job": "j-x"}, "no detached job 'j-x' found here"),
    ("results", {"job": "j-x", "wait_s": 30.1}, "wait_s must be seconds, from 0 to 30"),
    ("results", {"job": "j-x", "wait_s": "1"}, "wait_s must be seconds, from 0 to 30"),
    ("results", {"job": "j-x", "wait_s": -1}, "wait_s must be seconds, from 0 to 30"),
    ("results", {"job": "j-x", "limit": 65}, "limit must be a whole number, from 0 to 64"),
    ("results", {"job": "j-x", "after": 0.5}, "after must be"),
    ("logs", {"job": "j-x"}, NOT_HERE),
    ("logs", {"job": "j-x", "task": -1}, "task must be a whole number"),
    ("logs", {"job": "j-x", "after": "x"}, "after must be a whole number"),
    ("forget", {"job": "j-x"}, "no job 'j-x' of yours found here"),
    ("reload", {"dry_run": "yes"}, "dry_run must be true or false"),
    ("reload", {}, "nothing was changed"),
    ("can", {"site": "paris"}, "user"),
    ("explain", {"job": "j-x"}, "no job 'j-x' found here"),
    ("explain", {"tasks": 0}, "tasks must be a whole number of at least 1"),
    ("explain", {"tasks": True}, "tasks must be a whole number of at least 1"),
    ("explain", {"task_s": 0}, "task_s must be above zero"),
    ("explain", {"tags": [1]}, "invalid job description"),
    ("explain", {"priority": "high"}, "invalid job description"),
    (
        "probe_pool",
        {"pool": "local"},
        "no workers that a grid starts; pools that have: none",
    ),
    ("test_alert", {}, "the detail name is missing"),
    ("test_alert", {"name": "a-x"}, "a-x"),
    ("write_off", {"name": 1, "site": "paris"}, "`name` must be the name of a budget"),
    ("write_off", {"name": "b", "site": None}, "`name` must be the name of a budget"),
    ("write_off", {"name": "b-x", "site": "paris"}, "b-x"),
    ("invite", {}, "this site is in no federation"),
    ("token", {"user": "ann"}, "this site is in no federation"),
    # --- reports ---
    ("report", {"kind": 7}, "kind must be text"),
    ("report", {"kind": "song"}, "song"),
    ("report", {"by": "user"}, "`by` must be a list of names"),
    ("report", {"by": [1]}, "`by` must be a list of names"),
    ("report", {"where": ["user"]}, "`where` must be a list of pairs"),
    ("report", {"where": [["user", 1]]}, "`where` must be a list of pairs"),
    ("report", {"start_s": "now"}, "start_s and end_s must be seconds"),
    ("report", {"end_s": True}, "start_s and end_s must be seconds"),
    ("report", {"whose": 1}, "whose must be text"),
    ("report", {"static_price": 1}, "static_price must be text"),
    ("report", {"kind": "utilisation", "whose": "ours"}, "utilisation covers the work"),
    ("page", {"start_s": "now"}, "start_s and end_s must be seconds"),
    # --- reservations ---
    ("reserve", {"lasts_s": 60.0}, "slots must be a whole number"),
    ("reserve", {"slots": True, "lasts_s": 60.0}, "slots must be a whole number"),
    ("reserve", {"slots": 10**9, "lasts_s": 60.0}, "slots must be a whole number"),
    ("reserve", {"slots": 1}, "lasts_s must be seconds"),
    ("reserve", {"slots": 1, "lasts_s": -1.0}, "lasts_s must be seconds"),
    (
        "reserve",
        {"slots": 1, "lasts_s": 60.0, "from_s": "noon"},
        "from_s must be a time in seconds",
    ),
    ("reserve", {"slots": 1, "lasts_s": 60.0, "pool": "a\n"}, "pool must be text"),
    ("reserve", {"slots": 1, "lasts_s": 60.0, "project": "x" * 201}, "project must be text"),
    ("reserve", {"slots": 1, "lasts_s": 60.0, "who": "everyone!"}, ""),
    ("reserve", {"slots": 1, "lasts_s": 60.0, "who": "site:paris"}, "you can't reserve for"),
    ("reserve", {"slots": 1, "lasts_s": 60.0, "sites": "paris"}, "sites must be a list"),
    ("reserve", {"slots": 1, "lasts_s": 60.0, "sites": ["paris"]}, "unknown site"),
    ("unreserve", {"reservation": "r-x"}, "no open reservation 'r-x' of yours found here"),
    ("unreserve", {"reservation": 7}, "reservation must be text"),
    # --- the books ---
    ("statement", {"sites": "paris"}, "`sites` must be a list of names"),
    (
        "statement",
        {"sites": ["paris"]},
        "site 'paris'; sites with contracts: none yet",
    ),
    ("statement", {"start_s": 5, "end_s": 5}, "the period ends before it begins"),
    ("statement", {"start_s": -1}, "start_s and end_s must be seconds"),
    ("deliveries", {}, "the detail site is missing"),
    ("deliveries", {"site": "x" * 101}, "site must be 1 to 100 printable characters"),
    ("deliveries", {"site": "paris", "contract": 1}, "contract must be a name"),
    ("deliveries", {"site": "paris", "state": "odd"}, "state must be one of"),
    ("deliveries", {"site": "paris"}, "no contracts with site 'paris'"),
    ("payments", {"site": 1}, "site must be a name"),
    ("payments", {"site": "paris"}, "no contracts with site 'paris'"),
    ("reconcile", {"site": "paris"}, "this site is in no federation"),
    ("dispute", {"contract": "c", "reason": ""}, "reason must be 1 to"),
    ("dispute", {"contract": "c", "reason": "r"}, "this site is in no federation"),
    ("answer_dispute", {"contract": "", "reason": "r"}, "contract must be 1 to"),
    ("settle", {"site": "paris"}, "this site is in no federation"),
    ("undo_payment", {"site": "paris"}, "this site is in no federation"),
]
AT_HOME = sorted(
    {"reload", "can", "probe_pool", "test_alert", "write_off", "invite", "token", "settle"}
)


def token(*scopes, projects=None):
    held = set(scopes)

    def allows(scope, project=None):
        return scope in held and (projects is None or project is None or project in projects)

    return SimpleNamespace(id="64a3", projects=projects, allows=allows)


async def test_what_makes_no_sense_is_refused_with_a_reason(tmp_path):
    wrong = []
    async with counter_of(tmp_path, reservations=ReservationRules()) as counter:
        for verb, details, text in REFUSED:
            answer = await counter.ask(verb, home=True, **details)
            is_refused = answer.code in (Reason.BAD_REQUEST, Reason.JOB_NOT_FOUND)
            if not is_refused or text not in answer.reason:
                wrong.append((verb, details, answer.code, answer.reason))
    assert not wrong


async def test_orders_are_taken_at_our_own_socket_alone(tmp_path):
    async with counter_of(tmp_path) as counter:
        for verb in AT_HOME:
            about = {"of_user": "ann"} if verb == "can" else {}
            code, reason = await counter.refusal(verb, **about)
            assert (code, reason.partition(",")[0]) == (
                Reason.BAD_REQUEST,
                f"{verb} is only for the gateway's own host",
            )


async def test_a_user_asks_with_any_token_what_they_can_do_here(tmp_path):
    async with counter_of(tmp_path) as counter:
        answer = await counter.ask("can", user="ann", token=token(Scope.SUBMIT))
        assert (answer.code, answer.value["user"]) == ("", "ann")


async def test_what_a_user_can_do_is_within_the_token_of_the_question(tmp_path):
    async def may(held, **details):
        [row] = (await counter.ask("can", user="ann", token=held, **details)).value["pools"]
        return row["may"], row["why"], row["text"]

    async with counter_of(tmp_path) as counter:
        held = token(Scope.SUBMIT, projects=frozenset({"fx", "risk"}))
        assert (await may(held, project="risk"))[0]
        for details in ({"project": "secret"}, {}):
            found = await may(held, **details)
            assert found[:2] == (False, "project-not-allowed")
            assert found[2].endswith("it covers fx, risk")
        assert (await may(token(Scope.REPORT)))[:2] == (False, "scope-missing")


async def test_a_token_is_good_for_what_its_scopes_say(tmp_path):
    async with counter_of(tmp_path) as counter:
        for verb, scope, details in (
            ("report", Scope.SUBMIT, {}),
            ("drain", Scope.AUDIT, {}),
            ("drain_host", Scope.AUDIT, {"host": "h"}),
            ("drains", Scope.SUBMIT, {}),
            ("statement", Scope.REPORT, {}),
            ("reserve", Scope.AUDIT, {}),
            ("forget", Scope.REPORT, {"job": "j"}),
            ("jobs", Scope.SUBMIT, {"all_users": True}),
        ):
            code, _ = await counter.refusal(verb, token=token(scope), **details)
            assert code == Reason.SCOPE_MISSING, verb
        code, _ = await counter.refusal("deals", token=token(Scope.AUDIT, projects={"fx"}))
        assert code == Reason.PROJECT_NOT_ALLOWED
        assert not (await counter.ask("drain", token=token(Scope.ADMIN), on=False)).code


def open_jobs(counter):
    """Ann has jobs of two projects, Bob has one; none runs."""
    for client, user, job, project in (
        (1, "ann", "j-risk", "risk"),
        (1, "ann", "j-fx", "fx"),
        (2, "bob", "j-bob", "risk"),
    ):
        if client not in counter.site.broker.clients:
            counter.tell(events.ClientJoined(client, user))
        made = spec(user=user, project=project, detached=True)
        counter.tell(
            events.JobOpened(client, job, made),
            events.TasksArrived(client, job, 0, [b"x"]),
            events.JobClosed(client, job, 1),
        )


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, {"j-risk", "j-fx"}),
        ({"user": "bob"}, {"j-bob"}),
        ({"user": "eve"}, set()),
        ({"all_users": True}, {"j-risk", "j-fx", "j-bob"}),
        ({"home": True}, {"j-risk", "j-fx", "j-bob"}),
        ({"token": token(Scope.SUBMIT)}, {"j-risk", "j-fx"}),
        ({"token": token(Scope.SUBMIT, projects=frozenset({"fx"}))}, {"j-fx"}),
        ({"token": token(Scope.AUDIT)}, {"j-risk", "j-fx", "j-bob"}),
        ({"token": token(Scope.AUDIT, projects=frozenset({"risk"}))}, {"j-risk", "j-bob"}),
    ],
)
async def test_whose_jobs_are_shown(tmp_path, asked, shown):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        answer = await counter.ask("jobs", **asked)
        assert {each["id"] for each in answer.value} == shown
        await counter.site.record()
        for job in ("j-risk", "j-fx", "j-bob"):
            details = {key: each for key, each in asked.items() if key != "all_users"}
            answer = await counter.ask("job", job=job, **details)
            # Who knows the secret may see any job that they name.
            knows = "token" not in asked
            assert (not answer.code) is (knows or job in shown)


async def test_results_and_their_end_are_their_users_alone(tmp_path):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        answer = await counter.ask("results", job="j-fx")
        assert (answer.code, answer.value["ended"], answer.value["outcomes"]) == ("", False, [])
        for verb, user, text in (
            ("results", "bob", "belongs to another user"),
            ("forget", "ann", "has not ended: cancel it first"),
            ("forget", "bob", "no job"),
        ):
            assert text in (await counter.refusal(verb, user=user, job="j-fx"))[1]
        # A stranger does not learn that there is such a job.
        own = token(Scope.SUBMIT)
        for job in ("j-fx", "j-none"):
            _, reason = await counter.refusal("results", user="bob", token=own, job=job)
            assert reason.startswith(f"no detached job {job!r} found here: `gridfed jobs` lists")
        counter.tell(events.CancelAsked(1, 9, "j-fx", (), True))
        await counter.site.record()
        assert "j-fx" not in counter.site.broker.jobs
        assert "no job" in (await counter.refusal("forget", user="bob", job="j-fx"))[1]
        assert (await counter.ask("forget", job="j-fx")).value["forgotten"]
        why = (await counter.refusal("results", job="j-fx"))[1]
        assert "were deleted: it ended " in why
        assert "results are deleted after 30 d, or by `gridfed forget`. Its cost stays" in why


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_job_whose_client_is_away_is_held_for_its_return(tmp_path, is_lost):
    """Lost by the books alone, or abandoned in this run of the gateway."""
    async with counter_of(tmp_path) as counter:
        attached = spec(user="ann", project="fx")
        counter.tell(events.ClientJoined(1, "ann"), events.JobOpened(1, "j-left", attached))
        counter.tell(events.TasksArrived(1, "j-left", 0, [b"x"]))
        if is_lost:
            await counter.site.record(AttachedLost(NOON_S))
            del counter.site.broker.jobs["j-left"]
        else:
            counter.tell(events.ClientGone(1))
        assert "no unfinished job" in (await counter.refusal("hold", user="bob", job="j-left"))[1]
        answer = await counter.ask("hold", job="j-left", user="root", home=True)
        assert answer.value["text"] == (
            "job j-left of ann, project fx: held; its client is away, and finds it so when it "
            "returns"
        )
        shown = (await counter.ask("job", job="j-left")).value
        assert (shown["held_by"], shown["state"]) == ("root", "lost" if is_lost else "abandoned")
        _, reason = await counter.refusal("release", job="j-left")
        assert "only the operator can release it" in reason
        answer = await counter.ask("prioritise", job="j-left", priority=3)
        assert "priority 3 instead of 0" in answer.value["text"]
        row = await counter.site.read(counter.site.store.jobs.get, "j-left")
        assert spec_of(row).hold.by == "root"
        assert spec_of(row).priority == 3.0
        await counter.ask("release", job="j-left", user="root", home=True)
        row = await counter.site.read(counter.site.store.jobs.get, "j-left")
        assert spec_of(row).hold is None


async def test_jobs_are_listed_by_what_they_are(tmp_path):
    """Of the scheduler and of the books alike; pages follow each other without a gap."""
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)

        async def listed(**details):
            answer = await counter.ask("jobs", **details)
            assert not answer.code, answer.reason
            return [each["id"] for each in answer.value]

        for _ in range(2):  # live, and, but for j-bob, from the books
            assert await listed(project="fx") == ["j-fx"]
            assert await listed(name="f", project="risk") == ["j-risk"]
            assert await listed(name="g") == []
            assert await listed(of_user="ann") == ["j-fx", "j-risk"]
            assert await listed(limit=1) == ["j-fx"]
            assert await listed(after="j-fx") == ["j-risk"]
            assert await listed(after="j-risk", home=True) == []
            assert await listed(home=True, limit=2) == ["j-bob", "j-fx"]
            assert await listed(home=True, after="j-bob") == ["j-fx", "j-risk"]
            assert await listed(of_user="bob", home=True) == ["j-bob"]
            assert await listed(home=True, state="waiting", of_user="bob") == ["j-bob"]
            counter.tell(*(events.CancelAsked(1, 9, job, (), True) for job in ("j-fx", "j-risk")))
            await counter.site.record()
        assert await listed(state="cancelled") == ["j-fx", "j-risk"]
        assert await listed(state="waiting") == []
        assert await listed(state="done") == []


async def test_a_refused_job_is_shown_with_the_reason_to_those_that_may_see_it(tmp_path):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        counter.site.broker.draining = True
        made = spec(name="nightly", project="fx", tasks=9)
        counter.tell(events.JobOpened(1, "j-no", made))
        why = "the gateway is draining and takes no new jobs"

        async def listed(**details):
            answer = await counter.ask("jobs", **details)
            return [each["id"] for each in answer.value]

        assert await listed(state="rejected") == ["j-no"]
        assert set(await listed()) == {"j-no", "j-fx", "j-risk"}
        assert await listed(state="rejected", after="j-no") == []
        assert await listed(state="rejected", project="risk") == []
        assert await listed(state="rejected", user="bob") == []
        assert await listed(state="rejected", home=True) == ["j-no"]
        view = (await counter.ask("job", job="nightly")).value
        assert (view["id"], view["state"], view["total"]) == ("j-no", "rejected", 9)
        assert (view["code"], view["reason"]) == ("draining", why)
        told = (await counter.ask("explain", job="j-no")).value
        assert told["text"] == (
            "job j-no (nightly) of ann was refused 2026-11-03 12:00:00 UTC (draining), and nothing "
            f"of it has run: {why}"
        )
        assert str(Explanation(told)) == told["text"]
        for verb in ("results", "logs", "hold"):
            for name in ("j-no", "nightly"):
                assert (await counter.refusal(verb, job=name))[1] == told["text"]
        for verb in ("job", "explain", "results"):
            asked = {"user": "bob", "token": token(Scope.SUBMIT), "job": "j-no"}
            assert "j-no' found here" in (await counter.refusal(verb, **asked))[1]
        # A name means a job that was accepted, if there is one.
        counter.tell(events.JobOpened(1, "j-no2", spec(name="f", project="risk")))
        own = token(Scope.SUBMIT, projects=frozenset({"risk"}))
        assert (await counter.ask("job", job="f", token=own)).value["id"] == "j-risk"


async def test_jobs_of_another_user_are_for_those_that_may_see_all(tmp_path):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        asked = {"verb": "jobs", "of_user": "bob"}
        code, reason = await counter.refusal(**asked, token=token(Scope.SUBMIT))
        assert (code, "scope audit" in reason) == (Reason.SCOPE_MISSING, True)
        for who in ({"home": True}, {"token": token(Scope.AUDIT)}, {}):  # {}: by the secret
            answer = await counter.ask(**asked, **who)
            assert [each["id"] for each in answer.value] == ["j-bob"]


async def test_a_job_may_be_named_by_its_name_or_a_part_of_its_id(tmp_path):
    async with counter_of(tmp_path) as counter:
        counter.tell(events.ClientJoined(1, "ann"), events.ClientJoined(2, "bob"))
        ids = {name: f"01m8{name:x<22}" for name in ("aaa", "aab", "bbb")}
        for client, key, name in ((1, "aaa", "night"), (1, "aab", "day"), (2, "bbb", "night")):
            user = ("ann", "bob")[client - 1]
            counter.tell(
                events.JobOpened(client, ids[key], spec(user=user, name=name, detached=True)),
                events.TasksArrived(client, ids[key], 0, [b"x"]),
                events.JobClosed(client, ids[key], 1),
            )
        own = token(Scope.SUBMIT)

        async def meant(text, for_order=None, **asked):
            order = {} if for_order is None else {"for_order": True}
            answer = await counter.ask("job", job=text, **order, **asked)
            return answer.value["id"] if not answer.code else answer.reason

        admin = token(Scope.ADMIN)
        assert await meant("01m8bbb", token=admin, for_order=True) == ids["bbb"]
        audit = "jobs of other users are shown to a token with the scope audit"
        unseen = f"no job {{!r}} of yours found here: {audit}"
        assert await meant("01m8bbb", token=admin) == unseen.format("01m8bbb")
        for verb in ("job", "logs", "explain"):
            for text in (ids["bbb"], "01m8none"):  # the same whether there is one or not
                _, reason = await counter.refusal(verb, job=text, token=admin)
                assert reason == unseen.format(text)
        both = await meant("night", token=admin, for_order=True)
        assert both.startswith("'night' may mean several unfinished jobs; name one by its id:")
        assert [line[:26] for line in both.splitlines()[1:]] == [ids["aaa"], ids["bbb"]]
        assert all(f", of {user}, submitted " in both for user in ("ann", "bob"))
        for _ in range(2):
            assert await meant("day") == ids["aab"]
            assert await meant("night", token=own) == ids["aaa"]  # Bob's is not hers
            assert await meant("01m8aaa") == ids["aaa"]
            assert await meant(ids["aaa"][:-1]) == ids["aaa"]
            assert (await meant("01m")).startswith("no job is named '01m', and the beginning of")
            missing = await meant("01m8bbb", token=own)
            assert missing.startswith("no job '01m8bbb' found here: `gridfed jobs` lists yours")
            assert await meant("01m8bbb", home=True) == ids["bbb"]
            reason = await meant("01m8a")
            assert reason.startswith("'01m8a' may mean several jobs; name one by its id:\n")
            assert [line[:26] for line in reason.splitlines()[1:]] == [ids["aaa"], ids["aab"]]
            assert "night, waiting, of ann, submitted " in reason or "cancelled" in reason
            # By the secret: the names of others count where none of one's own has it.
            assert await meant("night") == ids["aaa"]
            assert await meant("01m8bbb") == ids["bbb"]
            several = await meant("night", home=True)
            assert [line[:26] for line in several.splitlines()[1:]] == [ids["aaa"], ids["bbb"]]
            for verb in ("running", "results", "logs", "forget", "explain"):
                _, reason = await counter.refusal(verb, job="01m8a")
                assert "may mean several jobs" in reason
            for client, key in ((1, "aaa"), (1, "aab"), (2, "bbb")):
                counter.tell(events.CancelAsked(client, 9, ids[key], (), True))
            await counter.site.record()
        ended = await meant("01m8bbb", token=admin, for_order=True)
        assert ended.startswith(f"job {ids['bbb']} (night) of bob has ended")
        assert (await counter.ask("forget", job="day")).value == {
            "job": ids["aab"],
            "forgotten": True,
        }


async def test_a_priority_that_a_job_has_already_is_not_written(tmp_path, monkeypatch):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        first = await counter.ask("prioritise", job="j-fx", priority=3)
        assert (first.value["changed"], len(counter.told)) == (True, 1)
        happened = []
        monkeypatch.setattr(counter.site, "expect", happened.append)
        again = await counter.ask("prioritise", job="j-fx", priority=3.0)
        assert again.value["text"].endswith(": priority 3 as before")
        assert (again.value["changed"], happened, len(counter.told)) == (False, [], 1)


async def test_the_orders_of_one_user_have_a_pace_and_those_of_the_operator_have_none(
    tmp_path, monkeypatch
):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        waits = []

        async def sleep(seconds):
            waits.append(seconds)

        monkeypatch.setattr("gateway.api.desk.trio", SimpleNamespace(sleep=sleep))
        pace = OrderPace()  # its clock stands still
        still = SimpleNamespace(wait_s=lambda user, _: pace.wait_s(user, 100.0), per_s=ORDERS_PER_S)
        monkeypatch.setattr(counter.site.desk, "_pace", still)
        for at in range(BURST + 2):
            await counter.ask("hold" if at % 2 == 0 else "release", job="j-fx")
        assert [round(each * ORDERS_PER_S) for each in waits] == [1, 2]
        # One line for holds, and one for releases; the others are counted.
        assert len([line for line in counter.told if "order by" in line]) == 2
        for at in range(2 * BURST):
            await counter.ask("hold" if at % 2 == 0 else "release", job="j-fx", home=True)
        assert len(waits) == 2
        answers = [await counter.ask("hold", job="none") for _ in range(2 * BURST)]
        assert {each.code for each in answers} == {Reason.JOB_NOT_FOUND, Reason.BUSY}


async def test_forgetting_jobs_has_the_pace_of_orders(tmp_path, monkeypatch):
    async with counter_of(tmp_path) as counter:
        full = SimpleNamespace(wait_s=lambda *_: None, per_s=ORDERS_PER_S)
        monkeypatch.setattr(counter.site.desk, "_pace", full)
        assert (await counter.ask("forget", job="j-x")).code == Reason.BUSY
        assert (await counter.ask("forget", job="j-x", home=True)).code == Reason.JOB_NOT_FOUND


async def test_a_job_that_was_forgotten_is_not_forgotten_again(tmp_path, monkeypatch):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        counter.tell(events.CancelAsked(1, 9, "j-fx", (), True))
        await counter.site.record()
        written = []
        forget = counter.site.forget

        async def noted(jobs):
            written.append(jobs)
            await forget(jobs)

        monkeypatch.setattr(counter.site, "forget", noted)
        for _ in range(3):
            assert (await counter.ask("forget", job="j-fx")).value["forgotten"]
        assert written == [["j-fx"]]


async def test_a_rule_that_has_no_name_says_to_omit_it(tmp_path):
    async with counter_of(tmp_path) as counter:
        nameless = {"kind": "residency", "name": "site", "content": None}
        asked = {"home": True, "edits": [nameless]}
        _, text = await counter.refusal("change_rules", **asked)
        assert text.startswith("the change: a rule of kind residency has no name: omit 'site'")
        asked["edits"] = [nameless, {"kind": "budget"}]
        _, text = await counter.refusal("change_rules", **asked)
        assert text.startswith("edits[1]: a rule of kind residency has no name")
        asked["edits"] = [{"kind": "budget", "content": None}]
        _, text = await counter.refusal("change_rules", **asked)
        assert text.startswith("the change: a rule of kind budget needs a name")


async def test_an_operators_orders_have_a_wider_pace(tmp_path, monkeypatch):
    async with counter_of(tmp_path) as counter:
        full = OrderPace(OPERATOR_ORDERS_PER_S, OPERATOR_BURST)
        monkeypatch.setattr(counter.site.desk, "_operator_order_pace", full)
        while full.wait_s("ann", counter.site.runtime.mono_s()) is not None:
            pass
        code, reason = await counter.refusal("hold", job="j-x", home=True)
        assert code == Reason.BUSY
        assert "carries out 100 a second" in reason


@pytest.mark.parametrize("verb", ["status", "explain", "pools"])
async def test_an_operators_questions_have_a_larger_share_of_the_loop(tmp_path, monkeypatch, verb):
    async with counter_of(tmp_path) as counter:
        pace = QuestionPace(OPERATOR_SHARE, OPERATOR_BURST_S)
        monkeypatch.setattr(counter.site.desk, "_operator_pace", pace)
        pace.took("ann", OPERATOR_BURST_S, counter.site.runtime.mono_s())
        assert (await counter.ask(verb, home=True)).code == ""
        pace.took("ann", OPERATOR_BURST_S + 3.0, counter.site.runtime.mono_s())
        code, reason = await counter.refusal(verb, home=True)
        assert code == Reason.BUSY
        assert re.match(r"questions by ann took [89]\.\d s of this site lately", reason)


async def test_others_have_their_turns_between_the_parts_of_an_explanation(tmp_path, monkeypatch):
    """And the workers and jobs of the site are counted once for many explanations."""
    async with counter_of(tmp_path, pools=WORKERS) as counter:
        open_jobs(counter)
        await counter.site.record()
        passes, counts = [], []
        stock = counter.site.exchange._stock
        monkeypatch.setattr(
            counter.site.exchange, "_stock", lambda *at, **of: counts.append(1) or stock(*at, **of)
        )

        async def others():
            while True:
                passes.append(counter.site.desk._heavy_turn.locked())
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            for details in ({"job": "j-fx"}, {"tasks": 5}):
                passes.clear()
                counts.clear()
                for _ in range(20):
                    assert (await counter.ask("explain", **details)).code == ""
                assert sum(passes) >= 40
                assert len(counts) <= 3
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"state": "idle"}, "state 'idle': must be up or draining"),
        ({"limit": -1}, "limit must be a whole number, from 0 to 10,000"),
        ({"host": 7}, "host must be text of up to 1,000 printable characters"),
    ],
)
async def test_a_wrong_filter_of_workers_is_refused(tmp_path, details, reason):
    async with counter_of(tmp_path) as counter:
        assert (await counter.ask("workers")).code == ""
        assert (await counter.ask("workers", **details)).reason == reason


@pytest.mark.parametrize("verb", ["explain", "workers", "shares", "status", "sites"])
async def test_heavy_questions_of_a_user_have_a_share_of_the_loop(tmp_path, monkeypatch, verb):
    async with counter_of(tmp_path) as counter:
        pace = QuestionPace()
        monkeypatch.setattr(counter.site.desk, "_question_pace", pace)
        assert (await counter.ask(verb)).code == ""
        pace.took("ann", 3.0, counter.site.runtime.mono_s())
        answer = await counter.ask(verb)
        assert answer.code == Reason.BUSY
        assert re.fullmatch(
            r"questions by ann took 3\.0 s of this site lately: try again in 1[56] s", answer.reason
        )
        assert (await counter.ask(verb, home=True)).code == ""


async def test_an_explanation_waits_for_the_store_outside_the_turn_of_all_users(
    tmp_path, monkeypatch
):
    async with counter_of(tmp_path) as counter:
        site, turn, reads = counter.site, counter.site.desk._heavy_turn, []
        pace = QuestionPace()
        monkeypatch.setattr(site.desk, "_question_pace", pace)
        read = site.runtime.read

        async def noted(*of):
            reads.append(turn.locked())
            await trio.sleep(0.01)
            return await read(*of)

        object.__setattr__(site.runtime, "read", noted)  # it is frozen
        pace.took("ann", 100.0, site.runtime.mono_s())  # refused, if it took a turn
        unknown = await counter.ask("explain", job="j-none")
        assert unknown.code == Reason.JOB_NOT_FOUND
        assert reads
        assert not any(reads)


async def test_a_job_that_ends_before_its_turn_is_explained_from_the_books(tmp_path, monkeypatch):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        await counter.site.record()
        in_turn = counter.site.desk._in_turn

        async def late(verb, asker, details):
            counter.tell(events.CancelAsked(1, 9, "j-fx", (), True))
            await counter.site.record()
            return await in_turn(verb, asker, details)

        monkeypatch.setattr(counter.site.desk, "_in_turn", late)
        answer = await counter.ask("explain", job="j-fx")
        assert (answer.code, answer.value["state"]) == ("", "cancelled")


async def test_two_heavy_questions_are_never_answered_in_one_pass_of_the_loop(tmp_path):
    async with counter_of(tmp_path) as counter:
        passes, at = 0, []

        def note(_asker, _details):
            at.append(passes)

        async with trio.open_nursery() as nursery:
            asker = SimpleNamespace(user="ann", is_operator=False)
            for _ in range(8):
                nursery.start_soon(counter.site.desk._in_turn, note, asker, {})
            while len(at) < 8:
                passes += 1
                await trio.lowlevel.checkpoint()
        # A pass runs its tasks in any order, so neighbours may see one number.
        assert max(map(at.count, at)) <= 2


async def test_output_is_shown_to_those_that_see_the_job(tmp_path):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        counter.site._keep_output("j-fx", [(0, 2, "hello")])
        answer = await counter.ask("logs", job="j-fx", token=token(Scope.SUBMIT))
        ((_, _, *shown),) = answer.value["pieces"]
        assert (shown, answer.value["ended"], answer.value["more"]) == (
            [0, 2, "hello"],
            False,
            False,
        )
        for asked in (
            {"user": "bob", "token": token(Scope.SUBMIT)},
            {"token": token(Scope.SUBMIT, projects=frozenset({"risk"}))},
        ):
            assert "no job" in (await counter.refusal("logs", job="j-fx", **asked))[1]
        await counter.site.record()
        counter.tell(events.CancelAsked(1, 9, "j-fx", (), True))
        await counter.site.record()
        after = answer.value["after"]
        answer = await counter.ask("logs", job="j-fx", after=after, wait_s=30)
        assert (answer.value["pieces"], answer.value["ended"]) == ([], True)
        answer = await counter.ask("logs", job="j-fx", task=0, home=True)
        assert [each[2:] for each in answer.value["pieces"]] == [[0, 2, "hello"]]
        refused = await counter.refusal("logs", job="j-fx", task=1)
        assert refused[1] == "job j-fx has 1 task, number 0: there is no task 1"
        assert "no job" in (await counter.refusal("logs", job="j-fx", token=token(), user="bob"))[1]
        await counter.ask("forget", job="j-fx")
        answer = await counter.ask("logs", job="j-fx")
        assert answer.value["pieces"] == []
        assert "was forgotten with the results of the job" in answer.value["note"]


async def test_a_site_that_keeps_no_output_says_so(tmp_path):
    async with counter_of(tmp_path, site_log_bytes=0) as counter:
        open_jobs(counter)
        assert "keeps no output" in (await counter.refusal("logs", job="j-fx"))[1]
        assert not counter.site.broker.jobs["j-fx"].is_logged


async def test_users_hold_their_own_jobs_and_the_operator_everybodys(tmp_path):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        jobs, told = counter.site.broker.jobs, counter.told
        for verb, details in (("hold", {}), ("release", {}), ("prioritise", {"priority": 1})):
            for asked in (
                {"user": "bob"},
                {"token": token(Scope.SUBMIT, projects={"fx"})},
                {"user": "root", "token": token(Scope.ADMIN, projects={"risk"})},
            ):
                code, reason = await counter.refusal(verb, job="j-risk", **details, **asked)
                assert (code, reason) == (
                    Reason.JOB_NOT_FOUND,
                    "no unfinished job 'j-risk' of yours found here",
                )
                if verb == "hold":  # so many lines a second at most
                    who = asked.get("user", "ann")
                    assert told[-1].startswith(f"refused order by {who} (")
                    assert told[-1].endswith(f"hold of job j-risk: {reason}")
        code, _ = await counter.refusal("hold", job="j-risk", token=token(Scope.AUDIT))
        assert code == Reason.SCOPE_MISSING

        held = (await counter.ask("hold", job="j-risk")).value
        assert (held["user"], held["project"], held["held_by"]) == ("ann", "risk", "ann")
        assert held["text"] == "job j-risk of ann, project risk: held"
        assert told[-1] == "order by ann (no token): job j-risk of ann, project risk: held"
        _, reason = await counter.refusal("hold", job="j-risk", home=True, user="root")
        assert reason.startswith("job j-risk of ann, project risk: it has been held by ann since")
        assert (await counter.ask("release", job="j-risk", home=True, user="root")).value
        assert jobs["j-risk"].spec.hold is None

        answer = await counter.ask("hold", job="j-bob", user="ops", token=token(Scope.ADMIN))
        assert answer.value["text"] == "job j-bob of bob, project risk: held"
        assert told[-1].startswith("order by ops (token 64a3): job j-bob of bob")
        _, reason = await counter.refusal("release", job="j-bob", user="bob")
        assert "held by ops, the operator" in reason
        assert "only the operator can release it" in reason
        shown = (await counter.ask("job", job="j-bob", user="bob")).value
        assert shown["waits_for"].startswith("the job has been held by ops, the operator, since")
        [row] = (await counter.ask("jobs", user="bob")).value
        assert (row["held_by"], row["why_waiting"][0]["reason"]) == ("ops", Reason.HELD)
        explained = (await counter.ask("explain", job="j-bob", user="bob")).value
        assert explained["held"] == shown["waits_for"]


async def test_the_operators_priority_goes_beyond_the_entitlements_of_the_user(tmp_path):
    rule = EntitlementRule(who=(read_party("user:ann"),), allows=True, priority_max=3.0)
    async with counter_of(tmp_path, pools=WORKERS, entitlements=Entitlements((rule,))) as counter:
        open_jobs(counter)
        answer = await counter.ask("prioritise", job="j-risk", priority=2)
        text = "job j-risk of ann, project risk: priority 2 instead of 0"
        assert answer.value["text"] == text
        _, reason = await counter.refusal("prioritise", job="j-risk", priority=4)
        assert "priority" in reason
        assert "3" in reason
        answer = await counter.ask("prioritise", job="j-risk", priority=4, home=True, user="root")
        assert answer.value["priority"] == 4.0
        _, reason = await counter.refusal("prioritise", job="j-risk", priority=1)
        assert "root, the operator, gave it the priority 4" in reason
        for wrong in ("high", True, None, float("nan")):
            code, _ = await counter.refusal("prioritise", job="j-risk", priority=wrong)
            assert code == Reason.BAD_REQUEST


def only_for(*parties):
    """Rules by which only these parties may use the pools."""
    rule = EntitlementRule(who=tuple(map(read_party, parties)), allows=True)
    return Entitlements((rule,), "gateway.toml")


async def test_the_operator_reserves_for_others_whatever_they_may_themselves(tmp_path):
    rules = ReservationRules(longest_s=10 * HOUR_S, ahead_s=1e6)
    wish = {"slots": 1, "from_s": NOON_S + HOUR_S, "lasts_s": HOUR_S, "pool": "workers"}
    async with counter_of(
        tmp_path, reservations=rules, pools=WORKERS, entitlements=only_for("user:bob")
    ) as counter:
        counter.tell(events.WorkerJoined(100, "w", "workers", 10, {}, "3.11"))
        root = {"home": True, "user": "root"}
        _, reason = await counter.refusal("reserve", **root, **wish)
        assert "no [[entitlement]] of gateway.toml allows the work of root" in reason
        assert reason.endswith("--user NAME or --who names the party that you reserve for")
        for who in ("user:bob", "group:quants", "project:risk", "ours"):
            [made] = (await counter.ask("reserve", **root, who=who, **wish)).value
            assert made["who"] == who
        _, reason = await counter.refusal("reserve", **root, who="user:eve", **wish)
        assert "allows the work of eve" in reason
        _, reason = await counter.refusal("reserve", user="eve", who="user:bob", **wish)
        assert "you can't reserve for user:bob" in reason


async def test_explain_answers_the_operator_for_a_user(tmp_path):
    async with counter_of(tmp_path, pools=WORKERS, entitlements=only_for("user:bob")) as counter:
        counter.tell(events.WorkerJoined(100, "w", "workers", 10, {}, "3.11"))
        own = (await counter.ask("explain", home=True, user="root")).value
        assert "allows the work of root" in own["refused_by_rule"]

        async def explained(about, **asked):
            """The answer for a user, as the asker's own name is `user`, too."""
            peer = SimpleNamespace(
                handle=77, user="ann", role="client", is_local="token" not in asked
            )
            if "token" in asked:
                counter.site.server._tokens[77] = SimpleNamespace(token=asked["token"])
            return await counter.site.desk._answer(peer, Ask(1, "explain", {"user": about}))

        found = (await explained("bob")).value
        assert (found["user"], found["refused_by_rule"]) == ("bob", "")
        assert "allows the work of eve" in (await explained("eve")).value["refused_by_rule"]
        assert "user name" in (await explained("e\nve")).reason
        assert "user name" in (await explained(7)).reason
        for scopes, may in ((Scope.AUDIT, True), (Scope.ADMIN, True), (Scope.SUBMIT, False)):
            answer = await explained("bob", token=token(scopes))
            assert (not answer.code) is may, scopes
        answer = await explained("bob", token=token(Scope.AUDIT, projects={"fx"}))
        assert "takes the gateway's own socket" in answer.reason
        assert not (await explained("ann", token=token(Scope.SUBMIT))).code


async def test_explain_tells_apart_what_would_be_refused_and_what_may_only_be_late(tmp_path):
    async with counter_of(tmp_path, pools=WORKERS) as counter:
        counter.tell(events.WorkerJoined(100, "w", "workers", 1, {}, "3.11"))
        counter.site.broker.durations.learn(b"f" * 32, 10, 10 * 60 * 10**9)
        wishes = {"deadline_s": NOON_S + 10}
        about = {"function": b"f" * 32, "wishes": wishes, "python": "3.11"}
        measured = (await counter.ask("explain", **about)).value
        assert (measured["begins_late"], measured["refused_by_limits"]) == (True, "")
        assert "its first calls begin at idle slots all the same" in str(Explanation(measured))
        given = (await counter.ask("explain", **about, task_s=600.0)).value
        assert not given["begins_late"]
        why = "one that begins now ends 9 min 50 s after the deadline"
        assert why in given["refused_by_limits"]
        said = str(Explanation(given))
        assert f"it would be refused: {given['refused_by_limits']}" in said
        assert said.count(why) == 1
        assert "will be missed" not in said


async def test_dry_runs_use_no_judgements_of_jobs_and_look_at_the_pools_once(tmp_path, monkeypatch):
    """By 47 dry runs the judgements of a round were used up: hopeless jobs were taken then."""
    async with counter_of(tmp_path, pools=WORKERS) as counter:
        counter.tell(events.WorkerJoined(100, "w", "workers", 1, {}, "3.11"))
        exchange = counter.site.exchange
        looked, stock = [], exchange._stock

        def take_stock(*args, **how):
            looked.append(args)
            return stock(*args, **how)

        monkeypatch.setattr(exchange, "_stock", take_stock)
        about = {"wishes": {"deadline_s": NOON_S + 10}, "python": "3.11", "task_s": 600.0}
        exchange.deciding.begin_looks(MonoS(counter.site.broker.monotonic_s + 10))
        before = exchange.deciding._looks.judgements
        for _ in range(3):
            found = (await counter.ask("explain", **about)).value
            assert "after the deadline" in found["refused_by_limits"]
        assert exchange.deciding._looks.judgements == before > 0
        assert len(looked) == 1


async def test_who_orders_what_is_logged_and_refused_attempts_as_well(tmp_path):
    async with counter_of(tmp_path) as counter:
        await counter.ask("drain", home=True, user="root", on=True)
        order = "drain of the whole site"
        assert counter.told[-1] == f"order by root (the gateway's own socket): {order}"
        await counter.refusal("drain", token=token(Scope.AUDIT), on=True)
        assert counter.told[-1].startswith(f"refused order by ann (token 64a3): {order}: ")
        await counter.refusal("revoke", token=token(Scope.ADMIN), user="ann", home=False)
        assert "only for the gateway's own host" in counter.told[-1]
        await counter.refusal("invite", home=True)
        assert "in no federation" in counter.told[-1]
        before = len(counter.told)
        await counter.ask("status")
        await counter.refusal("jobs", limit=-1)
        assert len(counter.told) == before


async def test_orders_are_taken_while_the_database_fails_and_say_so(tmp_path):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        counter.site.broker.trouble = "the disk is full"
        answer = await counter.ask("hold", job="j-fx")
        assert (
            "held until the gateway stops: it can't write to its database" in (answer.value["text"])
        )


async def test_what_is_being_drained_is_said_and_done(tmp_path):
    async with counter_of(tmp_path, pools=WORKERS) as counter:
        counter.tell(
            *(
                events.WorkerJoined(100 + at, name, "workers", 1, {}, "3.11")
                for at, name in enumerate(("w", "w", "v"))
            )
        )
        workers = counter.site.broker.workers
        answer = await counter.ask("drain", home=True, worker="w")
        assert answer.value == {"worker": "w", "workers": 2, "draining": True}
        assert [workers[100 + at].draining for at in range(3)] == [True, True, False]
        await counter.ask("drain", home=True, worker="w", on=False)
        assert not any(each.draining for each in workers.values())
        answer = await counter.ask("drain", home=True)
        assert answer.value == {"site": "london", "draining": True}


async def test_a_host_drains_in_every_pool_and_for_who_comes_later(tmp_path):
    pools = (PoolConfig("workers"), PoolConfig("more"))
    async with counter_of(tmp_path, pools=pools) as counter:
        workers = counter.site.broker.workers
        for handle, pool, host in (
            (100, "workers", "Lon3.example.org"),
            (101, "more", "lon3"),
            (102, "more", "lon33"),
        ):
            joined = events.WorkerJoined(handle, f"w{handle}", pool, 1, {}, "3.11", host=host)
            counter.tell(joined)
        answer = await counter.ask("drain_host", home=True, host="LON3")
        assert answer.value == {"host": "lon3", "workers": 2, "draining": True}
        assert [workers[each].draining for each in (100, 101, 102)] == [True, True, False]
        counter.tell(events.WorkerGone(101, "its line broke"))
        counter.tell(events.WorkerJoined(103, "w101", "more", 1, {}, "3.11", host="lon3"))
        assert workers[103].draining, "it came back, and is given tasks"
        [row] = (await counter.ask("drains", home=True)).value
        assert row | {"since_s": 0} == {
            "kind": "host",
            "name": "lon3",
            "by": "ann",
            "since_s": 0,
            "workers": 2,
            "in_flight": 0,
        }
        await counter.ask("drain", home=True, worker="w101")
        _, reason = await counter.refusal("drain_host", home=True, host="lon4", on=False)
        assert reason.endswith("drained hosts: lon3")
        await counter.ask("drain_host", home=True, host="lon3", on=False)
        assert [workers[each].draining for each in (100, 103)] == [False, True], "by its name"
        await counter.ask("drain", home=True, worker="w101", on=False)
        assert not workers[103].draining
        assert (await counter.ask("drains", home=True)).value == []


async def test_a_worker_that_is_away_can_be_resumed_by_its_name(tmp_path):
    async with counter_of(tmp_path, pools=WORKERS) as counter:
        counter.tell(events.WorkerJoined(100, "w", "workers", 1, {}, "3.11"))
        await counter.ask("drain", home=True, worker="w")
        counter.tell(events.WorkerGone(100, "stopped", is_orderly=True))
        answer = await counter.ask("drain", home=True, worker="w", on=False)
        assert answer.value == {"worker": "w", "workers": 0, "draining": False}
        assert "no worker 'w' found" in (await counter.refusal("drain", home=True, worker="w"))[1]


async def test_what_an_operator_drains_is_drained_after_a_restart(tmp_path):
    async with counter_of(tmp_path, pools=WORKERS) as counter:
        await counter.ask("drain_host", home=True, host="lon3")
    async with counter_of(tmp_path, pools=WORKERS) as counter:
        counter.tell(events.WorkerJoined(1, "w", "workers", 1, {}, "3.11", host="lon3"))
        assert counter.site.broker.workers[1].drained_by == {events.Drainer.OPERATOR}


async def test_a_reservation_is_of_who_made_it(tmp_path):
    """Others neither see nor cancel it, except its permitted users, and the operator."""
    rules = ReservationRules(longest_s=10 * HOUR_S, ahead_s=1e6)
    async with counter_of(
        tmp_path, reservations=rules, groups={"cy": ("quants",)}, pools=WORKERS
    ) as counter:
        counter.tell(events.WorkerJoined(100, "w", "workers", 10, {}, "3.11"))
        wish = {"slots": 1, "from_s": NOON_S + HOUR_S, "lasts_s": HOUR_S, "pool": "workers"}
        assert (await counter.ask("reserve", **wish, dry_run=True)).value
        assert (await counter.ask("reservations", home=True)).value == []
        [made] = (await counter.ask("reserve", **wish)).value
        for_group = await counter.ask("reserve", home=True, who="group:quants", **wish)
        [others] = for_group.value
        name, theirs = made["id"], others["id"]
        for asked, shown in (
            ({}, {name}),
            ({"user": "bob"}, set()),
            ({"user": "cy"}, {theirs}),
            ({"home": True}, {name, theirs}),
        ):
            answer = await counter.ask("reservations", **asked)
            assert {each["id"] for each in answer.value} == shown | (
                {theirs} if not asked else set()  # in her name, at our own socket
            ), asked
        assert "of yours" in (await counter.refusal("unreserve", user="bob", reservation=name))[1]
        [gone] = (await counter.ask("unreserve", reservation=name)).value
        assert gone["cancelled_s"] == NOON_S
        code, _ = await counter.refusal("unreserve", reservation=name)
        assert code == Reason.BAD_REQUEST
        assert (await counter.refusal("reserve", who="user:bob", **wish))[0] == Reason.BAD_REQUEST


async def test_nothing_is_reserved_that_can_not_be_recorded(tmp_path):
    async with counter_of(tmp_path, reservations=ReservationRules()) as counter:
        counter.site.broker.trouble = "the disk is full"
        _, reason = await counter.refusal("reserve", slots=1, lasts_s=60.0)
        assert "can't write to its database: the disk is full" in reason


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"kind": "utilisation"}, "utilisation covers the work"),
        ({"where": [["user", "bob"]]}, "you may see only user ann"),
        (
            {"token": token(Scope.AUDIT, projects=frozenset({"fx"})), "where": [["project", "r"]]},
            "you may see only project fx",
        ),
    ],
)
async def test_a_report_has_nothing_of_others(tmp_path, asked, text):
    async with counter_of(tmp_path) as counter:
        assert text in (await counter.refusal("report", **asked))[1]
        answer = await counter.ask("report")
        assert answer.value["notes"][-1].startswith("only the work of ann")
        assert (await counter.ask("report", home=True, kind="utilisation")).code == ""


async def test_budgets_are_shown_to_whom_they_concern(tmp_path):
    money = [
        Budget(name, read_party(party), "USD", 10**12, span=None)
        for name, party in (("mine", "user:ann"), ("his", "user:bob"), ("ours", "group:quants"))
    ]
    async with counter_of(tmp_path, budgets=tuple(money), groups={"ann": ("quants",)}) as counter:
        for asked, shown in (
            ({}, {"mine", "ours"}),
            ({"user": "bob"}, {"his"}),
            ({"home": True}, {"mine", "his", "ours"}),
        ):
            answer = await counter.ask("budgets", **asked)
            assert {each["name"] for each in answer.value} == shown, asked


def asking(backlog_bytes=0):
    return SimpleNamespace(handle=5, session=SimpleNamespace(backlog_bytes=backlog_bytes))


async def test_a_peer_has_so_many_questions_and_reads_the_answers(tmp_path):
    async with counter_of(tmp_path, unread_bytes=100) as counter:
        told = []
        counter.site.listener.post = lambda peer, answer: told.append(answer)
        desk, limit = counter.site.desk, counter.site.config.rules.questions_max
        assert all(desk.takes(asking(), Ask(1, "status", {})) for _ in range(limit))
        assert not desk.takes(asking(), Ask(2, "status", {}))
        assert not desk.takes(asking(101), Ask(3, "status", {}))
        assert [(each.request, each.code) for each in told] == [(2, Reason.BUSY), (3, Reason.BUSY)]
        assert re.search("101 bytes for you are unread", told[1].reason)
        with pytest.raises(ProtocolError, match="201 bytes of unread answers"):
            desk.takes(asking(201), Ask(4, "status", {}))


async def test_a_fault_of_ours_is_told_as_one_and_ends_nothing(tmp_path):
    async with counter_of(tmp_path) as counter:
        counter.site.exchange.show = None
        assert (await counter.refusal("sites"))[0] == Reason.FAULT
        assert not (await counter.ask("status")).code


async def test_a_wrong_worker_is_answered_by_what_is_near(tmp_path):
    async with counter_of(tmp_path, pools=WORKERS) as counter:
        why = (await counter.refusal("drain", home=True, worker="vm"))[1]
        assert why == "no worker 'vm' found: no worker is here"
        for number in range(4):
            joined = events.WorkerJoined(
                *(50 + number, f"crunch-{number}", "workers", 1, {}, "3.11"), host="vm.example.org"
            )
            counter.tell(joined)
        for worker, told in (
            ("VM", ": it is a host: `gridfed drain --host VM`"),
            ("workers", ": it is a pool, with 4 workers: crunch-0, crunch-1, crunch-2 and 1 more"),
            ("crunsh-3", ": did you mean 'crunch-3'?"),
            ("zzz", ": `gridfed workers` lists them"),
        ):
            why = (await counter.refusal("drain", home=True, worker=worker))[1]
            assert why == f"no worker '{worker}' found{told}"


async def test_held_jobs_are_listed_as_those(tmp_path):
    async with counter_of(tmp_path) as counter:
        open_jobs(counter)
        assert (await counter.ask("jobs", state="held")).value == []
        await counter.ask("hold", job="j-risk")
        [found] = (await counter.ask("jobs", state="held")).value
        assert found["id"] == "j-risk"
        assert "held" in (await counter.refusal("jobs", state="resting"))[1]
