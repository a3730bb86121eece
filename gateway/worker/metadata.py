"""A client of a cloud's instance metadata, by IMDSv2. Blocking, for threads.

It requests a token first, by PUT, and shows it with each request: that keeps a web page that a task
was made to fetch from reading the metadata (docs/grids_ec2.md). It uses only the standard library,
as it runs on hosts where nothing but a worker is installed.
"""

import http.client
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

ENDPOINT: Final = "http://169.254.169.254"
ENDPOINT_VARIABLE: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # the SDKs' name
TOKEN_TTL_S: Final = 21_600  # the longest possible
TIMEOUT_S: Final = 2.0
ANSWER_BYTES_MAX: Final = 64 << 10


class MetadataError(Exception):
    """The metadata service gave no answer, or no usable one."""


class NoticeSource(Protocol):
    """A source of notices."""

    def get(self, path: str) -> str | None:
        """Return the text at a path; None: there is none (now). Raises MetadataError."""
        ...


class Relayed:
    """Notices in a folder: a process with access to the metadata service relays them to others."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def get(self, path: str) -> str | None:
        """Return the text that was put there under that name."""
        try:
            return self._file(path).read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise MetadataError(f"a notice can't be read: {error}") from None

    def put(self, path: str, text: str) -> None:
        """Put a notice there atomically, readable by all users."""
        new = self._file(f"{path}.new")
        new.write_text(text)
        new.chmod(0o644)
        new.rename(self._file(path))

    def _file(self, path: str) -> Path:
        return self._folder / path.replace("/", "-")


def source(address: str) -> NoticeSource:
    """Return the source for an address: a metadata service, `http://…`, or a folder of notices."""
    return Relayed(address) if address.startswith("/") else Metadata(address)


def endpoint() -> str:
    """Return the address of this host's metadata service."""
    return os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT


class Metadata:
    """Queries one metadata service. Not thread-safe."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname:
            raise MetadataError(
                f"{address!r} is not the address of a metadata service: use http://HOST"
            )
        self._host, self._port = parts.hostname, parts.port or 80
        self._prefix = parts.path.rstrip("/")
        self._token = ""
        self._token_ends_s = 0.0

    def get(self, path: str) -> str | None:
        """Return the text at `latest/meta-data/PATH`; None: there is none (now)."""
        if time.monotonic() >= self._token_ends_s:
            self._renew()
        path = f"/latest/meta-data/{path}"
        status, body = self._ask("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if status == http.client.UNAUTHORIZED:  # it was restarted, or the host slept
            self._renew()
            status, body = self._ask("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if status == http.client.NOT_FOUND:
            return None
        if status != http.client.OK:
            raise MetadataError(f"instance metadata {path}: HTTP status {status}")
        return body

    def need(self, path: str) -> str:
        """Return the text at a path; raise MetadataError without one."""
        found = self.get(path)
        if found is None:
            raise MetadataError(f"instance metadata {path}: not found")
        return found

    def _renew(self) -> None:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        status, body = self._ask("PUT", "/latest/api/token", ttl)
        if status != http.client.OK or not body:
            raise MetadataError(f"instance metadata returned no token: HTTP status {status}")
        if not (body.isascii() and body.isprintable()):
            raise MetadataError("instance metadata returned an invalid token")
        self._token = body
        self._token_ends_s = time.monotonic() + TOKEN_TTL_S / 2

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, self._prefix + path, headers=dict(headers))
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise MetadataError(f"the instance metadata service does not answer: {error}") from None
        finally:
            connection.close()
        return answer.status, body.decode("utf-8", "replace").strip()
