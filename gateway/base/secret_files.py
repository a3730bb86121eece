"""Files of one word: a shared secret, a token. Light: commands that only ask read them too."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from federation.address import SECRET_VARIABLE
from federation.files import read_regular, shown_path
from gateway.base.values import ConfigError

_BYTES_MAX: Final = 64 << 10

_taken: Final[list[str]] = []


def take_secret(take: Callable[[str], str]) -> None:
    """Move the shared secret out of the environment, which slots could read.

    `take` removes a variable, and returns its value:
    gateway.worker.isolation.secrecy.take_variable.
    """
    _taken[:] = [take(SECRET_VARIABLE)]


def secret_of_environment() -> str:
    """Return the shared secret that the process was started with; empty without one."""
    return os.environ.get(SECRET_VARIABLE, "") or "".join(_taken)


def read_secret(name: str, *, from_pipe: bool = False) -> str:
    """Return the secret in a file. Raises ConfigError: an empty secret would admit everyone.

    Args:
        from_pipe: whether it may be a pipe, as a shell's `<(command)`, which is waited for.
    """
    remedy = "create a secret with `openssl rand -hex 32`"
    return _read_word(name, "secret_file", remedy, from_pipe=from_pipe)


def read_token(name: str, *, from_pipe: bool = False) -> str:
    """Return the token in a file. Raises ConfigError. `from_pipe` as for `read_secret`."""
    return _read_word(
        name, "token_file", "create a token with `gridfed token`", from_pipe=from_pipe
    )


def _read_word(name: str, setting: str, remedy: str, *, from_pipe: bool) -> str:
    path = Path(name).expanduser()
    try:
        body = _read_any(path) if from_pipe else read_regular(path, _BYTES_MAX)
        word = body.decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", error)
        raise ConfigError(f"{setting} {shown_path(path)}: {why}") from None
    if not word:
        raise ConfigError(f"{setting} {path}: the file is empty; {remedy}")
    return word


def _read_any(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_BYTES_MAX)


def exposure(name: str) -> str:
    """Return a warning if others on this host can read a file with a secret; else empty."""
    path = Path(name).expanduser()
    if not path.stat().st_mode & 0o077:
        return ""
    return f"{path} holds a secret and is readable by other users: run chmod 600 {path}"
