"""Slots in containers: really run by podman, with an image made of this host's own files."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import cloudpickle
import psutil
import pytest
from support.programs.containers import IMAGE, import_image, need, write_image

from federation.messages.environments import Environment, wrap
from gateway.config.environments import Confines, EnvironmentRules
from gateway.worker.isolation import containers
from gateway.worker.isolation.homes import SlotHome, key_of
from gateway.worker.isolation.host_environments import EnvironmentUnavailable, HostEnvironments
from gateway.worker.isolation.identities import container_user
from gateway.worker.isolation.strays import owner_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])
OURS = container_user("")  # in a container, for work of our own users
pytestmark = [pytest.mark.slow, pytest.mark.real]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
RULES = EnvironmentRules(images=("localhost/gridfed-test:*",), pids_max=64, tmp_bytes=16 << 20)
MEMORY_BYTES = 200 << 20


def in_image(function, image=IMAGE, python=PYTHON):
    return wrap(cloudpickle.dumps(function), Environment(image=image, python=python))


def left_behind(owner):
    told = subprocess.run(
        ["podman", "ps", "--all", "--quiet", "--filter", f"label={containers.LABEL}={owner}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return told.stdout.split()


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    need("podman", "runc")
    return import_image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def start(gateway, start_agent, image):
    def start_(slots=1, rules=RULES, **env):
        more = ("--environments", rules.to_json(), "--memory", str(MEMORY_BYTES))
        return start_agent(gateway, slots, *more, **env)

    return start_


def wait_until_gone(owner):
    end_s = time.monotonic() + 200
    while left_behind(owner):
        assert time.monotonic() < end_s, "a container was left behind"


def look():
    seen = {"uid": os.getuid(), "roots": os.listdir("/"), "pid": os.getpid()}
    with open("/proc/self/status") as file:
        status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    seen["caps"], seen["privileges"] = int(status["CapEff"], 16), status["NoNewPrivs"].strip()
    for path in ("/usr/mine", "/gridfed/kit/mine"):
        with contextlib.suppress(OSError):
            Path(path).touch()
            seen["wrote"] = path
    Path("/tmp/mine").write_text("x")
    with open("/proc/net/dev") as file:
        seen["interfaces"] = [line.split(":")[0].strip() for line in file if ":" in line]
    seen["secret"] = "GRIDFED_SECRET" in os.environ
    return seen


def test_a_slot_in_a_container_is_shut_in(gateway, start):
    start(GRIDFED_SECRET="")
    worker = gateway.worker()
    assert worker.hello.about["tags"]["environment:image:localhost/gridfed-test:*"] is True
    work = gateway.work(worker, in_image(look), [()])
    assert not work.failures()
    seen = work.values()[0]
    assert seen["uid"] == OURS
    assert seen["caps"] == 0
    assert seen["privileges"] == "1"
    assert seen["interfaces"] == ["lo"]
    assert "wrote" not in seen
    assert not seen["secret"]
    assert "work" not in seen["roots"]


def test_tasks_of_one_environment_share_a_process_and_others_run_bare(gateway, start):
    start()
    worker = gateway.worker()

    def count(_):
        import gateway.worker.slot.slot as slot

        slot.mark = getattr(slot, "mark", 0) + 1
        return os.getuid(), slot.mark

    inside = gateway.work(worker, in_image(count), [(n,) for n in range(300)]).values()
    assert {uid for uid, _ in inside.values()} == {OURS}
    assert max(mark for _, mark in inside.values()) > 100
    again = gateway.work(worker, in_image(count), [(0,)]).values()
    assert again[0][1] > 1
    assert gateway.work(worker, count, [(0,)]).values()[0][0] == os.getuid()


def test_limits_are_told_apart(gateway, start):
    start()
    worker = gateway.worker()

    def hoard():
        kept = bytearray(400 << 20)
        kept[::4096] = b"x" * len(kept[::4096])

    def hang():
        while True:
            pass

    def crash():
        os._exit(3)

    def fork_on():
        pids = []
        try:
            for _ in range(200):
                pid = os.fork()
                if pid == 0:
                    time.sleep(60)
                    os._exit(0)
                pids.append(pid)
        except OSError as error:
            return len(pids), type(error).__name__
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

    failure = gateway.work(worker, in_image(hoard), [()]).failures()[0]
    assert failure[0] == "memory"
    failure = gateway.work(worker, in_image(hang), [()], timeout_s=0.3).failures()[0]
    assert failure[0] == "timeout"
    failure = gateway.work(worker, in_image(crash), [()]).failures()[0]
    assert failure[0] == "crash"
    assert "exit code 3" in failure[1]
    made, error = gateway.work(worker, in_image(fork_on), [()]).values()[0]
    assert made < RULES.pids_max
    assert error == "BlockingIOError"


@pytest.mark.thorough
def test_a_recalled_task_is_killed_in_its_container(gateway, start):
    start()
    worker = gateway.worker()

    def hang():
        while True:
            pass

    gateway.work(worker, in_image(os.getpid), [()])
    work = gateway.assign(worker, in_image(hang), [()])
    pulses = lambda: [  # noqa: E731
        each
        for each in worker.heard
        if type(each).kind == "pulse" and each.slots[0]["state"] == "running"
    ]
    gateway.wait_for(pulses, 40)
    work.recall(0, 1, kill=True)
    assert work.wait().failures()[0][0] == "cancelled"


def test_nothing_is_left_when_the_agent_is_killed(gateway, start, tmp_path):
    agent = start(2)
    worker = gateway.worker()

    def hang(_):
        import signal

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass

    gateway.work(worker, in_image(os.getpid), [()])
    gateway.assign(worker, in_image(hang), [(0,), (1,)])
    gateway.wait_for(
        lambda: any(
            sum(slot["state"] == "running" for slot in each.slots) == 2
            for each in worker.heard
            if type(each).kind == "pulse"
        ),
        40,
    )
    owner = owner_of(agent.process.pid)
    assert len(left_behind(owner)) == 2
    agent.process.kill()
    agent.process.wait(200)
    wait_until_gone(owner)
    [folder] = tmp_path.glob("gridfed-slots-*")
    start()
    gateway.worker(1)
    assert not folder.exists()


@pytest.mark.thorough
def test_nothing_is_left_when_the_agent_stops(gateway, start):
    agent = start()
    worker = gateway.worker()
    gateway.work(worker, in_image(os.getpid), [()])
    owner = owner_of(agent.process.pid)
    assert len(left_behind(owner)) == 1
    psutil.Process(agent.process.pid).terminate()
    end_s = time.monotonic() + 300
    while agent.is_alive:
        gateway.pump()
        assert time.monotonic() < end_s
    wait_until_gone(owner)


def test_an_agent_that_starts_removes_what_others_left(gateway, start, image):
    living = start()
    gateway.work(gateway.worker(), in_image(os.getpid), [()])
    [name] = left_behind(owner_of(living.process.pid))
    subprocess.run(
        [
            *("podman", "--runtime", "runc", "create", "--label", f"{containers.LABEL}=999999-1"),
            *("--network", "none", image, "sleep", "60"),
        ],
        check=True,
        capture_output=True,
    )
    start()
    gateway.worker(1)
    assert not left_behind("999999-1")
    assert left_behind(owner_of(living.process.pid)) == [name]


def test_an_image_that_is_missing_or_not_allowed_is_named(gateway, start):
    start()
    worker = gateway.worker()
    missing = in_image(os.getpid, "localhost/gridfed-test:no-such")
    failure = gateway.work(worker, missing, [(), ()]).failures()
    assert [each[0] for each in failure.values()] == ["environment"] * 2
    assert "is not on this host, and pull is 'never'" in failure[0][1]
    other = in_image(os.getpid, "localhost/other:1")
    failure = gateway.work(worker, other, [()]).failures()[0]
    assert failure[0] == "environment"
    assert "only localhost/gridfed-test:*" in failure[1]
    # The second time as well, and the worker is none the worse for it.
    assert gateway.work(worker, missing, [()]).failures()[0][0] == "environment"
    assert gateway.work(worker, lambda: 5, [()]).values() == {0: 5}


def test_another_python_in_the_image_is_refused_before_anything_is_opened(gateway, start):
    start()
    wrong = in_image(os.getpid, python="3.99")
    failure = gateway.work(gateway.worker(), wrong, [()]).failures()[0]
    assert failure[0] == "environment"
    assert f"the slot runs Python {PYTHON}, the job requires 3.99" in failure[1]


@pytest.mark.thorough
def test_an_image_without_python_says_so(gateway, start):
    start(rules=EnvironmentRules(images=("localhost/*",), image_python="python9"))
    failure = gateway.work(gateway.worker(), in_image(os.getpid), [()]).failures()[0]
    assert failure[0] == "environment"
    assert "has no python9" in failure[1]


def test_an_image_is_built_from_a_folder_and_brings_nothing_of_its_own_accord(
    gateway, start, image, tmp_path
):
    folder = tmp_path / "image"
    folder.mkdir()
    # A place to write to would be on this host's disk, without bounds.
    text = f"FROM {image}\nCOPY mark /mark\nENV MINE=1\nVOLUME /data\nUSER 0\n"
    (folder / "Containerfile").write_text(text)
    (folder / "mark").write_text("built")
    name = "localhost/gridfed-built:1"
    subprocess.run(["podman", "rmi", "-f", name], check=False, capture_output=True)
    rules = EnvironmentRules(images=(name,), build={name: str(folder)})
    start(rules=rules, HTTPS_PROXY="http://me:secret@proxy.example:3128")
    worker = gateway.worker()

    def seen():
        found = {"mark": Path("/mark").read_text(), "mine": os.environ["MINE"], "uid": os.getuid()}
        found["data"] = os.path.exists("/data") and os.access("/data", os.W_OK)
        found["proxies"] = [each for each in os.environ if each.lower().endswith("_proxy")]
        found["hosts"] = os.path.exists("/etc/hosts")
        return found

    assert gateway.work(worker, in_image(seen, name), [()]).values()[0] == {
        "mark": "built",
        "mine": "1",
        "uid": OURS,
        "data": False,
        "proxies": [],
        "hosts": False,
    }
    assert gateway.work(worker, abs, [(-1,)]).values() == {0: 1}  # so nothing has it open
    subprocess.run(["podman", "rmi", "-f", name], check=False, capture_output=True)


@pytest.fixture
def docker(tmp_path, image):
    """docker's own command line, and podman behind it."""
    need("docker")
    address = f"unix://{tmp_path}/podman.sock"
    command = ["podman", "--runtime", "runc", "system", "service", "--time", "0", address]
    service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end_s = time.monotonic() + 200
    while not (tmp_path / "podman.sock").exists():
        assert time.monotonic() < end_s
        assert service.poll() is None
    yield address
    service.terminate()
    service.wait(200)


@pytest.mark.thorough
def test_docker_runs_them_as_well(gateway, start, docker):
    agent = start(rules=replace(RULES, runtimes=("docker",)), DOCKER_HOST=docker)
    worker = gateway.worker()
    work = gateway.work(worker, in_image(look), [()])
    assert not work.failures()
    assert work.values()[0]["uid"] == OURS
    assert "runs images with docker" in agent.text()

    def hang():
        while True:
            pass

    failure = gateway.work(worker, in_image(hang), [()], timeout_s=0.3).failures()[0]
    assert failure[0] == "timeout"
    owner = owner_of(agent.process.pid)
    agent.process.kill()
    agent.process.wait(200)
    wait_until_gone(owner)


@pytest.fixture
def docker_daemon(tmp_path):
    """A daemon of docker's own, with a folder and without networks, that has the image."""
    need("dockerd", "containerd", "docker", "podman")
    if os.geteuid() != 0:
        pytest.skip("a docker daemon needs root")
    address = f"unix://{tmp_path}/docker.sock"
    command = ["dockerd", "--host", address, "--storage-driver", "vfs", "--bridge", "none"]
    command += ["--iptables=false", "--ip6tables=false", "--pidfile", str(tmp_path / "pid")]
    command += ["--data-root", str(tmp_path / "data"), "--exec-root", str(tmp_path / "exec")]
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        environment = {**os.environ, "DOCKER_HOST": address}
        end_s = time.monotonic() + 300
        told = ["docker", "info"]
        while subprocess.run(told, env=environment, check=False, capture_output=True).returncode:
            if daemon.poll() is not None or time.monotonic() > end_s:
                last = (tmp_path / "log").read_text(errors="replace")[-300:]
                pytest.skip(f"no docker daemon starts here: {last}")
        archive = write_image(tmp_path)
        load = ["docker", "import", str(archive), "localhost/gridfed-test:docker"]
        subprocess.run(load, env=environment, check=True, capture_output=True)
        yield address
    finally:
        daemon.terminate()
        daemon.wait(300)


@pytest.mark.thorough
def test_docker_with_its_own_daemon_runs_them_as_well(gateway, start_agent, docker_daemon):
    rules = replace(RULES, runtimes=("docker",))
    more = ("--environments", rules.to_json(), "--memory", str(MEMORY_BYTES))
    agent = start_agent(gateway, 1, *more, DOCKER_HOST=docker_daemon)
    worker = gateway.worker()
    inside = in_image(look, "localhost/gridfed-test:docker")
    seen = gateway.work(worker, inside, [()]).values()[0]
    assert (seen["uid"], seen["caps"], seen["privileges"]) == (OURS, 0, "1")
    assert seen["interfaces"] == ["lo"]
    assert "wrote" not in seen
    assert "runs images with docker" in agent.text()
    agent.process.kill()
    agent.process.wait(200)
    command = ["docker", "--host", docker_daemon, "ps", "--all", "--quiet"]
    end_s = time.monotonic() + 300
    while subprocess.run(command, check=True, capture_output=True).stdout:
        assert time.monotonic() < end_s, "a container was left behind"


@pytest.fixture
def registry(tmp_path, image, monkeypatch):
    """A registry with our image in it; its address."""
    need("docker-registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "registry.yml").write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {tmp_path}/images}}}}\n"
        f"http: {{addr: {address}}}\n"
    )
    (tmp_path / "registries.conf").write_text(
        f'[[registry]]\nlocation = "{address}"\ninsecure = true\n'
    )
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(tmp_path / "registries.conf"))
    command = ["docker-registry", "serve", str(tmp_path / "registry.yml")]
    with (tmp_path / "log").open("wb") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        push = ["podman", "push", "-q", image, f"{address}/quant:1"]
        end_s = time.monotonic() + 200
        while subprocess.run(push, check=False, capture_output=True).returncode:
            assert time.monotonic() < end_s, (tmp_path / "log").read_text()
        yield address
    finally:
        service.terminate()
        service.wait(200)
        remove = ["podman", "rmi", "-f", f"{address}/quant:1"]
        subprocess.run(remove, check=False, capture_output=True)


@pytest.mark.thorough
def test_images_come_from_a_registry_where_the_owner_lets_them(gateway, start, registry):
    name = f"{registry}/quant:1"
    never = replace(RULES, images=(f"{registry}/**",))
    agent = start(rules=never)
    failure = gateway.work(gateway.worker(), in_image(os.getuid, name), [()]).failures()[0]
    assert (failure[0], "pull is 'never'" in failure[1]) == ("environment", True)
    agent.process.kill()
    agent.process.wait(200)
    start(rules=replace(never, pull="missing"))
    worker = gateway.worker(1)
    assert gateway.work(worker, in_image(os.getuid, name), [()]).values() == {0: OURS}
    missing = in_image(os.getuid, f"{registry}/quant:2")
    failure = gateway.work(worker, missing, [()]).failures()[0]
    assert (failure[0], "the pull failed" in failure[1]) == ("environment", True)


@pytest.mark.thorough
def test_others_work_runs_in_the_owners_image(gateway, start, image):
    start(rules=EnvironmentRules(sandbox="image", sandbox_image=image))
    worker = gateway.worker()
    assert gateway.work(worker, os.getuid, [()], origin="paris").values() == {
        0: container_user("paris")
    }
    assert gateway.work(worker, os.getuid, [()]).values() == {0: os.getuid()}


SLOW = """#!/bin/sh
case "$*" in
info) ;;
ps*) ;;
pull*) while [ ! -e {end} ]; do sleep 0.05; done; echo no such registry >&2; exit 1 ;;
*) exit 1 ;;
esac
"""


UNLIMITED = """#!/bin/sh
echo "Resource limits are not supported and ignored on cgroups V1 rootless systems" >&2
"""


def test_who_can_not_hold_containers_says_so_and_runs_none_where_he_must(tmp_path, monkeypatch):
    (tmp_path / "podman").write_text(UNLIMITED)
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    rules, said = replace(RULES, runtimes=("podman",)), []
    wanted = Environment(image="localhost/gridfed-test:1", python=PYTHON)
    for cgroups in ("off", "required"):
        host = HostEnvironments(rules, 0, said.append, Confines(cgroups=cgroups))
        host.open()
        try:
            if cgroups == "off":
                host.provide(wanted)
            else:
                with pytest.raises(
                    EnvironmentUnavailable, match="does not enforce limits on containers"
                ):
                    host.provide(wanted)
        finally:
            host.close()
    assert said == [
        "runs images with podman",
        "podman does not enforce cpus and pids_max on containers; memory is monitored",
    ]


def test_a_slot_finds_its_socket_whatever_our_umask_is(tmp_path, monkeypatch):
    """A slot runs as `nobody` in its container; user data of EC2 sets 077."""
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wanted = Environment(image="localhost/gridfed-test:1", python=PYTHON)
    before = os.umask(0o077)
    host = HostEnvironments(
        replace(RULES, runtimes=("podman",)), 0, lambda _: None, Confines(cgroups="off")
    )
    try:
        host.open()
        host.provide(wanted)
        folder = Path(host.launch(SlotHome(key_of(wanted)), {}).socket).parent
        assert folder.stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)
        host.close()


def test_what_takes_long_to_be_made_keeps_no_slot(gateway, start_agent, tmp_path):
    """A pull of minutes, say: meanwhile its tasks are the gateway's, and others run."""
    program = tmp_path / "podman"
    program.write_text(SLOW.format(end=tmp_path / "end"))
    program.chmod(0o755)
    rules = EnvironmentRules(images=("localhost/slow:1",), pull="always", runtimes=("podman",))
    path = f"{tmp_path}:{os.environ['PATH']}"
    start_agent(gateway, 1, "--environments", rules.to_json(), PATH=path)
    worker = gateway.worker()
    slow = in_image(os.getpid, "localhost/slow:1")
    waits = gateway.assign(worker, slow, [(), (), ()])
    assert gateway.work(worker, lambda: 5, [()]).values() == {0: 5}
    assert waits.wait().returned == [[0, 3]]

    def preparing():
        return [each.functions for each in worker.heard if type(each).kind == "preparing"]

    assert preparing() == [[gateway.put(slow)]]
    (tmp_path / "end").touch()
    gateway.wait_for(lambda: len(preparing()) == 2)
    assert preparing()[1] == []
    failure = gateway.work(worker, slow, [()]).failures()[0]
    assert failure[0] == "environment"
    assert "the pull failed: no such registry" in failure[1]


def test_a_worker_without_environments_refuses_them(gateway, start_agent):
    start_agent(gateway)
    failure = gateway.work(gateway.worker(), in_image(os.getpid), [()]).failures()[0]
    assert failure[0] == "environment"
    assert "offers no environments" in failure[1]
