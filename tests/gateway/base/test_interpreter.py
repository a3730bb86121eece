"""No interpreter that we start imports modules of the working folder."""

import os
import re
import site
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.members import MemberSite
from support.processes import wait_until

import gateway
from gateway.base.interpreter import run_code, run_module
from gateway.config.environments import EnvironmentRules
from gateway.grids.contract import Launch, Shape
from gateway.worker.isolation import packages, sandbox
from gateway.worker.isolation.launch import bare
from gateway.worker.isolation.users import SlotUser

ROOT = Path(gateway.__file__).parents[1]
# Each says for itself why it needs no -P.
OTHERS = {
    "gateway/base/interpreter.py",
    "gateway/worker/isolation/containers.py",  # the folder is the container's own, and empty
    "gateway/grids/symphony/soam/service.py",  # PYTHONSAFEPATH
    "federation/compat/scaler_cluster.py",  # of the client, which has no code of the gateway's; -P
}
# A library that all of them import. What it writes down is what an attacker's code would do.
PLANT = "import os\nopen({!r}, 'a').write(f'{{os.getpid()}}\\n')\nraise ImportError('planted')\n"


def test_the_working_folder_is_not_in_the_way():
    assert run_module("some.module") == [sys.executable, "-P", "-s", "-m", "some.module"]
    assert run_code("pass", python="/opt/p") == ["/opt/p", "-P", "-s", "-c", "pass"]


def test_whatever_we_start_is_started_so():
    rules, place = EnvironmentRules(), Path("/p")
    launch = Launch("l", "p", "m", "ipc:///a", {}, place, print)
    shut_in = sandbox.shell(place, [], network="none", tmp_bytes=1)
    for command in (
        bare({}, 0).command,
        sandbox.launch(shut_in, {}, 0).command,
        sandbox.launch(shut_in, {}, 0, place).command,
        launch.command("w", Shape(1, 0, {}), "/opt/python"),
        *packages.commands(rules, place, place, ""),
    ):
        assert "-m" in command
        assert command[command.index("-P") + 1] == "-s"
        assert command[command.index("-P") - 1] in (
            sys.executable,
            "/p",
            "/opt/python",
            "/p/bin/python",
        )


@pytest.fixture
def in_user_site(tmp_path, monkeypatch):
    """Gridfed as `pip install --user` installs it."""
    (tmp_path / "gridfed-1.0.dist-info").mkdir()
    (tmp_path / "gridfed-1.0.dist-info" / "METADATA").write_text("Name: gridfed\nVersion: 1.0\n")
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "USER_SITE", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("in_user_site")
def test_a_gridfed_in_our_user_site_is_found_by_our_own_processes_alone():
    for command in (run_module("m"), run_module("m", python=sys.executable), bare({}, 0).command):
        assert "-s" not in command
    for command in (
        run_module("m", python="/opt/p"),
        run_module("m", is_ours=False),
        bare({}, 0, ("setpriv", "--")).command,
        sandbox.launch((), {}, 0).command,
    ):
        assert "-s" in command


@pytest.mark.real
def test_what_a_task_left_in_a_home_folder_is_not_imported(tmp_path):
    """Neither by a slot, nor by a Python that a task of another user's slot starts."""
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    environment = {**os.environ, "HOME": str(tmp_path)}
    for name in ("PYTHONNOUSERSITE", "PYTHONUSERBASE"):
        environment.pop(name, None)

    def run(*command, **variables):
        shown = subprocess.run(
            command, env={**environment, **variables}, capture_output=True, text=True, check=True
        )
        return shown.stdout.strip()

    user_site = Path(run(base, "-c", "import site; print(site.getusersitepackages())"))
    assert user_site.is_relative_to(tmp_path)
    user_site.mkdir(parents=True)
    (user_site / "usercustomize.py").write_text("print('planted')")
    assert run(base, "-P", "-c", "pass") == "planted"
    assert run(*run_code("pass", python=base)) == ""
    variables = SlotUser("nobody", 65534, 65534, str(tmp_path)).variables({})
    assert run(base, "-c", "pass", **variables) == ""


@pytest.mark.parametrize("package", ["federation", "gateway", "policies"])
def test_there_is_no_other_way_to_start_one(package):
    """By its option: `-m` of iptables and `-c` of a shell are no interpreter's."""
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r'"-[mc]"', line) and not re.search(r"iptables|owner|/bin/sh|soamdeploy", line)
    }
    assert found <= OTHERS


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run slots as another user")
@pytest.mark.parametrize("path", ["", f"{ROOT}{os.pathsep}"])
def test_a_worker_starts_again_beside_what_a_task_wrote(tmp_path, monkeypatch, path):
    """Also where $PYTHONPATH has an empty entry, which means the working folder."""
    monkeypatch.setenv("PYTHONPATH", path)
    own = '[pool.environments]\nsandbox = "auto"\n'
    member = MemberSite(tmp_path, "london", 1, "0.04 USD", own)
    ran = tmp_path / "ran"
    try:
        wait_until(lambda: "works for site" in member.gateway.text(), "a worker")
        for name in ("msgpack", "trio", "cloudpickle"):
            (member.folder / f"{name}.py").write_text(PLANT.format(str(ran)))
        below = psutil.Process(member.gateway.pid).children()
        (agent,) = (each for each in below if "gateway.worker.agent" in each.cmdline())
        agent.kill()
        wait_until(
            lambda: ran.exists() or member.gateway.text().count("works for site") > 1,
            "another worker",
        )
        assert not ran.exists()
    finally:
        member.gateway.stop()
