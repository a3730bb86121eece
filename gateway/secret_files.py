"""Files of one word: a shared secret, a token. Light, as commands that only ask read them, too."""

from pathlib import Path

from gateway.knobs import ConfigError


def read_secret(name: str) -> str:
    """The secret in a file. Raises ConfigError: an empty one would let everybody in."""
    return _read_word(name, "secret_file", "`openssl rand -hex 32` makes a secret")


def read_token(name: str) -> str:
    """The token in a file. Raises ConfigError."""
    return _read_word(name, "token_file", "`gridfed token` prints a token")


def _read_word(name: str, knob: str, remedy: str) -> str:
    path = Path(name).expanduser()
    try:
        word = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{knob} {path}: {getattr(error, 'strerror', error)}") from None
    if not word:
        raise ConfigError(f"{knob} {path}: it is empty; {remedy}")
    return word


def exposure(name: str) -> str:
    """A warning where others on this host can read a file that holds a secret; else nothing."""
    path = Path(name).expanduser()
    if not path.stat().st_mode & 0o077:
        return ""
    return f"{path} holds a secret and others on this host can read it: chmod 600 {path}"
