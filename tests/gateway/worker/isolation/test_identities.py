"""The kernel's users for other sites' work: neither those of own users' slots, nor each other."""

import os
import pwd
import subprocess
import time
from pathlib import Path

import pytest
from support.programs.containers import need

from gateway.config.environments import EnvironmentRules
from gateway.worker.isolation import containers, identities, sandbox
from gateway.worker.isolation.identities import container_user, is_mapped, sandbox_user
from gateway.worker.isolation.launch import SlotLaunch
from gateway.worker.isolation.seccomp import no_user_namespaces

SITES = ("", "paris", "london", "rome")
WHOLE = "         0          0 4294967295\n"


@pytest.fixture(params=[WHOLE, "0 100000 65536\n"])
def table(request, monkeypatch, tmp_path):
    path = tmp_path / "map"
    path.write_text(request.param)
    monkeypatch.setattr(identities, "_MAPS", (path, path))
    return request.param


def test_each_site_has_a_number_of_its_own_that_no_account_has(table):
    taken = {each.pw_uid for each in pwd.getpwall()}
    for number in (sandbox_user, container_user):
        found = [number(each) for each in SITES]
        assert len({*found}) == len(SITES)
        assert not taken & {*found}
        assert found == [number(each) for each in SITES]
    assert all(is_mapped(table, sandbox_user(each), 1) for each in SITES)
    assert all(60_000 < container_user(str(each)) < 65_534 for each in range(5000))


def test_numbers_are_high_where_the_host_has_them():
    assert is_mapped(WHOLE, identities.HIGH_FIRST, identities.HIGH_COUNT)
    assert not is_mapped("0 1000 1\n1 100000 65535\n", identities.HIGH_FIRST, 1)
    assert not is_mapped("", 0, 1)


def test_containers_run_as_theirs():
    shape = containers.ContainerShape("n", "o", Path("/k"), Path("/s"), 0, site="paris")
    command = containers.run_command(
        containers.Runtime("podman"), "image", EnvironmentRules(), shape
    )
    number = container_user("paris")
    assert command[command.index("--user") + 1] == f"{number}:{number}"


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has one user for all of a sandbox")
@pytest.mark.parametrize("who", ["nobody", "rome"])
def test_neither_own_users_nor_another_site_look_into_a_sandbox(who):
    need("bwrap", "setpriv")
    number = pwd.getpwnam("nobody").pw_uid if who == "nobody" else sandbox_user(who)
    shell = sandbox.shell(Path("/usr"), [], network="none", tmp_bytes=1 << 20, site="paris")
    launch = SlotLaunch((*shell, "/usr/bin/sleep", "100.5"), {}, filter=no_user_namespaces())
    filter_fd = launch.open_filter()
    passed = () if filter_fd is None else (filter_fd,)
    with subprocess.Popen(launch.words(filter_fd), pass_fds=passed) as shut:
        try:
            inside = sleeper(shut.pid)
            status = Path(f"/proc/{inside}/status").read_text().splitlines()
            (uids,) = (line.split()[1:] for line in status if line.startswith("Uid:"))
            assert {*uids} == {str(sandbox_user("paris"))}
            assert can_look(sandbox_user("paris"), inside)  # else this test would prove nothing
            assert not can_look(number, inside)
        finally:
            shut.kill()


def sleeper(pid):
    """The number of the sandboxed program, below the sandbox's own processes."""
    until_s = time.monotonic() + 300
    while time.monotonic() < until_s:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes() == b"/usr/bin/sleep\x00100.5\x00" and is_below(
                    path.parent, pid
                ):
                    return int(path.parent.name)
            except OSError:
                continue
        time.sleep(0.05)
    raise AssertionError("nothing sleeps in the sandbox")


def is_below(place, pid):
    while place.name not in ("0", "1"):
        if place.name == str(pid):
            return True
        place = Path("/proc", (place / "stat").read_text().rpartition(")")[2].split()[1])
    return False


def can_look(number, pid):
    who = (f"--reuid={number}", f"--regid={number}", "--clear-groups", "--inh-caps=-all")
    look = ["/usr/bin/setpriv", *who, "--", "/usr/bin/cat", f"/proc/{pid}/environ"]
    return subprocess.run(look, check=False, capture_output=True).returncode == 0
