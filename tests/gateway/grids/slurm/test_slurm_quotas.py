"""Accounts, associations, QOS and their limits: real slurmdbd, of both generations."""

import itertools
import time

import pytest
import trio
from support.processes import wait_until
from support.programs.slurm import pool_config, running

from gateway.grids.contract import FailureClass, GridFault, Launch, Order, PilotState, Shape
from gateway.grids.slurm import KIND

# The cluster alone takes seconds to begin; what is decided is held by test_slurm_pure too.
pytestmark = [pytest.mark.thorough, pytest.mark.real]

SHAPE = Shape(1, 64 << 20)
BOOKS = (
    "add qos short maxwall=1",
    "add qos strict maxwall=1 maxtresperjob=cpu=2 flags=DenyOnLimit",
    "add qos few maxsubmitjobsperuser=3",
    "add qos two grptres=cpu=2",
    "add qos one maxjobsperuser=1",
    "add qos narrow maxtresperjob=cpu=2",
    "add qos theirs",
    "add account risk grptres=cpu=6",
    "add account small parent=risk maxsubmitjobs=4 maxjobs=2",
    "add account nothing maxsubmitjobs=0",
    "add account others",
    "add user root account=risk qos=normal,short,strict,few,two,one,narrow",
    "add user root account=small",
    "add user root account=nothing",
)
_numbers = itertools.count()


@pytest.fixture(scope="module", params=[False, True], ids=["here", "newer"])
def cluster(request):
    rest = "tcp" if request.param else "unix"
    with running(name="gb", books=BOOKS, other=request.param, rest=rest) as found:
        yield found


@pytest.fixture
def open_grid(cluster, tmp_path):
    """Its pilots look for a gateway that is not there: whether they run is enough here."""
    made = []

    def make(*, rest=False, dial_s=300.0, **table):
        mark = f"test-{next(_numbers)}"
        launch = Launch("test", "hpc", mark, "tcp://127.0.0.1:1", {}, tmp_path, print, dial_s)
        grid = KIND.open(KIND.read((cluster.rest_table if rest else cluster.table) | table), launch)
        made.append(grid)
        return grid

    yield make
    for grid in made:
        trio.run(grid.stop, [each.name for each in trio.run(grid.pilots)])
    # Limits count what is ending, too.
    wait_until(lambda: not cluster.run("squeue", "-h"), "nothing is left", 20)


def start(grid, name, pilots=1, shape=SHAPE):
    trio.run(grid.start, Order(name, pilots, shape))


def shown(grid):
    return {each.name: each for each in trio.run(grid.pilots)}


REFUSALS = [
    ({"account": "nowhere"}, FailureClass.NEVER, False, "account"),
    ({"account": "others"}, FailureClass.NEVER, False, "account"),
    ({"qos": "nowhere"}, FailureClass.NEVER, False, "qos"),
    ({"account": "risk", "qos": "theirs"}, FailureClass.NEVER, False, "qos"),
    ({"account": "risk", "qos": "strict", "walltime": "5m"}, FailureClass.NEVER, False, "MaxWall"),
    (
        {"account": "risk", "qos": "strict", "cpus_per_slot": 4},
        FailureClass.NEVER,
        False,
        "a single pilot",
    ),
    ({"account": "nothing"}, FailureClass.ELSEWHERE, True, "AssocMaxSubmitJobLimit"),
]


@pytest.mark.parametrize(("table", "blame", "is_full", "word"), REFUSALS)
def test_a_refusal_is_known(open_grid, table, blame, is_full, word):
    with pytest.raises(GridFault, match=word) as caught:
        start(open_grid(**table), "refused")
    assert (caught.value.failure_class, caught.value.is_full) == (blame, is_full)


@pytest.mark.parametrize(("table", "blame", "is_full", "word"), REFUSALS)
def test_slurmrestd_does_not_say_which_limit(open_grid, table, blame, is_full, word):
    is_limit = is_full or word in ("MaxWall", "a single pilot")
    with pytest.raises(GridFault, match="the limit of the account" if is_limit else word) as caught:
        start(open_grid(rest=True, **table), "refused")
    assert caught.value.is_full == is_limit
    assert caught.value.failure_class is (FailureClass.ELSEWHERE if is_limit else blame)


CHECKS = [
    ({"account": "nowhere"}, "account"),
    (
        {"account": "risk", "qos": "short", "walltime": "5m"},
        "exceeds the limit .* 1 min",
    ),
    ({"account": "nothing"}, "account nothing MaxSubmitJobs 0"),
]


@pytest.mark.parametrize(("table", "word"), CHECKS)
def test_what_can_never_be_is_told_by_the_check(open_grid, table, word):
    with pytest.raises(GridFault, match=word) as caught:
        trio.run(open_grid(**table).check)
    assert caught.value.failure_class is FailureClass.NEVER


def test_limits_are_those_of_the_account_and_the_qos(open_grid):
    found = trio.run(open_grid(account="small").limits)
    assert (found.pilots_max, found.pilots_left, found.limit_s) == (4, 4, None)
    assert trio.run(open_grid(account="risk", qos="short").limits).limit_s == 60
    assert trio.run(open_grid(account="risk").limits).pilots_left is None


def test_what_is_submitted_is_taken_off_what_is_left(open_grid):
    grid = open_grid(account="small")
    assert trio.run(grid.capacity, SHAPE).slots_max == 2, "MaxJobs"
    start(grid, "three", 3)
    assert trio.run(grid.limits).pilots_left == 1
    with pytest.raises(GridFault) as caught:
        start(grid, "two-more", 2)
    assert caught.value.is_full
    start(grid, "one-more", 1)
    assert trio.run(grid.limits).pilots_left == 0
    found = trio.run(grid.capacity, SHAPE)
    assert (found.slots_now, found.slots_max) == (0, 0)
    assert "it accepts no more now" in trio.run(grid.check)
    wait_until(lambda: [*_stands(grid)].count(PilotState.RUNNING) == 2, "two run", 20)
    assert [*_stands(grid)].count(PilotState.QUEUED) == 2, "the others wait for them"


def test_a_limit_of_each_user_is_told_once_he_has_had_a_job(open_grid):
    grid = open_grid(account="risk", qos="few")
    start(grid, "two", 2)
    assert trio.run(grid.limits).pilots_left == 1


def _stands(grid):
    return (each.state for each in shown(grid).values())


def test_an_order_that_is_too_large_is_halved_until_it_fits(open_grid):
    """As slurmrestd tells of no limit, and Slurm of no user's before his first job."""
    grid = open_grid(rest=True, account="small", array_max=16)
    for order in range(3):
        size = trio.run(grid.limits).pilots_max
        assert size == (16, 8, 4)[order]
        if size > 4:
            with pytest.raises(GridFault):
                start(grid, f"order-{order}", size)
        else:
            start(grid, f"order-{order}", size)
    assert len(shown(grid)) == 4


CAPACITIES = [
    ({"account": "risk"}, Shape(1, 64 << 20), (6, 6)),
    ({"account": "risk"}, Shape(4, 64 << 20), (4, 4)),
    ({"account": "risk", "qos": "two"}, Shape(1, 64 << 20), (2, 2)),  # of the QOS, not the account
    ({"account": "risk", "qos": "narrow"}, Shape(2, 64 << 20), (6, 6)),
    ({"account": "risk", "qos": "narrow"}, Shape(3, 64 << 20), (0, 0)),
]


@pytest.mark.parametrize(("table", "shape", "slots"), CAPACITIES)
def test_capacity_keeps_to_the_limits(open_grid, table, shape, slots):
    found = trio.run(open_grid(**table).capacity, shape)
    assert (found.slots_now, found.slots_max) == slots


WAITS = [
    ({"qos": "two"}, 3, PilotState.QUEUED, "QOSGrpCpuLimit"),
    ({"qos": "one"}, 2, PilotState.QUEUED, "QOSMaxJobsPerUserLimit"),
    ({"qos": "narrow", "cpus_per_slot": 3}, 1, PilotState.ENDED, "QOSMaxCpuPerJobLimit"),
    ({"qos": "short", "walltime": "5m"}, 1, PilotState.ENDED, "QOSMaxWallDurationPerJobLimit"),
]


@pytest.mark.parametrize(("table", "pilots", "stand", "reason"), WAITS)
def test_what_waits_for_a_limit(open_grid, table, pilots, stand, reason):
    """For one that others of ours take up it waits on; over one that it is over alone it ends."""
    grid = open_grid(account="risk", **table)
    start(grid, "waits", pilots)

    found = []  # one that was let go says soon that it was cancelled

    def says():
        found.extend(each.state for each in shown(grid).values() if reason in each.fault)
        return found

    wait_until(says, reason, 20)
    assert set(found) == {stand}


def test_a_gateway_that_wants_more_than_its_account_may_have_does_with_that(cluster, make_site):
    """Two may run, and eight are wanted: two are ordered. Nothing fails, and all is done."""
    table = cluster.table | {"account": "small"}
    site = make_site(0, config=pool_config(table, {"min": 8, "max": 8}, memory_bytes=64 << 20))
    with site.client() as client:
        tasks = client.map(_at_work, [0.2] * 60)
        wait_until(lambda: _pools(client)["slots"]["ready"] == 2, "as many as it may", 30)
        assert len(list(tasks)) == 60
        pool = _pools(client)
    assert pool["pilots"] == 2
    assert "the grid can provide 0 slots more now" in pool["why"][-1]
    assert pool["failures"] == 0
    assert pool["failed"] == ""
    site.stop()
    cluster.run("scancel", "--user=root")
    wait_until(lambda: not cluster.run("squeue", "-h"), "its jobs are gone", 40)


def _pools(client):
    (found,) = client.ask("scale")["pools"]
    return found


def _at_work(sleep_s):
    time.sleep(sleep_s)
    return sleep_s
