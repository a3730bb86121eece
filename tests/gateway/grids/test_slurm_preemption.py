"""Pilots that real Slurm takes from us for other work: by partition and by QOS, cancelled or
requeued; with a whole gateway that orders by itself."""

import json
import os
import time

import pytest
from slurm_support import Cluster, need_slurm
from tests_support import wait_until

pytestmark = pytest.mark.thorough

CONFIG = """
[[pool]]
name = "hpc"
kind = "slurm"
memory_bytes = 67_108_864

[pool.slurm]
{table}

[pool.scale]
min = 4
max = 4
pilot_slots = 2
idle = "0s"
"""
BOOKS = (
    "add qos weak gracetime=3",
    "add qos strong preempt=weak priority=1000",
    "add account risk",
    "add user root account=risk qos=normal,weak,strong",
)
WEAK = {
    "partition_prio": {"partition": "low"},
    "qos": {"account": "risk", "qos": "weak"},
}
STRONG = {"partition_prio": ["-pmain"], "qos": ["-Arisk", "--qos=strong"]}
LATE_S = 40.0


def stays(path, mark):
    """Runs until a file is there; notes each beginning."""
    with open(f"{path}/{mark}-{os.environ['SLURMD_NODENAME']}-{time.monotonic_ns()}", "w"):
        pass
    while not os.path.exists(f"{path}/release"):
        time.sleep(0.02)
    return mark


def begun(path, node=""):
    return {each.name.partition("-")[0] for each in path.glob(f"*-{node}*-*")}


def trials():
    for kind in WEAK:
        for mode in "CANCEL", "REQUEUE":
            for other in False, True:
                name = f"{kind}-{mode.lower()}-{'newer' if other else 'here'}"
                yield pytest.param(kind, mode, mode == "REQUEUE", other, id=name)
    named = "partition_prio-requeue-of-what-is-not-to-be"
    yield pytest.param("partition_prio", "REQUEUE", False, False, id=named)


@pytest.mark.parametrize(("kind", "mode", "requeue", "other"), list(trials()))
def test_what_is_taken_from_us_is_done_elsewhere(make_site, tmp_path, kind, mode, requeue, other):
    """Two nodes with a pilot each. One is taken: its tasks run again, though they have no retries.

    Of two pilots there are never three, neither when one comes back nor when another one replaces
    it; and once the place is free again, work is done there.
    """
    books = BOOKS if kind == "qos" else ()
    need_slurm(other=other, books=bool(books))
    cluster = Cluster(
        "gt", nodes=2, cpus=2, other=other, books=books, preempt=f"{kind} {mode}", grace_s=3
    )
    try:
        table = cluster.table | WEAK[kind] | {"requeue": requeue}
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
        site = make_site(0, config=CONFIG.format(table=lines))
        most = []

        def ours(states="PD,CF,R,CG,S,RQ"):
            found = cluster.run("squeue", "-h", "-r", "-t", states, "-o", "%j %i %T").splitlines()
            found = [each for each in found if each.startswith("gridfed-")]
            most.append(len([each for each in found if not each.endswith("COMPLETING")]))
            return found

        with site.client() as client:
            wait_until(lambda: len(client.ask("workers")) == 2, "both pilots", LATE_S)
            tasks = [client.submit(stays, str(tmp_path), f"t{at}") for at in range(4)]
            wait_until(lambda: len(begun(tmp_path)) == 4, "all run", LATE_S)
            victims = begun(tmp_path, "gt0")
            assert len(victims) == 2
            strong = ["sbatch", "--parsable", "-n2", "-wgt0", "-o/dev/null", "--mem=10"]
            taken = cluster.run(*strong, *STRONG[kind], "--wrap=exec sleep 600").strip()
            running = ["squeue", "-h", "-j", taken, "-o", "%T"]
            wait_until(
                lambda: ours() and cluster.run(*running).strip() == "RUNNING", "taken", LATE_S
            )
            (tmp_path / "release").touch()
            assert {each.result(LATE_S) for each in tasks} == {f"t{at}" for at in range(4)}
            begins = {each: len(list(tmp_path.glob(f"{each}-*"))) for each in victims}
            assert set(begins.values()) == {2}, "they ran again, and once"
            (tmp_path / "release").unlink()
            more = [client.submit(stays, str(tmp_path), f"u{at}") for at in range(4)]
            wait_until(lambda: ours() and len(begun(tmp_path, "gt1") - victims) >= 2, "busy", 40)
            cluster.run("scancel", taken)
            wait_until(
                lambda: ours() and any(each[0] == "u" for each in begun(tmp_path, "gt0")),
                "the place is ours again",
                LATE_S,
            )
            (tmp_path / "release").touch()
            assert len({each.result(LATE_S) for each in more}) == 4
            (pool,) = client.ask("scale")["pools"]
        assert pool["failures"] == 0, pool["failed"]
        assert max(most) == 2, "there were more than two"
    finally:
        cluster.close()
