"""SIGHUP: the log file is opened anew, and the configuration is reloaded, while work goes on."""

import os
import pty
import signal
import sys
import time

import pytest
from support.processes import SiteProcess, wait_until

pytestmark = pytest.mark.real

FILE = """\
[log]
file = "{log}"

[[pool]]
name = "local"
kind = "local"
slots = 1
price = "0.04 USD"
"""


@pytest.fixture
def log(tmp_path):
    return tmp_path / "gateway.txt"


@pytest.fixture
def site(tmp_path, log):
    made = SiteProcess(tmp_path, 0, config=FILE.format(log=log))
    yield made
    made.stop()


def wait_for_file(path):
    while not path.exists():
        time.sleep(0.01)
    return "went on"


def test_sighup_opens_the_log_anew_and_reloads_and_no_task_stops(site, log, tmp_path):
    file = tmp_path / "site.toml"
    with site.client() as client:
        task = client.submit(wait_for_file, tmp_path / "go")
        wait_until(lambda: client.ask("status")["in_flight"], "the task is at its worker")
        first = log.rename(tmp_path / "gateway.txt.1")
        file.write_text(file.read_text().replace("0.04 USD", "0.08 USD"))
        os.kill(site.gateway.pid, signal.SIGHUP)
        wait_until(lambda: log.exists() and "was reloaded" in log.read_text(), "it is reloaded")
        price = client.ask("status")["pools"][0]["price"]
        (tmp_path / "go").touch()
        assert task.result(60) == "went on"
    assert price.startswith("0.08 USD")
    assert "ready" in first.read_text()
    assert "was reloaded" not in first.read_text()
    assert "reloaded" not in site.text()  # stderr has only what its worker said


def test_a_file_with_a_mistake_changes_nothing_and_the_log_says_so(site, log, tmp_path):
    file = tmp_path / "site.toml"
    file.write_text(file.read_text().replace("0.04 USD", "0.08 pounds"))
    os.kill(site.gateway.pid, signal.SIGHUP)
    wait_until(lambda: "nothing was changed" in log.read_text(), "the log has the mistake")
    [line] = [each for each in log.read_text().splitlines() if "nothing was changed" in each]
    assert "SIGHUP: " in line
    assert "site.toml: line 8: [[pool]] local: price" in line
    with site.client() as client:
        assert client.ask("status")["pools"][0]["price"].startswith("0.04 USD")
    os.kill(site.gateway.pid, signal.SIGHUP)  # it still listens to it
    wait_until(lambda: log.read_text().count("nothing was changed") == 2, "the second")


def test_a_gateway_stops_when_the_terminal_that_it_runs_in_is_closed(tmp_path):
    command = [sys.executable, "-m", "gateway", "gateway", "--state", str(tmp_path / "state")]
    pid, terminal = pty.fork()
    if not pid:
        os.execv(command[0], [*command, "--listen", f"ipc://{tmp_path / 'gw.sock'}"])
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
