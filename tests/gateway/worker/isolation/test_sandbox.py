"""Work of other sites in bubblewrap: its view, its limits, and its end."""

import contextlib
import os
import sys
from pathlib import Path

import cloudpickle
import psutil
import pytest
from support.programs.containers import need, shut_uid

from gateway.config.environments import EnvironmentRules
from gateway.worker.isolation import sandbox
from gateway.worker.isolation.seccomp import no_user_namespaces

pytestmark = pytest.mark.real

pytestmark = pytest.mark.real

cloudpickle.register_pickle_by_value(sys.modules[__name__])
BUBBLEWRAP = ["--environments", EnvironmentRules(sandbox="bubblewrap").to_json()]


def look(secret):
    import socket

    seen = {"uid": os.getuid(), "file": os.path.exists(secret)}
    seen["roots"] = sorted(os.listdir("/"))
    seen["processes"] = len([each for each in os.listdir("/proc") if each.isdecimal()])
    try:
        socket.create_connection(("127.0.0.1", 9), 1)
    except OSError as error:
        seen["network"] = type(error).__name__
    seen["interfaces"] = [name for _, name in socket.if_nameindex()]
    try:
        Path("/usr/gridfed").touch()
    except OSError as error:
        seen["usr"] = error.strerror
    Path("/tmp/mine").write_text("x")
    seen["secret"] = "GRIDFED_SECRET" in os.environ
    with open("/proc/self/status") as file:
        seen["caps"] = next(line.split()[1] for line in file if line.startswith("CapEff"))
    return seen


def pid_seen(_=None):
    return os.getpid()


@pytest.fixture
def shut(gateway, start_agent):
    need("bwrap")

    def start(slots=1, *more, **env):
        return start_agent(gateway, slots, *BUBBLEWRAP, *more, **env)

    return start


def test_others_work_sees_nothing_of_this_host(gateway, shut, tmp_path):
    secret = tmp_path / "secret"
    secret.touch()
    shut(GRIDFED_SECRET="")
    worker = gateway.worker()
    assert worker.hello.about["tags"]["sandbox:bubblewrap"] is True
    seen = gateway.assign(worker, look, [(str(secret),)], origin="paris").wait().values()[0]
    assert seen["uid"] == shut_uid("paris")
    assert not seen["file"]
    assert "home" not in seen["roots"]
    assert "var" not in seen["roots"]
    assert seen["processes"] <= 3
    assert seen["network"]
    assert seen["interfaces"] in ([], ["lo"])
    assert seen["usr"] == "Read-only file system"
    assert not seen["secret"]
    assert int(seen["caps"], 16) == 0
    assert not Path("/tmp/mine").exists()


def attack():
    """The gains of an attacker; none of them changes this host if it can be had."""
    import ctypes

    had = []
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname"):
        try:
            text = Path(path).read_text()
            Path(path).write_text(text)
            had.append(path)
        except OSError:
            continue
    for path in ("/mine", "/dev/mine", "/etc/mine", "/tmp/../mine"):
        try:
            Path(path).touch()
            had.append(path)
        except OSError:
            continue
    for path in ("/tmp", "/dev/shm"):
        size = os.statvfs(path)
        if size.f_blocks * size.f_frsize > 300 << 20:
            had.append(path)
    libc = ctypes.CDLL(None)
    if libc.mount(None, b"/usr", None, 0x1020, None) == 0:  # MS_REMOUNT | MS_BIND
        had.append("/usr")
    return had, Path("/dev/shm/mine").write_text("x"), Path("/etc/ssl/certs").is_dir()


def test_who_tries_gets_no_further(gateway, shut):
    shut()
    worker = gateway.worker()
    assert gateway.assign(worker, attack, [()], origin="paris").wait().values()[0] == ([], 1, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has one user for all of a sandbox")
def test_nobody_in_it_is_nobody_to_the_kernel(gateway, shut):
    shut()
    worker = gateway.worker()

    def hijack():
        import ctypes

        libc = ctypes.CDLL(None)
        attached = libc.ptrace(16, 1, 0, 0) == 0  # PTRACE_ATTACH to the sandbox's first process
        return attached, Path("/proc/1/stat").stat().st_uid

    found = gateway.assign(worker, hijack, [()], origin="paris").wait().values()[0]
    assert found == (False, 0)


def make_namespaces():
    """How each way of making a user namespace ends, and whether ordinary ones still work."""
    import ctypes
    import errno
    import platform
    import threading

    libc = ctypes.CDLL(None, use_errno=True)
    calls = {"x86_64": (56, 435), "aarch64": (220, 435)}[platform.machine()]
    user, child_ends = 0x10000000, 17  # CLONE_NEWUSER, SIGCHLD
    ways = {
        "unshare": lambda: libc.unshare(user),
        "unshare with others": lambda: libc.unshare(user | 0x20000 | 0x40000000),
        "clone": lambda: libc.syscall(calls[0], user | child_ends, 0, 0, 0, 0),
        "clone3": lambda: libc.syscall(calls[1], 0, 0),
        "setns": lambda: libc.setns(os.open("/proc/self/ns/user", os.O_RDONLY), user),
    }
    ends = {}
    for name, way in ways.items():
        if way() == 0:
            os._exit(7)  # in a namespace, or a child in one
        ends[name] = errno.errorcode[ctypes.get_errno()]
    thread = threading.Thread(target=lambda: ends.update(thread="ran"))
    thread.start()
    thread.join()
    if os.fork() == 0:
        os._exit(0 if libc.unshare(user) else 7)
    return ends, os.waitstatus_to_exitcode(os.wait()[1])


def test_it_makes_no_user_namespaces(gateway, shut):
    shut()
    worker = gateway.worker()
    ends, of_child = (
        gateway.assign(worker, make_namespaces, [()], origin="paris").wait().values().get(0)
    )
    assert ends == {
        "unshare": "EPERM",
        "unshare with others": "EPERM",
        "clone": "EPERM",
        "clone3": "ENOSYS",
        "setns": "EPERM",
        "thread": "ran",
    }
    assert of_child == 0


def test_a_filter_is_for_the_processors_that_are_known():
    sizes = {len(no_user_namespaces(each)) for each in ("x86_64", "aarch64")}
    assert sizes == {13 * 8}
    assert no_user_namespaces("riscv64") == b""


def test_what_a_task_leaves_running_ends_when_the_work_does(gateway, shut):
    shut()
    worker = gateway.worker()

    def leave():
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                import time

                time.sleep(1000.125)
            os._exit(0)
        os.wait()
        return "done"

    def left():
        found = (Path(f"/proc/{each}/wchan") for each in os.listdir("/proc") if each.isdecimal())
        return sum(each.exists() for each in found)

    before = gateway.assign(worker, left, [()], origin="paris").wait().values()[0]
    assert gateway.assign(worker, leave, [()], origin="paris").wait().values()[0] == "done"
    agent = psutil.Process(worker.hello.about["pid"])

    def is_clean():
        with contextlib.suppress(psutil.NoSuchProcess):
            below = agent.children(recursive=True)
            return sum(each.name().startswith(("python", "bwrap")) for each in below) <= before + 1
        return False

    gateway.wait_for(is_clean)
    assert gateway.assign(worker, left, [()], origin="paris").wait().values()[0] == before


def test_our_own_work_runs_bare_and_sites_share_no_process(gateway, shut):
    shut()
    worker = gateway.worker()

    def whoami():
        import gateway.worker.slot.slot as slot

        slot.mark = getattr(slot, "mark", 0) + 1
        return os.getuid(), slot.mark

    paris, rome = shut_uid("paris"), shut_uid("rome")
    assert gateway.assign(worker, whoami, [()]).wait().values()[0] == (os.getuid(), 1)
    assert gateway.assign(worker, whoami, [()], origin="paris").wait().values()[0] == (paris, 1)
    assert gateway.assign(worker, whoami, [()], origin="paris").wait().values()[0] == (paris, 2)
    assert gateway.assign(worker, whoami, [()], origin="rome").wait().values()[0] == (rome, 1)
    assert gateway.assign(worker, whoami, [()]).wait().values()[0] == (os.getuid(), 1)


@pytest.mark.thorough
def test_limits_and_crashes_are_told_as_of_any_slot(gateway, shut):
    shut(1, "--memory", str(300 << 20))
    worker = gateway.worker()

    def crash():
        os._exit(3)

    def hang():
        while True:
            pass

    def hoard():
        import time

        kept = bytearray(400 << 20)
        kept[::4096] = b"x" * len(kept[::4096])
        time.sleep(30)

    work = gateway.assign(worker, crash, [()], origin="paris").wait()
    assert work.failures()[0][0] == "crash"
    work = gateway.assign(worker, hang, [()], origin="paris", timeout_s=0.3).wait()
    assert work.failures()[0][0] == "timeout"
    work = gateway.assign(worker, hoard, [()], origin="paris").wait()
    assert work.failures()[0][0] == "memory"


def test_it_may_start_so_many_processes_and_no_more(gateway, start_agent):
    need("bwrap")
    rules = EnvironmentRules(sandbox="bubblewrap", pids_max=24)
    agent = start_agent(gateway, 1, "--environments", rules.to_json())
    worker = gateway.worker()
    if "runs without control groups" in agent.text():
        pytest.skip("does not allow new groups")

    def fork_on():
        import signal
        import time

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

    assert gateway.assign(worker, fork_on, [()], origin="paris").wait().values()[0] < 24
    assert gateway.assign(worker, fork_on, [()]).wait().values()[0] is None  # ours are not held


def test_it_dies_with_its_agent(gateway, shut, ended):
    agent = shut()
    worker = gateway.worker()

    def hang():
        while True:
            pass

    gateway.assign(worker, hang, [()], origin="paris")

    def at_work():
        with contextlib.suppress(psutil.NoSuchProcess):
            below = agent.me.children(recursive=True)
            if any(each.name() != "python" for each in below):
                slots = [each for each in below if "gateway.worker.slot.slot" in each.cmdline()]
                return [each for each in slots if each.cpu_times().user > 0.5]
        return []

    found = gateway.wait_for(at_work)
    agent.process.kill()
    agent.process.wait(100)
    for each in found:
        ended(each.pid)


def test_without_bubblewrap_a_worker_that_needs_it_does_not_start(gateway, start_agent, tmp_path):
    agent = start_agent(gateway, 1, *BUBBLEWRAP, PATH=str(tmp_path))
    assert agent.process.wait(200) == 1
    assert "bwrap is not installed" in agent.text()


def test_a_python_in_the_home_folder_would_show_it(monkeypatch):
    home = Path("/home/ann")
    monkeypatch.setattr(Path, "home", lambda: home)
    for prefix in ("/home/ann", "/home"):
        monkeypatch.setattr(sandbox.sys, "base_prefix", prefix)
        with pytest.raises(sandbox.SandboxUnavailable, match="with home directories and keys"):
            sandbox.probe(Path("/kit"))


def test_a_shell_reads_what_it_is_told_to_and_nothing_else():
    command = sandbox.shell(Path("/kit"), [Path("/venv")], network="none", tmp_bytes=1000)
    bound = {command[at + 1] for at, each in enumerate(command) if each == "--ro-bind"}
    assert {"/kit", "/venv", "/usr"} <= bound
    assert not bound & {"/", "/home", "/root", "/var", "/etc", "/work"}
    assert "--unshare-net" in command
    assert "--unshare-net" not in sandbox.shell(Path("/kit"), [], network="host", tmp_bytes=1000)
    assert "--bind" not in command
