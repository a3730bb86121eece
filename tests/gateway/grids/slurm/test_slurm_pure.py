"""Outputs and inputs of Slurm: recorded outputs of both generations, tables, and garbage."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.values import SettingError
from gateway.grids.contract import FailureClass, GridFault, Launch, Order, PilotState, Shape
from gateway.grids.slurm import KIND
from gateway.grids.slurm.asking import joined, request_of, rest_body, sbatch_options
from gateway.grids.slurm.faults import KNOWN, fault_of, hide, read_answer, submitted, tidy
from gateway.grids.slurm.listing import (
    TASKS_MAX,
    parse,
    read_clock,
    read_jobs,
    read_nodes,
    read_partition_lines,
    read_partitions,
    read_tasks,
    release,
)
from gateway.grids.slurm.memory import memory_of, read_amount_mb, read_memory
from gateway.grids.slurm.quotas import Quotas, read_quotas
from gateway.grids.slurm.settings import read_settings
from gateway.grids.slurm.states import FORESEEN_S, Wait, job_start, look, meaning

DATA = Path(__file__).with_name("data")
VERSIONS = ["22.05.8", "24.11.5"]
MARK = "m"
LEAST = {"partition": "main", "python": "/opt/gridfed/bin/python"}


def recorded(name):
    return parse((DATA / name).read_bytes(), name)


def record(states="RUNNING", *, comment="gridfed pilots=3", **changes):
    """One job as 22.05 shows it."""
    words = states.split() if isinstance(states, str) else states
    entry = {
        "job_id": 7,
        "array_job_id": 7,
        "array_task_id": 0,
        "array_task_string": "",
        "name": "gridfed-m.order",
        "comment": comment,
        "job_state": words,
        "state_reason": "None",
        "cpus": 4,
        "start_time": 1000,
        "end_time": 4600,
        "time_limit": 60,
        "preempt_time": 0,
        "exit_code": 0,
    }
    return entry | changes


def seen(*entries, utc_s=1000.0, cpus_per_slot=2):
    jobs = read_jobs({"jobs": list(entries)}, job_start(MARK))
    return look(jobs, MARK, utc_s, cpus_per_slot)


def only(*entries, **options):
    (found,) = seen(*entries, **options).sightings
    return found


# --- recorded outputs ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_both_generations_show_the_same_pilots(version):
    data = recorded(f"squeue-{version}.json")
    assert release(data) == version
    jobs = read_jobs(data, "gridfed-rec.")
    now_s = max(each.begin_at_s for each in jobs if "RUNNING" in each.states)
    shown = look(jobs, "rec", now_s)
    by_name = {each.name: each for each in shown.sightings}
    running = by_name["run.0"]
    assert running.state is PilotState.RUNNING
    assert running.slots == 2
    assert running.paid_at_s is not None
    assert running.ends_at_s is None, "it has no limit, and Slurm says a year"
    taken = by_name["low.0"]  # by jobs of a higher tier, with 20 s of grace
    assert taken.state is PilotState.ENDING
    assert 20 <= taken.ends_at_s - taken.paid_at_s < 25
    waiting = [each for name, each in by_name.items() if name.startswith("big.")]
    assert len(waiting) == 500
    assert {each.state for each in waiting} == {PilotState.QUEUED}
    assert by_name["done.0"].state is PilotState.ENDED
    assert by_name["done.0"].fault == ""
    assert "code 3" in by_name["bad.0"].fault
    assert "python" in by_name["lost.0"].fault
    assert "cancelled" in by_name["kill.0"].fault
    assert by_name["long.1"].state is PilotState.ENDED
    assert "walltime" in by_name["long.1"].fault
    (array,) = {each.grid_id.partition("_")[0] for name, each in by_name.items() if "long." in name}
    assert shown.strays[:2] == (f"{array}_0", f"{array}_1")
    assert "PartitionDown" in by_name["closed.0"].fault
    held = [each for name, each in by_name.items() if name.startswith("held.")]
    assert sum(each.state is PilotState.QUEUED for each in held) >= 79
    assert not [name for name in by_name if name.startswith("other")]


@pytest.mark.parametrize("version", VERSIONS)
def test_both_generations_show_the_same_nodes(version):
    nodes = read_nodes(recorded(f"nodes-{version}.json"))
    assert [each.name for each in nodes] == ["rc0", "rc1"]
    assert all(each.cpus == 4 and each.memory_mb == 4000 and each.gpus == 1 for each in nodes)
    assert all("main" in each.partitions for each in nodes)
    assert sum(each.cpus_taken for each in nodes) >= 7
    assert sum(each.gpus_taken for each in nodes) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_by_commands_are_those_by_slurmrestd(version):
    by_commands = read_partition_lines((DATA / f"partitions-{version}.txt").read_text())
    by_rest = read_partitions(recorded(f"partitions-{version}.json"))
    assert sorted(by_commands, key=str) == sorted(by_rest, key=str)
    named = {each.name: each for each in by_rest}
    assert named["main"].is_up
    assert named["main"].limit_s is None
    assert named["low"].limit_s == 3600
    assert not named["closed"].is_up
    assert named["theirs"].accounts == {"others"}


# --- states --------------------------------------------------------------------------------------

PILOT_STATES = [
    ("PENDING", PilotState.QUEUED, ""),
    ("CONFIGURING RUNNING", PilotState.STARTING, ""),
    ("RUNNING", PilotState.RUNNING, ""),
    ("COMPLETING", PilotState.ENDING, "completing"),
    ("CANCELLED COMPLETING", PilotState.ENDING, "cancelled"),
    ("SUSPENDED", PilotState.ENDING, "suspended"),
    ("COMPLETED", PilotState.ENDED, ""),
    ("CANCELLED", PilotState.ENDED, "cancelled"),
    ("NODE_FAIL", PilotState.ENDED, "node failed"),
    ("TIMEOUT", PilotState.ENDED, "time limit"),
    ("PREEMPTED", PilotState.ENDED, "preempted"),
    ("OUT_OF_MEMORY", PilotState.ENDED, "memory"),
    ("BOOT_FAIL", PilotState.ENDED, "did not start"),
    ("REQUEUED PENDING", PilotState.QUEUED, ""),
    ("SPECIAL_EXIT PENDING", PilotState.QUEUED, ""),
    ("A_NEW_STATE", PilotState.QUEUED, "a_new_state"),
]


@pytest.mark.parametrize(("states", "stand", "fault"), PILOT_STATES)
def test_states(states, stand, fault):
    found = only(record(states))
    assert found.state is stand
    assert fault in found.fault
    assert bool(found.fault) == bool(fault)


def test_what_a_running_pilot_says():
    found = only(record("RUNNING"))
    assert found.name == "order.0"
    assert found.grid_id == "7_0"
    assert (found.slots, found.paid_at_s, found.begins_at_s, found.ends_at_s) == (
        2,
        1000,
        None,
        4600,
    )


def test_a_pilot_that_was_chosen_to_make_room_is_ending():
    found = only(record("RUNNING", preempt_time=2000, end_time=2020, time_limit=None))
    assert found.state is PilotState.ENDING
    assert found.ends_at_s == 2020
    assert "preempted" in found.fault
    assert "preempted; the job was cancelled" in only(record("CANCELLED", preempt_time=2000)).fault


@pytest.mark.parametrize(
    ("begin_at_s", "expected"), [(0, None), (1500, 1500), (900, 1000), (1e9, None)]
)
def test_when_a_waiting_pilot_is_expected_to_begin(begin_at_s, expected):
    assert only(record("PENDING", start_time=begin_at_s)).begins_at_s == expected
    assert FORESEEN_S < 1e9


REASONS = [
    ("None", Wait.TURN),
    ("Resources", Wait.TURN),
    ("Priority", Wait.TURN),
    ("ReqNodeNotAvail, UnavailableNodes:n7", Wait.TURN),
    ("QOSMaxCpuPerUserLimit", Wait.QUOTA),
    ("QOSMaxJobsPerUserLimit", Wait.QUOTA),
    ("AssocGrpCpuLimit", Wait.QUOTA),
    ("AssocGrpCPURunMinutesLimit", Wait.QUOTA),
    ("MaxJobsPerAccount", Wait.QUOTA),
    ("QOSMaxCpuPerJobLimit", Wait.NEVER),
    ("QOSGrpSubmitJobsLimit", Wait.QUOTA),
    ("AssocMaxWallDurationPerJobLimit", Wait.NEVER),
    ("QOSMaxCpuPerNode", Wait.NEVER),
    ("QOSMinCpuNotSatisfied", Wait.NEVER),
    ("MaxMemPerLimit", Wait.NEVER),
    ("QOSMaxWallDurationPerJobLimit", Wait.NEVER),
    ("PartitionTimeLimit", Wait.NEVER),
    ("PartitionNodeLimit", Wait.NEVER),
    ("PartitionConfig", Wait.NEVER),
    ("InvalidAccount", Wait.NEVER),
    ("InvalidQOS", Wait.NEVER),
    ("AccountNotAllowed", Wait.NEVER),
    ("Job's account not known, so it can't use this partition (p allows others)", Wait.NEVER),
    ("BadConstraints", Wait.NEVER),
    ("PartitionDown", Wait.HELD),
    ("JobHeldAdmin", Wait.HELD),
]


@pytest.mark.parametrize(("reason", "wait"), REASONS)
def test_reasons_to_wait(reason, wait):
    found, _ = meaning(reason)
    assert found is wait
    shown = seen(record("PENDING", state_reason=reason))
    assert shown.strays == (("7_0",) if wait is Wait.NEVER else ())
    assert (shown.sightings[0].state is PilotState.ENDED) == (wait is Wait.NEVER)


def test_an_order_that_is_there_twice_is_once():
    again = record("PENDING", job_id=9, array_job_id=9)
    shown = seen(again, record("RUNNING"))
    assert [each.grid_id for each in shown.sightings] == ["7_0"]
    assert shown.strays == ("9_0",)


def test_the_second_of_two_counts_if_the_first_has_ended():
    shown = seen(record("CANCELLED"), record("RUNNING", job_id=9, array_job_id=9))
    assert [(each.grid_id, each.state) for each in shown.sightings] == [("9_0", PilotState.RUNNING)]
    assert not shown.strays


@pytest.mark.parametrize(
    "name", ["gridfed-m1.order", "gridfed-M.order", "gridfed-", "gridfed-m", "xgridfed-m.o", ""]
)
def test_jobs_of_others_are_not_ours(name):
    assert not seen(record(name=name)).sightings
    assert not seen(record(name=name)).orders


def test_a_list_of_tasks_that_is_cut_is_made_whole():
    cut = record("PENDING", array_task_id=None, array_task_string="0,2-3,...", comment=pilots(8))
    shown = seen(cut, record("RUNNING", job_id=8, array_task_id=5))
    assert {each.name: each.state for each in shown.sightings} == {
        **{f"order.{at}": PilotState.QUEUED for at in (0, 2, 3, 4, 6, 7)},
        "order.5": PilotState.RUNNING,
    }


def pilots(number):
    return f"gridfed pilots={number}"


TASKS = [
    ("", (), False),
    ("7", (7,), False),
    ("0-3", (0, 1, 2, 3), False),
    ("0-8:4,11%2", (0, 4, 8, 11), False),
    ("5-3", (), False),
    ("0-4:0", (0, 1, 2, 3, 4), False),
    ("1,58-...", (1,), True),
    ("1,5...", (1, 5), True),
]


@pytest.mark.parametrize(("text", "tasks", "is_cut"), TASKS)
def test_tasks(text, tasks, is_cut):
    assert read_tasks(text) == (tasks, is_cut)


@pytest.mark.parametrize("text", ["a", "1-", "-1", f"0-{TASKS_MAX}", "0-999999999", "1;2", "٣"])
def test_tasks_that_are_none(text):
    with pytest.raises(GridFault):
        read_tasks(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1-02:30:00", 95_400), ("01:00:00", 3600), ("UNLIMITED", None)]
)
def test_clocks(text, seconds):
    assert read_clock(text) == seconds


# --- garbage -------------------------------------------------------------------------------------

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=4,
)
KEYS = [*record(), "user_name", "state", "partitions", "gres", "maximums", "accounts", "partition"]
numbers = st.fixed_dictionaries({"set": junk, "infinite": junk, "number": junk})
entries = st.dictionaries(st.sampled_from(KEYS), junk | numbers).map(
    lambda entry: {"name": "gridfed-m.o", "job_id": 3} | entry
)


@settings(max_examples=60)
@given(entries, st.sampled_from(["jobs", "nodes", "partitions"]))
def test_garbage_is_a_fault_and_never_a_crash(entry, what):
    data = {what: [entry]}
    with suppress(GridFault):
        if what == "jobs":
            look(read_jobs(data, job_start(MARK)), MARK, 0.0)
        else:
            (read_nodes if what == "nodes" else read_partitions)(data)


@given(st.binary(max_size=200) | junk.map(lambda value: json.dumps(value).encode()))
def test_answers_that_are_none(body):
    with suppress(GridFault):
        data = parse(body, "it")
        release(data)
        for read in (read_nodes, read_partitions, lambda data: read_jobs(data, "")):
            with suppress(GridFault):
                read(data)
    submitted(read_answer(500, body)[0])


def test_json_that_is_too_deep_is_a_fault():
    with pytest.raises(GridFault):
        parse(b"[" * 100_000, "it")


@given(st.text())
def test_any_text_is_a_fault_of_one_line(text):
    said = str(fault_of("sbatch", text))
    assert "\n" not in said
    assert len(said) < 700
    read_partition_lines(text)


# --- limits of accounts and qualities of service -------------------------------------------------

QUOTAS = [  # as they were when the real clusters had three jobs of "risk" and four of "small"
    ("small", [], {"jobs": (2, 2), "submits": (4, 4), "cpu": (6, 4)}, {}, None, (0, 2)),
    ("risk", ["cpus"], {"cpu": (3, 2)}, {}, None, (0, 1)),  # the QOS goes before the account
    ("risk", ["grpsub"], {"cpu": (6, 4), "submits": (5, 0)}, {}, None, (1, 3)),
    ("risk", ["tiny", "cpus"], {"cpu": (3, 2)}, {}, 60, (0, 1)),
    ("risk", ["denyp"], {"cpu": (6, 4)}, {"cpu": 2}, None, (1, 3)),
    ("none", [], {"submits": (0, 0)}, {}, None, (0, 0)),
    ("", [], {}, {}, None, (None, None)),  # root's own account has none
    ("nobody-s", ["none-such"], {}, {}, None, (None, None)),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("account", "qos", "shared", "each", "limit_s", "pilots"), QUOTAS)
def test_limits_that_hold_for_us(version, account, qos, shared, each, limit_s, pilots):
    text = (DATA / f"assoc-{version}.txt").read_text()
    found = read_quotas(text, 0, account, qos)
    assert {quota.what: (quota.most, quota.used) for quota in found.shared} == shared
    assert (found.each, found.limit_s) == (each, limit_s)
    assert found.pilots({"cpu": 2, "mem": 100}) == pilots
    assert not each or found.pilots({"cpu": 3}) == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_of_each_user_of_a_qos(version):
    text = (DATA / f"assoc-{version}.txt").read_text()
    text = text.replace("MaxSubmitJobsPU=N(3)", "MaxSubmitJobsPU=5(3)")
    (found,) = (each for each in read_quotas(text, 0, "risk", ["cpus"]).shared if each.most == 5)
    assert (found.what, found.used, found.said) == ("submits", 3, "qos cpus MaxSubmitJobsPU 5")


def test_limits_of_somebody_else_are_not_ours():
    text = (DATA / "assoc-22.05.8.txt").read_text()
    assert read_quotas(text, 1001, "small", []) == Quotas()


@given(st.text(max_size=300), st.text(max_size=20))
def test_any_text_of_limits_is_read(text, account):
    text = f"ClusterName=c Account={account} UserName=u(7) {text}\nQOS={account}(3)\n{text}"
    read_quotas(text, 7, account, [account]).pilots({"cpu": 1})


MEMORY = [
    # (what the cluster says, what the partitions say, nodes as (CPUs, MB), (asked, charged))
    ("", [""], [(4, 4000), (8, 4000)], (1000, 1000)),  # of 2 CPUs, on the node that has least
    ("", [""], [(1, 100), (4, 4000)], (2000, 2000)),  # one is too small for them
    ("", [""], [], (0, 0)),
    ("DefMemPerCPU = 300", [""], [(4, 4000)], (0, 600)),
    ("DefMemPerCPU = 300", ["DefMemPerNode=900"], [(4, 4000)], (0, 900)),
    ("", ["DefMemPerCPU=300", ""], [(4, 4000)], (2000, 2000)),  # it may run in the second
    ("MaxMemPerCPU = 700", [""], [(4, 4000)], (1400, 1400)),
    ("MaxMemPerNode = 1500", [""], [(4, 4000)], (1500, 1500)),
    ("DefMemPerNode = UNLIMITED\nMaxMemPerNode = UNLIMITED", [""], [(4, 4000)], (2000, 2000)),
]


@pytest.mark.parametrize(("cluster", "partitions", "nodes", "expected"), MEMORY)
def test_memory_that_nobody_named(cluster, partitions, nodes, expected):
    said = [read_memory(each) for each in partitions]
    assert memory_of(2, read_memory(cluster), said, nodes) == expected


@pytest.mark.parametrize(
    ("text", "mb"), [("2G", 2048), ("500", 500), ("1K", 1), ("1t", 1 << 20), ("x", 0), ("", 0)]
)
def test_amounts_of_memory(text, mb):
    assert read_amount_mb(text) == mb


# --- faults --------------------------------------------------------------------------------------

REFUSED = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
    "limit, user's size and/or time limits)"
)
FAULTS = [
    ("sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed:"
     " Invalid partition name specified", FailureClass.NEVER, "sinfo"),
    ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination"
     " specified", FailureClass.NEVER, "account"),
    ("sbatch: error: Invalid generic resource (gres) specification", FailureClass.NEVER, "GPU"),
    ("sbatch: error: Batch job submission failed: Invalid feature specification",
     FailureClass.NEVER,
     "constraint"),
    ("sbatch: error: Batch job submission failed: Requested reservation is invalid",
     FailureClass.NEVER,
     "reservation"),
    ("sbatch: error: Batch job submission failed: Invalid job array specification",
     FailureClass.NEVER,
     "MaxArraySize"),
    ("sbatch: error: Memory specification can not be satisfied\nsbatch: error: Batch job submission"
     " failed: Requested node configuration is not available", FailureClass.NEVER, "memory"),
    ("sbatch: error: CPU count per node can not be satisfied", FailureClass.NEVER, "CPU"),
    ("sbatch: error: Batch job submission failed: Invalid qos specification",
     FailureClass.NEVER, "qos"),
    ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job "
     "violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
     FailureClass.ELSEWHERE, "its limit of submitted jobs"),
    (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{REFUSED}", FailureClass.NEVER, "MaxWall"),
    (f"sbatch: error: QOSMaxCpuPerJobLimit\n{REFUSED}", FailureClass.NEVER, "a single pilot"),
    (REFUSED, FailureClass.ELSEWHERE, "or a single pilot"),
    ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
     FailureClass.AGAIN,
     "slurmctld"),
    ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
     FailureClass.AGAIN, "overloaded"),
    ("Slurmctld(primary) at vm is DOWN\n** RESTORE SLURMCTLD DAEMON TO SERVICE **",
     FailureClass.AGAIN,
     "down"),
    ("Authentication failure", FailureClass.AGAIN, "token"),
    ("Protocol authentication error: Unable to query jobs", FailureClass.AGAIN, "another cluster"),
    ("squeue: error: failed to connect to any sack sockets\nslurm_load_jobs error: Protocol "
     "authentication error", FailureClass.AGAIN, "sackd runs"),
    ("squeue: fatal: Unable to process configuration file", FailureClass.NEVER, "conf"),
    ("what nobody has ever seen", FailureClass.ELSEWHERE, "failed"),
    ("", FailureClass.ELSEWHERE, "nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "blame", "word"), FAULTS)
def test_what_slurm_says_is_classified(text, blame, word):
    fault = fault_of("sbatch", text)
    assert fault.failure_class is blame
    assert word in str(fault)
    assert fault.is_full == ("policy" in text and blame is FailureClass.ELSEWHERE)


def test_each_known_text_is_found_by_itself():
    for known, _, _ in KNOWN:
        assert known == known.lower()
        assert not [each for each, _, _ in KNOWN if each != known and each == known]


def test_what_slurmrestd_says():
    body = {"errors": [{"error_code": 2000, "error": "Invalid partition name specified"}]}
    said = "Invalid partition name specified"
    assert read_answer(500, json.dumps(body).encode()) == (body, said)
    assert read_answer(200, b'{"errors": []}')[1] == ""
    assert read_answer(502, b"<html>Bad gateway")[1] == "<html>Bad gateway"
    assert read_answer(401, b"")[1] == "HTTP 401"
    with pytest.raises(GridFault, match="not JSON"):
        read_answer(200, b"<html>Welcome")
    assert submitted({"errors": [{"error": "Required node not available"}], "job_id": 5})
    assert not submitted(body)


def test_texts_lose_what_is_secret_and_control_characters():
    assert hide("token abcdefgh1 is bad", ["abcdefgh1", ""]) == "token (hidden) is bad"
    assert tidy("sbatch: error: a\x1b[1m\nsbatch: error: a\x1b[1m\n\n") == r"a\x1b[1m"


# --- what is asked -------------------------------------------------------------------------------


def launch(**environment):
    return Launch(
        site="s",
        pool="p",
        mark="site-pool",
        address="tcp://10.0.0.1:9000",
        environment={"GRIDFED_SECRET": "s3cret-word"} | environment,
        folder=Path(),
        say=print,
    )


def asked(table=(), **order):
    settings = read_settings(LEAST | dict(table))
    given = {"name": "o1", "pilots": 5, "shape": Shape(slots=2, memory_bytes=3 << 30)} | order
    return settings, request_of(settings, launch(), Order(**given))


def test_options_of_sbatch():
    settings, request = asked(
        {
            "partition": ["fast", "long"],
            "account": "risk",
            "qos": "high",
            "constraint": "a100&ib",
            "reservation": "night",
            "cpus_per_slot": 2,
            "gpu_type": "a100",
            "walltime": "4h",
            "logs": "/var/log/pilots",
            "options": {"exclusive": True, "nice": 10, "contiguous": False},
        },
        shape=Shape(slots=2, memory_bytes=(3 << 30) + 1, gpus=2),
    )
    words = sbatch_options(settings, request)
    assert set(words) >= {
        "--job-name=gridfed-site-pool.o1",
        "--comment=gridfed pilots=5",
        "--array=0-4",
        "--partition=fast,long",
        "--account=risk",
        "--qos=high",
        "--constraint=a100&ib",
        "--reservation=night",
        "--cpus-per-task=4",
        "--mem=3073M",
        "--gres=gpu:a100:2",
        "--time=240",
        "--signal=B:TERM@60",
        "--output=/var/log/pilots/%x.%a.log",
        "--export=ALL",
        "--no-requeue",
        "--exclusive",
        "--nice=10",
    }
    assert "--contiguous" not in words
    assert not [each for each in words if "s3cret" in each]


def test_the_script_tells_each_task_its_name_and_no_secret():
    _, request = asked()
    head, line = request.script.splitlines()
    assert head == "#!/bin/sh"
    assert line.startswith("exec /opt/gridfed/bin/python -P -s -m gateway.worker.agent --gateway ")
    assert '--name "o1.$SLURM_ARRAY_TASK_ID" ' in line
    assert "s3cret" not in request.script


@pytest.mark.parametrize(
    ("walltime", "limit_s", "minutes", "warn_s"),
    [
        (None, None, None, 60),
        ("4h", None, 240, 60),
        ("4h", 600.0, 10, 60),
        (None, 61.0, 2, 60),
        (None, 30.0, 1, 30),
    ],
)
def test_time_limits(walltime, limit_s, minutes, warn_s):
    _, request = asked({"walltime": walltime} if walltime else {}, limit_s=limit_s)
    assert (request.limit_min, request.warn_s) == (minutes, warn_s)


def test_bodies_for_slurmrestd():
    settings, request = asked(
        {"walltime": "4h"}, shape=Shape(slots=2, memory_bytes=1 << 30, gpus=1)
    )
    old = rest_body(settings, request, "v0.0.38")["job"]
    assert old["environment"]["GRIDFED_SECRET"] == "s3cret-word"
    assert (old["time_limit"], old["memory_per_node"], old["gres"]) == (240, 1024, "gpu:1")
    assert "signal" not in old
    new = rest_body(settings, request, "v0.0.42")["job"]
    assert "GRIDFED_SECRET=s3cret-word" in new["environment"]
    assert new["time_limit"] == {"set": True, "infinite": False, "number": 240}
    assert new["tres_per_node"] == "gres/gpu:1"
    assert new["kill_warning_flags"] == ["BATCH_JOB"]
    assert old["array"] == new["array"] == "0-4"
    assert old["requeue"] is new["requeue"] is False


@pytest.mark.parametrize("name", ["A B", "1A", "A=B", ""])
def test_a_variable_that_is_none_is_refused(name):
    settings = read_settings(LEAST)
    with pytest.raises(GridFault) as caught:
        request_of(settings, launch(**{name: "x"}), Order("o", 1, Shape()))
    assert caught.value.failure_class is FailureClass.NEVER


def test_tasks_are_named_together():
    assert joined(["7_1", "8_0", "7_2"]) == ["7_[1,2]", "8_[0]"]
    many = joined([f"7_{at}" for at in range(1200)])
    assert len(many) == 3
    assert all(len(each) < 4000 for each in many)


# --- the table -----------------------------------------------------------------------------------

WRONG = [
    ({"partition": ""}, "partition"),
    ({"partition": []}, "partition"),
    ({"partition": "a b"}, "partition"),
    ({"partition": "--help"}, "partition"),
    ({"partition": 3}, "partition"),
    ({"python": "python3"}, "absolute"),
    ({"python": ""}, "missing"),
    ({"account": "a;b"}, "account"),
    ({"account": "a\n#SBATCH --uid=0"}, "account"),
    ({"qos": 3}, "qos"),
    ({"constraint": "$(id)"}, "constraint"),
    ({"gpu_type": "a:b"}, "gpu_type"),
    ({"walltime": "1s"}, "walltime"),
    ({"walltime": 3600}, "walltime"),
    ({"cpus_per_slot": 0}, "cpus_per_slot"),
    ({"requeue": "no"}, "requeue"),
    ({"options": {"wrap": "id"}}, "wrap"),
    ({"options": {"uid": "0"}}, "uid"),
    ({"options": {"output": "/etc/passwd"}}, "output"),
    ({"options": {"exclude": "n1 --uid=0"}}, "exclude"),
    ({"options": {"exclusive": "user"}}, "exclusive"),
    ({"options": ["--exclusive"]}, "options"),
    ({"prefix": "ssh login"}, "prefix"),
    ({"prefix": ["a\0b"]}, "prefix"),
    ({"conf": "slurm.conf"}, "conf"),
    ({"api": "v0.0.42"}, "url"),
    ({"url": "http://h:6820"}, "api"),
    ({"url": "http://h:6820", "api": "v0.0.99"}, "api"),
    ({"url": "http://h:6820", "api": "v0.0.42"}, "token_file"),
    ({"url": "ftp://h", "api": "v0.0.42", "token_file": "t", "user": "u"}, "url"),
    ({"url": "http://u:p@h", "api": "v0.0.42", "token_file": "t", "user": "u"}, "password"),
    ({"url": "http://h:99999", "api": "v0.0.42", "token_file": "t", "user": "u"}, "url"),
    ({"url": "unix:relative", "api": "v0.0.38"}, "unix"),
    ({"url": "unix:/s", "api": "v0.0.38", "conf": "/etc/slurm.conf"}, "conf"),
    ({"queue": "main"}, "queue"),
    ({"timeout": "1h"}, "timeout"),
    ({"array_max": 0}, "array_max"),
]


@pytest.mark.parametrize(("table", "word"), WRONG)
def test_a_wrong_table_is_refused_with_its_key(table, word):
    with pytest.raises(SettingError, match=word):
        KIND.read(LEAST | table)


@given(
    st.dictionaries(st.sampled_from([*LEAST, "account", "options", "url", "api", "prefix"]), junk)
)
def test_no_table_crashes(table):
    with suppress(SettingError):
        KIND.read(table)


def test_a_job_without_an_array_is_no_pilot():
    assert not seen(record(array_job_id=0, array_task_id=None)).sightings
