"""Commands, as real processes: none of them outlives its time."""

import json
import os
import sys
from pathlib import Path

import psutil
import pytest
import trio
from support.processes import wait_until

from gateway.alerts.actions import OUTPUT_BYTES_MAX, ActionFailed, Command, body_of
from policies.costs.alerts import AlertBudget, sample

pytestmark = pytest.mark.real

BODY = body_of(sample(AlertBudget("desk", 10**9, "USD"), 1.0), "london")
PATIENT_S = 60.0


def python(script: str, *arguments: object, timeout_s: float = PATIENT_S) -> Command:
    return Command((sys.executable, "-c", script, *map(str, arguments)), timeout_s)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pids_in(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


@pytest.fixture(autouse=True)
def _leaves_nothing():
    """No child, and no open file, is left behind."""
    before = len(os.listdir("/proc/self/fd"))
    others = set(psutil.Process().children())  # a database that other tests share
    yield
    assert set(psutil.Process().children()) <= others
    # What reads of /proc by other threads have open is gone in a moment.
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, "every file is closed")


async def test_it_is_told_the_alert_in_json_and_in_variables(tmp_path, monkeypatch):
    for name in [each for each in os.environ if "GRIDFED" in each]:
        monkeypatch.delenv(name)  # of whoever runs the tests
    monkeypatch.setenv("GRIDFED_SECRET", "hidden")
    monkeypatch.setenv("GRIDFED_TOKEN", "hidden")
    found = tmp_path / "found"
    script = (
        "import json, os, sys; of = {k: v for k, v in os.environ.items() if 'GRIDFED' in k};"
        "json.dump([json.load(sys.stdin), of], open(sys.argv[1], 'w'))"
    )
    await python(script, found).run(BODY)
    body, variables = json.loads(found.read_text())
    assert body == BODY
    assert variables == {
        "GRIDFED_ALERT_SITE": "london",
        "GRIDFED_ALERT_NAME": "desk",
        "GRIDFED_ALERT_KIND": "budget",
        "GRIDFED_ALERT_SEVERITY": "warning",
        "GRIDFED_ALERT_KEY": "test",
        "GRIDFED_ALERT_LEVEL": "0",
        "GRIDFED_ALERT_TEXT": BODY["text"],
        "GRIDFED_ALERT_TEST": "0",
    }


async def test_no_shell_reads_its_arguments(tmp_path):
    found = tmp_path / "found"
    words = "$HOME; touch x `id` * \"'"
    await python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", found, words).run(BODY)
    assert found.read_text() == words


async def test_who_does_not_listen_is_no_failure():
    await Command(("true",), PATIENT_S).run(BODY | {"facts": {"long": "x" * (1 << 20)}})


async def test_a_program_that_fails_says_why():
    with pytest.raises(ActionFailed, match=r"exit code 3; output: no \| luck\\x1b") as caught:
        await python("import sys; print('no\\nluck\\x1b', file=sys.stderr); sys.exit(3)").run(BODY)
    assert caught.value.again


@pytest.mark.parametrize("program", ["/nowhere/at-all", "/etc/passwd", "/"])
async def test_a_program_that_cannot_be_started_is_given_up(program):
    with pytest.raises(ActionFailed, match="the command did not start") as caught:
        await Command((program,), PATIENT_S).run(BODY)
    assert not caught.value.again


# Says who it is and who its child is; then both hang, deaf to SIGTERM if so asked.
HANGS = """
[ "$2" = deaf ] && trap "" TERM
sleep 100000 &
echo "$$ $!" > "$1.new"
mv "$1.new" "$1"
echo here
wait
"""


def hanging(found: Path, manners: str, timeout_s: float) -> Command:
    return Command(("sh", "-c", HANGS, "hangs", str(found), manners), timeout_s)


@pytest.mark.parametrize("manners", ["polite", pytest.param("deaf", marks=pytest.mark.thorough)])
async def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path, manners):
    found = tmp_path / "pids"
    with pytest.raises(ActionFailed, match="timed out after 3 s, and was ended; output: here"):
        await hanging(found, manners, 3.0).run(BODY)
    pids = pids_in(found)
    assert len(pids) == 2
    wait_until(lambda: all(map(is_gone, pids)), "their end")


async def test_who_is_cancelled_leaves_nothing_behind(tmp_path):
    found = tmp_path / "pids"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hanging(found, "polite", PATIENT_S).run, BODY)
        await trio.to_thread.run_sync(wait_until, found.exists, "both")
        nursery.cancel_scope.cancel()
    wait_until(lambda: all(map(is_gone, pids_in(found))), "their end")


async def test_what_it_leaves_behind_is_ended_and_not_waited_for(tmp_path):
    found = tmp_path / "pid"
    script = (
        "import subprocess, sys; print('bye', flush=True);"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']);"
        "open(sys.argv[1], 'w').write(str(child.pid)); sys.exit(1)"
    )
    with pytest.raises(ActionFailed, match="exit code 1; output: bye"):
        await python(script, found).run(BODY)
    (pid,) = pids_in(found)
    wait_until(lambda: is_gone(pid), "its end")


async def test_a_flood_of_words_is_cut_off_and_fills_no_memory():
    with pytest.raises(ActionFailed) as caught:
        await Command(("yes", "x" * 1000), PATIENT_S).run(BODY)
    assert str(caught.value).startswith("exit code -13; output: xxx")
    assert str(caught.value).count("x") == 1 + 500  # of "exit"


async def test_what_is_within_the_bound_is_no_failure():
    await python(f"print('x' * ({OUTPUT_BYTES_MAX} - 2))").run(BODY)
