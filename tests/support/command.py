"""The command line: as a process of its own, or, quicker, in this very one."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner
from support.forked import Forked

from gateway.cli.main import cli

TIMEOUT_S = 600.0


def run(*arguments: str, code: int = 0, anew: bool = False, **environment: str) -> str:
    """The output of `gridfed` as a process: on stdout, or on stderr for an expected error code.

    `anew`: an interpreter of its own, from its first to its last moment.
    """
    if anew or any(name.startswith("PYTHON") for name in environment):
        return _run_anew(arguments, code, environment)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stderr"
        whole = {**os.environ, **environment}
        process = Forked("gateway.command:main", list(arguments), Path.cwd(), log, whole)
        assert process.stdout is not None
        with process.stdout:
            out = process.stdout.read().decode()
        ended, said = process.wait(TIMEOUT_S), log.read_text()
    assert ended == code, out + said
    return out if code == 0 else said


def _run_anew(arguments: tuple[str, ...], code: int, environment: dict[str, str]) -> str:
    """The same by an interpreter of its own, for options of interpreters."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def quick(*arguments: str, code: int = 0, **environment: str) -> str:
    """The same in this process, where nothing depends on that it is another."""
    result = CliRunner().invoke(cli, arguments, env=environment)
    assert result.exit_code == code, (result.output, result.exception)
    return (result.stdout_bytes if code == 0 else result.stderr_bytes).decode()  # as it is: \r\n
