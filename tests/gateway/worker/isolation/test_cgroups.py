"""Control groups: found, limited, taken away; really, where this host has any that we may make."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import cloudpickle
import pytest
from support.processes import wait_until

from gateway.worker.isolation.cgroups import CgroupLimits, Cgroups, CgroupsUnavailable, open_cgroups
from gateway.worker.isolation.strays import lives, owner_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])
MEMORY_BYTES = 150 << 20


def pretend(folder, version, path="/mine", controllers="cpu memory pids"):
    """A file system and /proc/self as a host of that version has them."""
    root, proc = folder / "cgroup", folder / "proc"
    proc.mkdir(parents=True)
    if version == 2:
        (root / path.lstrip("/")).mkdir(parents=True)
        (root / "cgroup.controllers").write_text(controllers)
        (proc / "cgroup").write_text(f"0::{path}\n")
        return root, proc
    lines = []
    for number, name in enumerate(controllers.split()):
        (root / name / path.lstrip("/")).mkdir(parents=True)
        (root / name / "cgroup.procs").touch()
        lines.append(f"{number}:{name}:{path}\n")
    (proc / "cgroup").write_text("".join(lines) + "0::/\n")
    return root, proc


def written(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


TABLE = [
    (1, CgroupLimits(), {}),
    (1, CgroupLimits(100 << 20), {"memory": {"memory.limit_in_bytes": "131072000"}}),
    (
        1,
        CgroupLimits(cpus=1.5),
        {"cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}},
    ),
    (1, CgroupLimits(pids_max=20), {"pids": {"pids.max": "20"}}),
    (
        2,
        CgroupLimits(100 << 20, 0.5, 20),
        {"": {"memory.max": "131072000", "cpu.max": "50000 100000", "pids.max": "20"}},
    ),
    (2, CgroupLimits(cpus=0.001), {"": {"cpu.max": "1000 100000"}}),
]


@pytest.mark.parametrize(("version", "limits", "expected"), TABLE)
def test_limits_are_written_as_each_version_has_them(tmp_path, version, limits, expected):
    root, proc = pretend(tmp_path, version)
    group = open_cgroups(os.getpid(), root, proc).make(limits)
    found = {}
    for folder in group.folders:
        name = folder.relative_to(root).parts[0] if version == 1 else ""
        found[name] = written(folder)
    assert {name: files for name, files in found.items() if files} == expected
    assert all(each.name == "cgroup.procs" for each in group.entrances)


@pytest.mark.parametrize("version", [1, 2])
def test_groups_are_made_below_ours_or_below_the_root(tmp_path, version):
    root, proc = pretend(tmp_path, version)
    mine = f"gridfed-{owner_of(os.getpid())}"
    folders = open_cgroups(os.getpid(), root, proc).folders.values()
    assert {each.parent.name for each in folders} == {"mine"}
    (proc / "cgroup").write_text((proc / "cgroup").read_text().replace("/mine", "/gone"))
    folders = open_cgroups(os.getpid(), root, proc).folders.values()
    assert {each.name for each in folders} == {mine}
    assert not {each.parent.name for each in folders} & {"mine", "gone"}


@pytest.mark.parametrize(
    ("version", "controllers", "said"),
    [
        (2, "hugetlb", "no controller cpu, memory, pids"),
        (1, "memory pids", "no control group for cpu"),
    ],
)
def test_a_host_without_controllers_says_which(tmp_path, version, controllers, said):
    with pytest.raises(CgroupsUnavailable, match=said):
        open_cgroups(os.getpid(), *pretend(tmp_path, version, controllers=controllers))


def test_a_process_is_known_by_its_number_and_beginning():
    ours = owner_of(os.getpid())
    assert lives(ours)
    assert not lives(f"{os.getpid()}-1")
    assert not any(map(lives, ("", "1", "x-1", f"{os.getpid()}-", "999999999-5")))


def test_what_the_kernel_ended_is_counted_in_both_versions(tmp_path):
    root, proc = pretend(tmp_path, 2)
    group = open_cgroups(os.getpid(), root, proc).make(CgroupLimits(MEMORY_BYTES))
    assert group.oom_kills() == 0
    (group.memory / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert group.oom_kills() == 2
    (group.memory / "memory.events").unlink()
    (group.memory / "memory.oom_control").write_text(
        "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"
    )
    assert group.oom_kills() == 1


@pytest.fixture
def real():
    try:
        found = open_cgroups(os.getpid())
        found.make(CgroupLimits(MEMORY_BYTES, 1, 50)).close()
    except (CgroupsUnavailable, OSError) as error:
        pytest.skip(f"no control groups that we may make: {error}")
    yield found
    found.close()


@pytest.mark.real
def test_a_group_really_holds_and_ends_what_is_in_it(real: Cgroups):
    group = real.make(CgroupLimits(MEMORY_BYTES, 1, 20))
    joins = "".join(f"echo $$ > {each}; " for each in group.entrances)
    hoard = "x = bytearray(400 << 20); x[::4096] = x[::4096]"
    command = ["/bin/sh", "-c", f'{joins}exec {sys.executable} -c "{hoard}"']
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert group.oom_kills() == 1
    # Out of its session, and out of its parent's sight: it ends with the group all the same.
    command = ["/bin/sh", "-c", f"{joins}setsid sleep 60 & sleep 60"]
    with subprocess.Popen(command, start_new_session=True) as process:
        end_s = time.monotonic() + 100
        while len(group.entrances[0].read_text().split()) < 3:
            assert time.monotonic() < end_s
        group.close()
        assert process.wait(100) == -signal.SIGKILL
    wait_until(lambda: group.close() or not any(f.exists() for f in group.folders), "it is gone")


def sweep() -> None:
    """As the next agent that starts does. Other test workers, of the same parent, may be at it."""
    with contextlib.suppress(CgroupsUnavailable):
        open_cgroups(os.getppid()).close()


def test_strays_of_agents_that_are_gone_are_taken_away(real: Cgroups):
    stray = real.folders["memory"].parent / "gridfed-999999-1"
    with contextlib.suppress(FileNotFoundError):  # another test worker was quicker
        (stray / "slot-1").mkdir(parents=True)
    wait_until(lambda: sweep() or not stray.exists(), "it is taken away")


@pytest.mark.real
def test_an_agents_slots_are_held(real: Cgroups, gateway, start_agent):
    more = (
        "--memory",
        str(MEMORY_BYTES),
        "--cpus",
        "0.5",
        "--pids-max",
        "30",
        "--cgroups",
        "required",
    )
    agent = start_agent(gateway, 1, *more)
    worker = gateway.worker()

    def hoard():
        import mmap

        # Quicker than the agent looks, and below the limit of the address space.
        kept = mmap.mmap(-1, 400 << 20)
        for at in range(0, 400 << 20, 4096):
            kept[at] = 1

    def fork_on():
        pids = []
        try:
            for _ in range(100):
                pids.append(os.fork())
                if pids[-1] == 0:
                    time.sleep(60)
        except OSError:
            return len(pids)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

    def burn():
        began, used = time.monotonic(), time.process_time()
        while time.monotonic() - began < 1:
            pass
        return time.process_time() - used

    failure = gateway.assign(worker, hoard, [()]).wait().failures()[0]
    assert failure[0] == "memory"
    assert gateway.assign(worker, fork_on, [()]).wait().values()[0] < 30
    assert gateway.assign(worker, burn, [()]).wait().values()[0] < 0.75
    name = f"gridfed-{owner_of(agent.process.pid)}"
    folder = real.folders["memory"].parent / name
    assert folder.exists()
    agent.process.kill()
    agent.process.wait(200)
    wait_until(lambda: sweep() or not folder.exists(), "it is taken away")


@pytest.mark.real
def test_without_groups_a_worker_says_what_does_not_hold(
    gateway, start_agent, tmp_path, monkeypatch
):
    agent = start_agent(gateway, 1, "--cpus", "1", "--cgroups", "off")
    assert gateway.assign(gateway.worker(), abs, [(-1,)]).wait().values() == {0: 1}
    assert "control groups" not in agent.text()


@pytest.mark.real
def test_slots_are_pinned_to_cores_of_their_own(gateway, start_agent, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    start_agent(gateway, 2, "--pin")

    def cores(number, folder):
        (folder / str(number)).touch()
        end_s = time.monotonic() + 150
        while len(list(folder.iterdir())) < 2:  # until both run: in two slots
            assert time.monotonic() < end_s
        return tuple(os.sched_getaffinity(0))

    folder = tmp_path / "running"
    folder.mkdir()
    work = gateway.assign(gateway.worker(), cores, [(0, folder), (1, folder)])
    found = set(work.wait().values().values())
    assert len(found) == 2
    assert set.intersection(*map(set, found)) == set()


def test_what_was_made_before_a_controller_failed_is_taken_away(tmp_path):
    root, proc = pretend(tmp_path, 1)
    mine = f"gridfed-{owner_of(os.getpid())}"
    for parent in (root / "pids", root / "pids" / "mine"):
        (parent / mine).touch()  # where a folder should be
    with pytest.raises(CgroupsUnavailable, match="File exists"):
        open_cgroups(os.getpid(), root, proc)
    assert not [each for each in root.rglob("gridfed-*") if each.is_dir()]
