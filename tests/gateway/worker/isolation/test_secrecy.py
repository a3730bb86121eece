"""The view of an agent's token from other processes of the same user."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real

NOBODY = 65534
# As an agent of an ordinary user begins: root's right to look at everything is given up first, and
# the kernel is told that this is a process like any other, which the change of user undoes.
AGENT = f"""
import ctypes, os, sys
from gateway.worker.isolation.secrecy import hide_memory, take_variable
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
token = ""
if "take" in sys.argv:
    token = take_variable("GRIDFED_TOKEN")
if "hide" in sys.argv:
    hide_memory()
print(token, os.environ.get("GRIDFED_TOKEN", "gone"), flush=True)
sys.stdin.read()
"""
TASK = f"""
import os, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
for name in ("environ", "mem"):
    try:
        with open(f"/proc/{{sys.argv[1]}}/{{name}}", "rb") as file:
            text = file.read() if name == "environ" else b""
        print("token" if b"geheim" in text else "mark" if b"PILOT=m/1" in text else "nothing")
    except PermissionError:
        print("denied")
"""


@pytest.fixture
def look():
    """The findings of a task of the same user about an agent that has done so much."""
    if os.getuid() != 0:
        pytest.skip("only root can start processes of another user")

    def look(*steps, **more):
        environment = {**os.environ, "GRIDFED_TOKEN": "geheim", **more}
        command = [sys.executable, "-c", AGENT, *steps]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as agent:
            said = agent.stdout.readline().split()
            look = [sys.executable, "-c", TASK, str(agent.pid)]
            found = subprocess.run(look, capture_output=True, text=True, check=True).stdout.split()
            agent.stdin.close()
        return said, found

    return look


def test_without_care_a_task_finds_the_token(look):
    assert look() == (["geheim"], ["token", "nothing"])


def test_a_token_that_was_taken_is_not_in_the_environment(look):
    said, found = look("take", GRIDFED_PILOT="m/1")
    assert said == ["geheim", "gone"]
    assert found == ["mark", "nothing"]  # by which the gateway finds its pilots


def test_memory_that_is_hidden_can_not_be_opened(look):
    assert look("take", "hide") == (["geheim", "gone"], ["denied", "denied"])


def test_a_pilot_that_is_found_by_its_environment_stays_to_be_found(look):
    assert look("take", "hide", GRIDFED_PILOT="m/1")[1] == ["mark", "nothing"]
