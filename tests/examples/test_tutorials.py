"""Every block of the tutorials runs, in order, as a reader would run it."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
TIMEOUT_S = 900.0
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def script(name):
    """The blocks of a tutorial as one script of bash."""
    text = (TUTORIALS / f"{name}.md").read_text()
    lines = ["set -euo pipefail"]
    for kind, body in BLOCK.findall(text):
        if kind == "python":
            lines.append(f"python - <<'PYTHON'\n{body}PYTHON")
            continue
        lines.append(body)
        # A reader waits for the word "ready"; a script asks until each gateway answers.
        if re.search(r" &$", body, re.MULTILINE):
            folders = re.findall(r"--config (\w+)/gateway.toml &", body)
            waits = [f'"ipc://$PWD/{each}/gateway.sock"' for each in folders] or ['""']
            for each in waits:
                where = f"--gateway {each}" if each != '""' else ""
                lines.append(f"until gridfed status {where} >/dev/null 2>&1; do sleep 0.2; done")
    return "\n".join(lines)


def free_ports(count):
    """Ports of which each, and the next, was free a moment ago."""
    found = []
    while len(found) < count:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
        found.append(port)
    return found


@pytest.mark.parametrize("name", ["quant", "administrator", "two_sites"])
def test_every_block_of_a_tutorial_runs(name, tmp_path):
    text = script(name)
    for port, other in zip(("7462", "7472"), free_ports(2), strict=True):
        text = text.replace(port, str(other))
    programs = Path(sys.executable).parent
    environment = {
        **{key: each for key, each in os.environ.items() if not key.startswith("GRIDFED")},
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    log = tmp_path / "log"
    with log.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", text],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(TIMEOUT_S)
        finally:
            end(shell)
    assert code == 0, log.read_text()[-4000:]


def end(shell):
    """End the gateways that a tutorial has started, and the other processes of its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(shell.pid, number)
            shell.wait(30)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
