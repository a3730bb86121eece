"""The command line: as a process of its own, or, quicker, in this very one."""

import os
import subprocess
import sys

from click.testing import CliRunner

from gateway.cli.main import cli


def run(*arguments: str, code: int = 0, **environment: str) -> str:
    """What `gridfed` says as a process: on stdout, or on stderr where it is to end with a code."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
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
