"""Pilots that real Slurm takes from us for a partition of a higher tier, cancelled or requeued;
with a whole gateway that orders by itself."""

import os
import time

import pytest
from support.processes import wait_until
from support.programs.slurm import pool_config, running

pytestmark = [pytest.mark.thorough, pytest.mark.real]

SCALE = {"min": 4, "max": 4, "pilot_slots": 2, "idle": "0s"}
LATE_S = 40.0


def stays(path, mark):
    """Runs until a file of its node is there; notes each beginning."""
    node = os.environ["SLURMD_NODENAME"]
    with open(f"{path}/{mark}-{node}-{time.monotonic_ns()}", "w"):
        pass
    while not os.path.exists(f"{path}/release_{node}"):
        time.sleep(0.02)
    return mark


def begun(path, node=""):
    return {each.name.partition("-")[0] for each in path.glob(f"*-{node}*-*")}


TRIALS = [
    pytest.param("CANCEL", False, False, id="cancelled"),
    pytest.param("CANCEL", False, True, id="cancelled-by-a-newer-slurm"),
    pytest.param("REQUEUE", True, False, id="requeued"),
    pytest.param("REQUEUE", False, False, id="not-to-be-requeued"),
]


@pytest.mark.parametrize(("mode", "requeue", "other"), TRIALS)
def test_what_is_taken_from_us_is_done_elsewhere(make_site, tmp_path, mode, requeue, other):
    """Two nodes with a pilot each. One is taken: its tasks run again, though they have no retries.

    Of two pilots there are never three, neither when one comes back nor when another one replaces
    it; and once the place is free again, work is done there.
    """
    options = {"nodes": 2, "cpus": 2, "preempt": mode, "grace_s": 3}
    with running(name="gt", other=other, **options) as cluster:
        table = cluster.table | {"partition": "low", "requeue": requeue}
        site = make_site(0, config=pool_config(table, SCALE, memory_bytes=64 << 20))
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
            strong = ["sbatch", "--parsable", "-pmain", "-n2", "-wgt0", "-o/dev/null", "--mem=10"]
            taken = cluster.run(*strong, "--wrap=exec sleep 600").strip()
            state = ["squeue", "-h", "-j", taken, "-o", "%T"]
            wait_until(lambda: ours() and cluster.run(*state).strip() == "RUNNING", "taken", LATE_S)
            # Not on the node that is taken: what can end while its pilot leaves runs once.
            (tmp_path / "release_gt1").touch()
            assert {each.result(LATE_S) for each in tasks} == {f"t{at}" for at in range(4)}
            begins = {each: len(list(tmp_path.glob(f"{each}-*"))) for each in victims}
            assert set(begins.values()) == {2}, "they ran again, and once"
            if requeue:
                # By its old name; not for two minutes, as Slurm has it of what was requeued.
                assert any(each.endswith("PENDING") for each in ours())
            else:
                (tmp_path / "release_gt1").unlink()
                cluster.run("scancel", taken)
                more = [client.submit(stays, str(tmp_path), f"u{at}") for at in range(4)]
                wait_until(
                    lambda: ours() and any(each[0] == "u" for each in begun(tmp_path, "gt0")),
                    "the place is ours again",
                    LATE_S,
                )
                for node in cluster.nodes:
                    (tmp_path / f"release_{node}").touch()
                assert len({each.result(LATE_S) for each in more}) == 4
            (pool,) = client.ask("scale")["pools"]
        assert pool["failures"] == 0, pool["failed"]
        assert max(most) == 2, "there were more than two"
