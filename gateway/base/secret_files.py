"""Files of one word: a shared secret, a token. Light: commands that only ask read them too."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from federation.address import SECRET_VARIABLE
from gateway.base.files import read_regular
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


def read_secret(name: str) -> str:
    """Return the secret in a file. Raises ConfigError: an empty secret would admit everyone."""
    return _read_word(name, "secret_file", "create a secret with `openssl rand -hex 32`")


def read_token(name: str) -> str:
    """Return the token in a file. Raises ConfigError."""
    return _read_word(name, "token_file", "create a token with `gridfed token`")


def _read_word(name: str, knob: str, remedy: str) -> str:
    path = Path(name).expanduser()
    try:
        word = read_regular(path, _BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{knob} {path}: {getattr(error, 'strerror', error)}") from None
    if not word:
        raise ConfigError(f"{knob} {path}: the file is empty; {remedy}")
    return word


def exposure(name: str) -> str:
    """Return a warning if others on this host can read a file with a secret; else empty."""
    path = Path(name).expanduser()
    if not path.stat().st_mode & 0o077:
        return ""
    return f"{path} holds a secret and is readable by other users: run chmod 600 {path}"
