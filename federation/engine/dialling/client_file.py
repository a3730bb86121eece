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

from federation.address import AddressError, check_address, is_service, resolve
from federation.errors import GridError
from federation.files import read_regular
from federation.transport import TLS_BYTES_MAX, TlsSettings

FILE_VARIABLE: Final = "GRIDFED_CLIENT_FILE"
KEYS: Final = ("gateways", "token_file", "tls_ca_file", "tls_server_name", "tls_certificate_file")
FILE_BYTES_MAX: Final = 1 << 16
LINE_CHARS_MAX: Final = 4_096  # the parser takes very long for keys of many parts
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
        body = read_regular(path, FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientFileError(f"{path}: it can't be read: {error.strerror}") from None
    import tomllib

    try:
        text = body.decode("utf-8-sig")
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > LINE_CHARS_MAX:
                more = f"has more than {LINE_CHARS_MAX:,} characters"
                raise ClientFileError(f"{path}: line {number}: it {more}")
        table = tomllib.loads(text)
    except RecursionError:
        raise ClientFileError(f"{path}: its values are nested too deeply") from None
    except UnicodeDecodeError:
        raise ClientFileError(f"{path}: it is not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ClientFileError(f"{path}: {error}") from None
    return _client_file(path, table, text)


def _client_file(path: Path, table: dict[str, Any], text: str) -> ClientFile:
    for key in table:
        if key not in KEYS:
            known = ", ".join(KEYS)
            raise ClientFileError(
                f"{_where(path, text, key)}: unknown key {key!r:.60}; known keys: {known}"
            )
    gateways = table.get("gateways")
    gateways = [gateways] if isinstance(gateways, str) else gateways
    where = _where(path, text, "gateways")
    if not isinstance(gateways, list) or not gateways or not all(map(_is_text, gateways)):
        raise ClientFileError(
            f'{where}: gateways must be a list of addresses, as in ["tls+tcp://gw1:7000"]'
        )
    for address in gateways:
        try:
            for each in resolve(address)[0]:
                if not is_service(each):
                    check_address(each)
        except AddressError as error:
            raise ClientFileError(f"{_where(path, text, address, where)}: {error}") from None
    texts = {key: table.get(key, "") for key in KEYS[1:]}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ClientFileError(f"{_where(path, text, key)}: {key} must be a string")
    tls = TlsSettings(
        _beside(path, texts["tls_certificate_file"]),
        _beside(path, texts["tls_ca_file"]),
        texts["tls_server_name"] or None,
    )
    for key, name in (("tls_certificate_file", tls.certificate_file), ("tls_ca_file", tls.ca_file)):
        _check_file(_where(path, text, key), key, name)
    token_file = _beside(path, texts["token_file"])
    return ClientFile(
        path,
        tuple(gateways),
        _token(_where(path, text, "token_file"), token_file) if token_file else "",
        tls,
    )


def _where(path: Path, text: str, told: str, otherwise: str = "") -> str:
    """Return the file, and the line that first has a key or a value, as far as it is found."""
    for number, line in enumerate(text.split("\n"), 1):
        if told in line and not line.lstrip().startswith("#"):
            return f"{path}: line {number}"
    return otherwise or str(path)


def _check_file(where: str, key: str, name: str | None) -> None:
    """Raise ClientFileError unless a TLS file is there, regular and of a sensible size."""
    if name is None:
        return
    try:
        read_regular(Path(name), TLS_BYTES_MAX)
    except OSError as error:
        raise ClientFileError(f"{where}: {key}: {name!a} can't be read: {error.strerror}") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _beside(path: Path, name: str) -> str | None:
    return str(path.parent / Path(name).expanduser()) if name else None


def _token(where: str, token_file: str) -> str:
    try:
        if "\0" not in token_file and os.stat(token_file).st_mode & _OTHERS:
            raise ClientFileError(
                f"{where}: token_file: others can read {token_file}: run chmod 600 {token_file}"
            )
        return read_regular(Path(token_file), TOKEN_BYTES_MAX).decode().strip()
    except OSError as error:
        raise ClientFileError(
            f"{where}: token_file: {token_file} can't be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise ClientFileError(f"{where}: token_file: {token_file} holds no token") from None
