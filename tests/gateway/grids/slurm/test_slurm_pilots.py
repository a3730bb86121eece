"""Pilots in real Slurm clusters, working for a real gateway, and their ends there."""

import os
import time
from contextlib import ExitStack, suppress

import psutil
import pytest
import trio
from support.processes import wait_until
from support.programs.slurm import OTHER_ROOT, pool_config, running

from federation import Client
from gateway.grids.contract import FailureClass, GridFault, Launch, Order, PilotState, Shape
from gateway.grids.slurm import KIND
from gateway.grids.slurm.asking import request_of

pytestmark = pytest.mark.real

SHAPE = Shape(slots=2, memory_bytes=512 << 20)
LATE_S = 40.0


@pytest.fixture(scope="module")
def cluster():
    with running(name="gp") as found:
        yield found


class Pool:
    """The pool controller's parts of a pool: a grid, and the gateway that its pilots dial."""

    def __init__(
        self, cluster, folder, address, *, mark="test-pool", rest=False, dial_s=30.0, **table
    ):
        self.cluster = cluster
        folder.mkdir(exist_ok=True)
        self.said = []
        self.launch = Launch(
            site="test",
            pool="workers",
            mark=mark,
            address=address,
            environment={},
            folder=folder,
            say=self.said.append,
            dial_s=dial_s,
        )
        settings = (cluster.rest_table if rest else cluster.table) | table
        self.grid = KIND.open(KIND.read(settings), self.launch)

    def start(self, name, pilots=1, shape=SHAPE, limit_s=None):
        trio.run(self.grid.start, Order(name, pilots, shape, limit_s))

    def stop(self, *names):
        trio.run(self.grid.stop, names)

    def shown(self):
        return {each.name: each for each in trio.run(self.grid.pilots)}

    def until(self, name, stand, late_s=LATE_S):
        """Wait until a pilot is so far; return its view."""
        found = {}

        def is_so():
            found.update(self.shown())
            return name in found and found[name].state is stand

        wait_until(is_so, f"{name} {stand}", late_s)
        return found[name]

    def stop_all(self):
        names = tuple(self.shown())
        self.stop(*names)
        wait_until(
            lambda: all(each.state is PilotState.ENDED for each in self.shown().values()),
            "the end",
            20,
        )


@pytest.fixture
def make_pool(tmp_path, make_inner):
    site = make_inner()
    made = []

    def make(cluster, **options):
        made.append(Pool(cluster, tmp_path / f"p{len(made)}", site.address, **options))
        return made[-1]

    make.address = site.address
    yield make
    for each in made:
        if each.cluster.processes():  # some tests end theirs
            each.stop_all()


def workers(address):
    with Client(address) as client:
        return {each["name"] for each in client.ask("workers")}


def where(at, sleep_s=0.0):
    """Runs in a pilot: in which job."""
    time.sleep(sleep_s)
    return at, f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"


def until_released(path, mark):
    """Runs in a pilot until a file is there; returns the mark, and the host."""
    with open(f"{path}/{mark}-{os.environ['SLURM_JOB_ID']}", "w"):
        pass
    while not os.path.exists(f"{path}/release"):
        time.sleep(0.02)
    return mark, os.environ["SLURM_JOB_ID"]


def test_tasks_run_on_pilots(cluster, make_pool):
    pool = make_pool(cluster)
    pool.start("tasks", 2)
    with Client(make_pool.address) as client:
        found = list(client.map(where, range(40), [0.01] * 40))
    assert [at for at, _ in found] == list(range(40))
    shown = pool.shown()
    assert {job for _, job in found} <= {each.grid_id for each in shown.values()}
    assert workers(make_pool.address) <= {"tasks.0", "tasks.1"}


def test_a_pool_grows_in_slurm_and_shrinks_to_nothing(cluster, make_site):
    config = pool_config(cluster.table, {"max": 4, "idle": "0s"}, price="0.03 USD")
    site = make_site(0, config=config)
    with site.client() as client:
        assert client.submit(where, 7).result(LATE_S)[0] == 7
    wait_until(lambda: not cluster.run("squeue", "-h"), "its jobs are gone", LATE_S)


def test_a_pilot_that_is_cancelled_lets_its_task_end(cluster, make_pool, tmp_path):
    """An administrator's scancel: SIGTERM for all that the job runs, SIGKILL 5 s later."""
    pool = make_pool(cluster)
    pool.start("cancelled", shape=Shape(1, 256 << 20))
    with Client(make_pool.address) as client:
        task = client.submit(until_released, str(tmp_path), "only")
        wait_until(lambda: list(tmp_path.glob("only-*")), "it runs", 20)
        pool.cluster.run("scancel", pool.shown()["cancelled.0"].grid_id)
        pool.until("cancelled.0", PilotState.ENDING)
        (tmp_path / "release").touch()
        assert task.result(200)[0] == "only"
    assert len(list(tmp_path.glob("only-*"))) == 1, "it ran again"
    assert "cancelled" in pool.until("cancelled.0", PilotState.ENDED).fault


@pytest.mark.thorough
def test_a_pilot_that_finds_no_gateway_gives_up_and_says_so(cluster, tmp_path):
    """Its job has failed, by a code other than those of nodes that fail jobs."""
    pool = Pool(cluster, tmp_path / "pool", "tcp://127.0.0.1:1", dial_s=0.5)
    pool.start("lonely", shape=Shape(1, 256 << 20))
    found = pool.until("lonely.0", PilotState.ENDED)
    assert "the pilot could not reach a gateway, and gave up" in found.fault
    told = cluster.run("scontrol", "--oneliner", "show", "job", found.grid_id)
    assert "JobState=FAILED" in told
    assert "ExitCode=69:0" in told


def test_a_drained_node_is_not_fed_and_a_resumed_one_is_used_again(make_site, tmp_path):
    """There is work all the time. The task that runs on the drained node ends there."""
    with running(name="dr", nodes=2, cpus=1) as cluster, ExitStack() as stack:
        config = pool_config(cluster.table, {"max": 2, "min": 2, "look": "1s"}, price="0.03 USD")
        client = stack.enter_context(make_site(0, config=config).client())
        stack.callback((tmp_path / "release").touch)  # or a failed test would wait for its task
        held = client.submit(until_released, str(tmp_path), "held")
        wait_until(lambda: list(tmp_path.glob("held-*")), "it runs", 10 * LATE_S)
        [path] = tmp_path.glob("held-*")
        job = path.name.partition("-")[2]
        # Not by `-j`: the last job of an array has the number of the array, which is all of them.
        rows = cluster.run("squeue", "-h", "-r", "-o", "%A %N").splitlines()
        out = dict(each.split() for each in rows)[job]
        cluster.run("scontrol", "update", f"nodename={out}", "state=drain", "reason=a fan")
        wait_until(
            lambda: "draining" in {each["state"] for each in client.ask("workers")},
            "its pilot drains",
            10 * LATE_S,
        )
        [other] = {each for each in cluster.nodes if each != out}
        for _ in range(20):
            assert client.submit(_node).result(10 * LATE_S) == other
        (tmp_path / "release").touch()
        assert held.result(10 * LATE_S) == ("held", job), "it ran again"
        wait_until(
            lambda: not cluster.run("squeue", "-h", "-t", "R", "-w", out),
            "its pilot ends",
            10 * LATE_S,
        )
        for _ in range(20):
            assert client.submit(_node).result(10 * LATE_S) == other
        cluster.run("scontrol", "update", f"nodename={out}", "state=resume")

        def is_used():  # two tasks at once, of a second each, need both nodes
            pair = [client.submit(_node, 1.0) for _ in range(2)]
            return out in {each.result(10 * LATE_S) for each in pair}

        wait_until(is_used, "it is used again", 10 * LATE_S)


def _node(sleep_s=0.0):
    """Runs in a pilot: on which node."""
    time.sleep(sleep_s)
    return os.environ["SLURMD_NODENAME"]


def test_an_order_that_can_never_begin_is_let_go_and_says_why(cluster, make_pool):
    pool = make_pool(cluster, partition="low", walltime="5h")
    pool.start("hopeless", 3)

    def stands():  # in one look: those that are let go are soon not shown, those of others are
        shown = pool.shown().values()
        return [each.state for each in shown if each.name.startswith("hopeless.")]

    wait_until(lambda: stands() == [PilotState.ENDED] * 3, "the end", 20)
    wait_until(lambda: not cluster.run("squeue", "-h", "-n", "gridfed-test-pool.hopeless"), "gone")
    assert any("cancels 3 Slurm jobs" in each for each in pool.said)


CHECKS = [
    ({"partition": "nowhere"}, FailureClass.NEVER, "the partitions are closed, low, main, theirs"),
    ({"partition": "closed"}, FailureClass.ELSEWHERE, "not UP"),
    ({"partition": "theirs", "account": "ours"}, FailureClass.NEVER, "does not allow account"),
    ({"constraint": "a100"}, FailureClass.NEVER, "constraint"),
    ({"reservation": "night"}, FailureClass.NEVER, "reservation"),
    ({"conf": "/nowhere/slurm.conf"}, FailureClass.NEVER, "conf"),
    (
        {"prefix": ["sh", "-c", "exec sleep 9"], "timeout": "1s"},
        FailureClass.AGAIN,
        "timed out after 1 s",
    ),
    ({"prefix": ["/nowhere/chroot"]}, FailureClass.NEVER, "/nowhere/chroot is not installed here"),
    ({"prefix": ["echo", "hello"]}, FailureClass.NEVER, "does not belong to Slurm"),
]


@pytest.mark.parametrize(("table", "blame", "word"), CHECKS)
def test_what_is_wrong_is_said(cluster, tmp_path, table, blame, word):
    pool = Pool(cluster, tmp_path / "pool", "tcp://127.0.0.1:1", **table)
    with pytest.raises(GridFault, match=word) as caught:
        trio.run(pool.grid.check)
    assert caught.value.failure_class is blame


def test_what_is_right_is_said_too(cluster, tmp_path):
    pool = Pool(cluster, tmp_path / "pool", "tcp://127.0.0.1:1", python="/opt/none/python")
    said = trio.run(pool.grid.check)
    assert "by commands, partition main: up to 1,001 pilots" in said
    assert "check that it is on the nodes" in said


def test_capacity_is_that_of_the_nodes(cluster, tmp_path):
    pool = Pool(cluster, tmp_path / "pool", "tcp://127.0.0.1:1")
    wait_until(lambda: not cluster.run("squeue", "-h"), "an idle cluster", 20)
    for shape, slots in [
        (Shape(1), 8),
        (Shape(3), 6),
        (Shape(5), 0),
        (Shape(1, 3000 << 20), 2),
        (Shape(1, gpus=1), 2),
        (Shape(1, gpus=2), 0),
    ]:
        found = trio.run(pool.grid.capacity, shape)
        assert (found.slots_now, found.slots_max) == (slots, slots), shape


def test_limits_are_those_of_the_cluster(cluster, tmp_path):
    pool = Pool(cluster, tmp_path / "pool", "tcp://127.0.0.1:1", partition="low")
    found = trio.run(pool.grid.limits)
    assert (found.pilots_max, found.limit_s) == (1001, 3600)


# --- what takes longer ---------------------------------------------------------------------------


MEMORIES = [
    # Counted, no default: a pilot asks for its share of a node, and does not have it alone.
    ("CR_Core_Memory", "", {}, 2, "2000M", 8),
    ("CR_CPU_Memory", "", {"cpus_per_slot": 3}, 1, "3000M", 2),
    ("CR_Core_Memory", "DefMemPerCPU=1500", {}, 2, "3000M", 4),
    ("CR_Core_Memory", "DefMemPerNode=1900", {}, 1, "1900M", 4),
    ("CR_Core_Memory", "MaxMemPerCPU=500", {}, 2, "1000M", 8),
    ("CR_Core_Memory", "", {"options": {"mem-per-cpu": "2G"}}, 1, "2G", 2),
    ("CR_Core", "", {}, 2, "", 8),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("counts", "extra", "table", "slots", "memory", "capacity"), MEMORIES)
def test_memory_that_nobody_named(tmp_path, counts, extra, table, slots, memory, capacity):
    """A pilot's charge, and the number of pilots: as Slurm has them once they are there."""
    with running(name="gm", counts=counts, extra=extra) as cluster:
        pool = Pool(cluster, tmp_path / "pool", "tcp://127.0.0.1:1", dial_s=60.0, **table)
        shape = Shape(slots)
        assert trio.run(pool.grid.capacity, shape).slots_now == capacity
        pool.start("many", capacity // slots + 1, shape)

        def running_now():
            return [each for each in pool.shown().values() if each.state is PilotState.RUNNING]

        wait_until(lambda: len(running_now()) == capacity // slots, "as many as foreseen", 20)
        told = cluster.run("scontrol", "--oneliner", "show", "job", running_now()[0].grid_id)
        assert not memory or f"mem={memory}," in told
        found = trio.run(pool.grid.capacity, shape)
        assert found.slots_now == 0
        assert len(running_now()) == capacity // slots, "there was room for more"
        pool.stop_all()


@pytest.mark.thorough
@pytest.mark.parametrize("rest", [False, True], ids=["commands", "slurmrestd"])
@pytest.mark.parametrize("other", [False, True], ids=["here", "newer"])
def test_gpus_are_had(make_pool, rest, other):
    with running(name="gg", rest="tcp" if other else "unix", other=other) as cluster:
        pool = make_pool(cluster, rest=rest)
        pool.start("gpu", 1, Shape(1, 256 << 20, gpus=1))
        job = pool.until("gpu.0", PilotState.RUNNING).grid_id
        assert "gpu" in cluster.run("squeue", "-h", "-j", job, "-o", "%b")


@pytest.mark.thorough
def test_two_clusters_at_once(cluster, make_pool):
    """Of both generations, where there are two."""
    other = (OTHER_ROOT / "usr/sbin/slurmctld").exists()
    with running(name="gq", other=other) as second, ExitStack() as stack:
        pools = [make_pool(cluster, mark="one"), make_pool(second, mark="two")]
        for at, pool in enumerate(pools):
            pool.start(f"both-{at}", 2)
            stack.callback(pool.stop_all)
        names = {f"both-{at}.{number}" for at in range(2) for number in range(2)}
        wait_until(lambda: workers(make_pool.address) == names, "all four", LATE_S)
        with Client(make_pool.address) as client:
            found = list(client.map(_cluster_of, [0.05] * 80))
        assert set(found) == {"gp", "gq"}
        assert [len(pool.shown()) for pool in pools] == [2, 2]


@pytest.mark.thorough
def test_two_clusters_of_the_later_slurm_keep_their_keys_apart():
    """Its daemons lend them at a fixed place of /run."""
    with running(name="ga", nodes=1, other=True) as one:
        with running(name="gb", nodes=1, other=True) as two:
            assert [each.run("sinfo", "-h", "-p", "main", "-o", "%t") for each in (one, two)] == [
                "idle\n",
                "idle\n",
            ]
        assert one.run("squeue", "-h") == ""


def _cluster_of(sleep_s):
    time.sleep(sleep_s)
    return os.environ["SLURM_CLUSTER_NAME"]


@pytest.mark.thorough
@pytest.mark.parametrize("other", [False, True], ids=["here", "newer"])
def test_a_task_whose_node_dies_runs_again(make_pool, tmp_path, other):
    with running(name="gd", nodes=2, cpus=2, other=other) as cluster:
        pool = make_pool(cluster)
        pool.start("doomed", shape=Shape(1, 256 << 20))
        pool.until("doomed.0", PilotState.RUNNING)
        with Client(make_pool.address) as client:
            task = client.submit(until_released, str(tmp_path), "task")
            wait_until(lambda: list(tmp_path.glob("task-*")), "it runs", 20)
            node = cluster.run("squeue", "-h", "-t", "R", "-o", "%N").strip()
            cluster.kill_node(node)
            found = pool.until("doomed.0", PilotState.ENDED)
            assert "node failed" in found.fault
            capacity = trio.run(pool.grid.capacity, Shape(1))
            assert capacity.slots_max == 2, "the dead node is counted"
            pool.start("second", shape=Shape(1, 256 << 20))
            wait_until(lambda: len(list(tmp_path.glob("task-*"))) == 2, "it runs again", LATE_S)
            (tmp_path / "release").touch()
            assert task.result(200)[0] == "task"


@pytest.mark.thorough
@pytest.mark.parametrize("other", [False, True], ids=["here", "newer"])
def test_a_preempted_pilot_is_seen_before_it_ends(make_pool, tmp_path, other):
    """Slurm tells a batch job nothing when its time of grace begins: its list does."""
    with running(name="gr", nodes=1, other=other) as cluster:
        pool = make_pool(cluster, partition="low")
        pool.start("weak", shape=Shape(4, 256 << 20))
        pool.until("weak.0", PilotState.RUNNING)
        cluster.run("sbatch", "-pmain", "-n4", "-o/dev/null", "--mem=10", "--wrap=exec sleep 600")
        found = pool.until("weak.0", PilotState.ENDING)
        wait_until(lambda: "preempted" in pool.shown()["weak.0"].fault, "why", LATE_S)
        assert 0 < found.ends_at_s - time.time() < 10
        pool.until("weak.0", PilotState.ENDED)
        wait_until(
            lambda: trio.run(pool.grid.capacity, Shape(1)).slots_now == 0, "its place is taken", 20
        )


@pytest.mark.thorough
@pytest.mark.parametrize("other", [False, True], ids=["here", "newer"])
def test_a_pilot_winds_up_before_its_time_is_over(make_pool, other):
    with running(name="gw", nodes=1, other=other) as cluster:
        pool = make_pool(cluster, warn="30s")
        pool.start("short", shape=Shape(1, 256 << 20), limit_s=60.0)
        found = pool.until("short.0", PilotState.RUNNING)
        assert 30 < found.ends_at_s - time.time() <= 62
        assert pool.until("short.0", PilotState.ENDED, 70).fault == "", "it was killed"
        assert found.ends_at_s > time.time(), "it was not told in time"


@pytest.mark.thorough
@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("other", [False, True], ids=["here", "newer"])
def test_what_is_requeued(make_pool, requeue, other):
    """By default nothing: a lost pilot is replaced by another order, under another name."""
    with running(name="ge", nodes=1, other=other) as cluster:
        pool = make_pool(cluster, requeue=requeue)
        pool.start("again", shape=Shape(1, 256 << 20))
        job = pool.until("again.0", PilotState.RUNNING).grid_id
        if not requeue:
            with pytest.raises(AssertionError):
                cluster.run("scontrol", "requeue", job)
            assert pool.shown()["again.0"].state is PilotState.RUNNING
            return
        wait_until(lambda: workers(make_pool.address) == {"again.0"}, "its worker", 20)
        cluster.run("scontrol", "requeue", job)
        pool.until("again.0", PilotState.QUEUED)


@pytest.mark.thorough
@pytest.mark.parametrize("other", [False, True], ids=["here", "newer"])
def test_an_order_whose_submission_nobody_heard_of_is_there_once(make_pool, tmp_path, other):
    """sbatch is killed as it waits for an answer; the same order is made again."""
    with running(name="gu", nodes=1, other=other) as cluster:
        pool = make_pool(cluster)
        pool.start("lost", 2)
        again = Pool(cluster, tmp_path / "other", make_pool.address)
        order = Order("lost", 2, SHAPE)
        request = request_of(again.grid._settings, again.launch, order)
        trio.run(again.grid._way.submit, request)  # as if it had come through late
        wait_until(lambda: len(again.shown()) == 2, "both", 20)
        command = ["squeue", "-h", "-r", "-t", "PD,R,CG", "-o", "%i"]
        wait_until(lambda: len(cluster.run(*command).split()) == 2, "the second is let go", 20)


@pytest.mark.thorough
def test_a_cluster_leaves_nothing_behind():
    with running(name="gx", nodes=1, rest="unix") as cluster:
        cluster.run("sbatch", "-n1", "-o/dev/null", "--mem=10", "--wrap=exec sleep 600")
        wait_until(lambda: "sleep" in _names(cluster.processes()), "it runs", 20)
        ours = cluster.processes()
        folder = cluster.folder
    wait_until(lambda: not any(each.is_running() for each in ours), "all gone", 10)
    assert not folder.exists()


def _names(processes):
    found = set()
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            found.add(each.name())
    return found
