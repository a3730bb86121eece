"""The bounds of peers' descriptions of themselves."""

from dataclasses import replace

import pytest
from support.pure.broker import spec

from federation.client import Options
from federation.errors import ProtocolError
from federation.messages import messages
from federation.messages.wire import pack
from federation.wishes import wishes_plain
from gateway.base.tags import check_tags
from gateway.ledger.reports.keys import key_of
from gateway.scheduler.model import events
from gateway.scheduler.model.intake import (
    BadJob,
    BadWorker,
    check_worker_name,
    job_event,
    of_operator,
    worker_event,
    worker_joined,
)
from gateway.scheduler.model.intake import wishes_plain as wishes_passed_on
from gateway.scheduler.model.stored_terms import stored_terms, terms_plain
from gateway.scheduler.model.terms import CarriedHold, JobHold
from gateway.worker.settings import parse_tags
from policies.parties import Owner
from policies.placement.asks import WhenClosed
from policies.placement.placement import show_tags


def joins(pool, *pools):
    about = {"slots": 1, "pool": pool, "python": "3.11", "tags": {}}
    return worker_joined(about, 7, "w", {name: {} for name in pools}).pool


def test_a_worker_says_how_far_away_its_slots_are():
    about = {"slots": 1, "python": "3.12", "pool": "a"}
    assert worker_joined(about, 7, "w", {"a": {}}).round_trip_s == 0.0
    assert worker_joined({**about, "round_trip_s": 0.5}, 7, "w", {"a": {}}).round_trip_s == 0.5
    for wrong in (True, -1, 6.0, "1", float("nan")):
        with pytest.raises(BadWorker, match="round_trip_s"):
            worker_joined({**about, "round_trip_s": wrong}, 7, "w", {"a": {}})


def test_a_worker_that_names_no_pool_joins_the_only_one():
    assert joins("", "local") == "local"


def test_a_worker_that_names_no_pool_joins_the_usual_one_of_several():
    assert joins("", "local", "workers") == "workers"


@pytest.mark.parametrize("pool", ["", "nope"])
def test_a_worker_is_told_how_to_choose_a_pool(pool):
    with pytest.raises(BadWorker, match="--pool; the pools are a, b"):
        joins(pool, "a", "b")


def opening(**changes):
    fields = {
        "job": "j",
        "name": "n",
        "function": bytes(32),
        "detached": True,
        "project": "p",
        "priority": 0.0,
        "tags": {},
        "timeout_s": None,
        "retries": 0,
        "max_cost_nanos": None,
        "currency": "",
        "python": "3.11",
        "prints": False,
        "again": False,
        "wishes": {},
    }
    return messages.OpenJob(**{**fields, **changes})


@pytest.mark.parametrize("wish", [*WhenClosed])
def test_what_is_done_about_closed_windows_is_kept_and_not_passed_on(wish):
    wishes = wishes_plain(None, None, when_closed=wish.value)
    spec = job_event(opening(wishes=wishes), 1, "ann").spec
    assert spec.wishes.when_closed is wish
    assert stored_terms(pack(terms_plain(spec)))["wishes"] == spec.wishes
    assert wishes_passed_on(spec.wishes) == {}  # it waits here; and older sites refuse the unknown


@pytest.mark.parametrize("bad", ["", "later", 1, True, ["wait"], {}])
def test_a_wish_about_closed_windows_that_is_none_is_refused(bad):
    with pytest.raises(BadJob, match="when_closed must be wait or elsewhere"):
        job_event(opening(wishes={"when_closed": bad}), 1, "ann")
    with pytest.raises(ValueError, match="it must be 'wait' or 'elsewhere'"):
        Options(when_closed=bad)


@pytest.mark.parametrize(
    ("user", "group", "more"),
    [("ann", "equity desk", ()), ("bob", "ops", ("equity desk", "prod")), ("eve", "", ())],
)
def test_a_job_is_of_its_users_groups_also_after_a_restart(user, group, more):
    groups = {"ann": ("equity desk",), "bob": ("ops", "prod", "equity desk")}
    spec = job_event(opening(), 1, user, groups).spec
    assert (spec.group, spec.more_groups) == (group, more)
    assert spec.whose == Owner(user, group, spec.project, more_groups=frozenset(more))
    kept = stored_terms(pack(terms_plain(spec)))
    assert (kept["group"], kept["more_groups"]) == (group, more)


def test_a_job_of_an_older_version_has_one_group():
    plain = terms_plain(job_event(opening(), 1, "ann", {"ann": ("ops",)}).spec)
    assert "more_groups" not in plain  # which an older version would refuse
    assert stored_terms(pack(plain))["more_groups"] == ()


@pytest.mark.parametrize("name", ["", "a,b", "a=b", "a\nb", "x" * 300])
def test_a_tag_is_named_as_it_is_written_down(name):
    with pytest.raises(ValueError, match="tag name"):
        check_tags({name: True})


@pytest.mark.parametrize("value", [True, 0, 2, 1_048_577, 10**12, 0.5, 1234567.25])
def test_a_tag_is_read_as_it_was_written(value):
    text = show_tags(check_tags({"linux": True, "memory": value}))
    assert key_of("tag:memory").show(text, "") == ("yes" if value is True else f"{value}")
    assert parse_tags(text) == {"linux": True, "memory": value}
    assert parse_tags(text) == {"linux": True, "memory": value}


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        ({"deferrable": True}, "needs a deadline_s"),
        ({"deferrable": 1, "deadline_s": 2e9}, "must be true or false"),
        ({"deferrable": "yes", "deadline_s": 2e9}, "must be true or false"),
        ({"deferable": True, "deadline_s": 2e9}, "unknown option 'deferable'"),
        ({"whole": 1}, "whole must be true or false"),
    ],
)
def test_a_wish_to_wait_that_can_not_be_is_named(wishes, why):
    with pytest.raises(BadJob, match=why):
        job_event(opening(wishes=wishes), 1, "ann")


def test_what_may_wait_or_is_of_use_as_a_whole_is_known_and_stays_with_us():
    wishes = {"deferrable": True, "whole": True, "deadline_s": 2e9}
    spec = job_event(opening(wishes=wishes, tasks=7, task_s=0.5), 1, "a").spec
    assert (spec.wishes.deferrable, spec.wishes.whole) == (True, True)
    assert (spec.tasks, spec.task_s) == (7, 0.5)
    assert wishes_passed_on(spec.wishes) == {"deadline_s": 2e9}


@pytest.mark.parametrize("task_s", [0.0, -1.0, 1e10])
def test_a_length_that_can_not_be_is_refused(task_s):
    with pytest.raises(BadJob, match=r"task_s is .* greater than zero"):
        job_event(opening(task_s=task_s), 1, "ann")


def test_more_tasks_are_not_announced_than_a_job_may_have():
    with pytest.raises(BadJob, match="tasks, the limit is"):
        job_event(opening(tasks=(1 << 40) + 1), 1, "ann")


@pytest.mark.parametrize(
    "name", ["paris/local", "", " w", "w ", "a\x1b[2J", "a\u202eb", "w = 1234", "w #7", "x" * 300]
)
def test_a_worker_by_a_name_that_poses_as_another_or_can_not_be_shown_is_refused(name):
    for is_own in (True, False):
        with pytest.raises(BadWorker, match="--name"):
            check_worker_name(name, frozenset(), is_own=is_own)


def test_only_workers_that_the_gateway_started_have_the_names_of_a_local_pools_own():
    own = frozenset({"local"})
    check_worker_name("local-123", own, is_own=True)
    for name in ("local", "local-x", "cloud-1", "node7.example.org", "Jürgen's box"):
        check_worker_name(name, own, is_own=False)
    with pytest.raises(BadWorker, match="pool local"):
        check_worker_name("local-1", own, is_own=False)


@pytest.mark.parametrize("rows", [[[1, 2]], [[1, 2, 3, 4]], [[]], [[1, 2, 3]] * 4097, [[1, 2, -1]]])
def test_what_a_worker_says_has_begun_must_be_rows_and_not_too_many(rows):
    with pytest.raises(ProtocolError):
        worker_event(messages.BegunTasks(rows), 1)


def test_what_has_begun_is_told_by_assignment_task_and_seconds():
    event = worker_event(messages.BegunTasks([[5, 6, 1500]]), 1)
    assert event == events.TasksBegun(1, ((5, 6, 1.5),))


@pytest.mark.parametrize(
    "row", [[], [1, 1], [1, 1, "a", 1], [1, 0, "a"], [1, 3, "a"], ["1", 1, "a"], [1, 1, 1]]
)
def test_output_of_running_tasks_must_be_rows_of_task_stream_and_text(row):
    with pytest.raises(ProtocolError, match="output of tasks must be"):
        worker_event(messages.TaskOutput(5, [row]), 1)


def test_output_of_running_tasks_is_told_by_assignment():
    message = messages.TaskOutput(5, [[6, 1, "a"], [6, 2, "b"]])
    assert worker_event(message, 1) == events.OutputArrived(1, 5, ((6, 1, "a"), (6, 2, "b")))


@pytest.mark.parametrize(
    ("streams", "is_sound"), [([1], True), ([], True), ([1, 2], False), ([3], False)]
)
def test_the_streams_of_a_report_must_be_of_its_prints(streams, is_sound):
    report = messages.Report(5, 0, [b""], [], [[0, "a"]], 1, 1, 1, streams)
    if is_sound:
        event = worker_event(report, 1)
        assert event.prints in ([[0, "a", 1]], [[0, "a"]])
    else:
        with pytest.raises(ProtocolError):
            worker_event(report, 1)


@pytest.mark.parametrize("says", [True, False, "yes", None])
def test_a_worker_says_whether_it_sends_output(says):
    about = {"slots": 4, "pool": "", "python": "3.11", "output": says}
    assert worker_joined(about, 1, "w", {"local": {}}).tells_output is (says is True)


@pytest.mark.parametrize("memory", [0, -1, "1", 1.5, None])
def test_a_host_without_memory_is_refused(memory):
    about = {"slots": 4, "pool": "", "python": "3.11", "host_memory_bytes": memory}
    with pytest.raises(BadWorker, match="host_memory_bytes"):
        worker_joined(about, 1, "w", {"local": {}})


def test_a_client_can_not_name_its_job_as_those_of_other_sites_are_named():
    with pytest.raises(BadJob, match="must not contain a colon"):
        job_event(opening(job="paris:c1"), 1, "ann")


def test_only_the_tag_of_a_pool_test_makes_an_operators_job_one():
    for tag, is_probe in (
        ("probe-0123456789ab", True),
        ("probe-0123456789abc", False),
        ("probe", False),
    ):
        made = of_operator(spec(tags={tag: True}))
        assert made.work.is_operators is made.is_probe is is_probe
    assert not spec(tags={"probe-0123456789ab": True}).work.is_operators


def test_a_hold_that_a_client_brings_along_is_checked_and_marked():
    told = {"by": "root", "at_s": 5.0, "is_operators": True}
    event = job_event(opening(detached=False, again=True, hold=told), 1, "ann")
    held = JobHold("root", 5.0, is_operators=True, is_carried=True)
    assert event.hold == CarriedHold(held, at_s=5.0)
    assert str(held).startswith("held by root, the operator of another gateway, since")
    event = job_event(opening(detached=False, again=True, hold={**told, "site": "paris"}), 1, "ann")
    assert str(event.hold.hold).startswith("held by root, the operator of site paris, since")
    assert str(replace(event.hold.hold, is_operators=False)).startswith(
        "held by root, at site paris, since"
    )
    assert job_event(opening(detached=False, again=True, hold={**told, "by": ""}), 1, "ann").hold
    assert job_event(opening(detached=False, hold=told), 1, "ann").hold is None  # it is new
    assert job_event(opening(again=True, hold=told), 1, "ann").hold is None  # it stays where it is


@pytest.mark.parametrize(
    "bad",
    [{"by": 1, "at_s": 5}, {"by": "a"}, {"by": "a", "at_s": -1}, {"by": "\x1b", "at_s": 5}]
    + [{"by": "a", "at_s": 5, "site": site} for site in (7, "a\n", "x" * 10_000)],
)
def test_a_hold_that_is_none_is_refused(bad):
    with pytest.raises(BadJob, match="hold"):
        job_event(opening(detached=False, again=True, hold=bad), 1, "ann")
