"""The client configuration file: gateways and credentials of a user, for every program.

    # ~/.config/gridfed/client.toml
    gateways = ["tls+tcp://gw1.example.com:7000", "tls+tcp://gw2.example.com:7000"]
    token_file = "token"                # beside this file; mode 0600
    tls_ca_file = "gateways.pem"        # beside this file
    tls_server_name = ""                # in place of the host of the address
    tls_certificate_file = ""           # for gateways that require one

It counts where neither a `Client` nor $GRIDFED_GATEWAY names a gateway. Its token and certificates
are used with its gateways alone.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from federation.errors import GridError
from federation.transport import TlsSettings

FILE_VARIABLE: Final = "GRIDFED_CLIENT_FILE"
KEYS: Final = ("gateways", "token_file", "tls_ca_file", "tls_server_name", "tls_certificate_file")
FILE_BYTES_MAX: Final = 1 << 20
TOKEN_BYTES_MAX: Final = 1 << 16
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class ClientFileError(GridError, ValueError):
    """A client configuration file that can't be used; the text names the file and the key."""


@dataclass(frozen=True, slots=True)
class ClientFile:
    """The content of a client configuration file.

    Attributes:
        path: of the file.
        gateways: addresses, best first; at least one.
        token: its text; empty: the file names none.
    """

    path: Path
    gateways: tuple[str, ...]
    token: str
    tls: TlsSettings


def client_file_path() -> Path:
    """Return where the file of this user is, whether it exists or not."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "gridfed" / "client.toml"


def read_client_file() -> ClientFile | None:
    """Read the file of this user; None if there is none. Raises ClientFileError."""
    path = client_file_path()
    try:
        body = _read(path, FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientFileError(f"{path}: it can't be read: {error.strerror}") from None
    import tomllib

    try:
        table = tomllib.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ClientFileError(f"{path}: {error}") from None
    return _client_file(path, table)


def _client_file(path: Path, table: dict[str, Any]) -> ClientFile:
    for key in table:
        if key not in KEYS:
            raise ClientFileError(f"{path}: unknown key {key!r:.60}; known keys: {', '.join(KEYS)}")
    gateways = table.get("gateways")
    gateways = [gateways] if isinstance(gateways, str) else gateways
    if not isinstance(gateways, list) or not gateways or not all(map(_is_text, gateways)):
        raise ClientFileError(
            f'{path}: gateways must be a list of addresses, as in ["tls+tcp://gw1:7000"]'
        )
    texts = {key: table.get(key, "") for key in KEYS[1:]}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ClientFileError(f"{path}: {key} must be a string")
    tls = TlsSettings(
        _beside(path, texts["tls_certificate_file"]),
        _beside(path, texts["tls_ca_file"]),
        texts["tls_server_name"] or None,
    )
    token_file = _beside(path, texts["token_file"])
    return ClientFile(path, tuple(gateways), _token(path, token_file) if token_file else "", tls)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _beside(path: Path, name: str) -> str | None:
    return str(path.parent / Path(name).expanduser()) if name else None


def _token(path: Path, token_file: str) -> str:
    try:
        if os.stat(token_file).st_mode & _OTHERS:
            raise ClientFileError(
                f"{path}: token_file: others can read {token_file}: run chmod 600 {token_file}"
            )
        return _read(Path(token_file), TOKEN_BYTES_MAX).decode().strip()
    except OSError as error:
        raise ClientFileError(
            f"{path}: token_file: {token_file} can't be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise ClientFileError(f"{path}: token_file: {token_file} holds no token") from None


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        body = file.read(most + 1)
    if len(body) > most:
        raise ClientFileError(f"{path}: the file has more than {most:,} bytes")
    return body
