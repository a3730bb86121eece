"""What a cloud instance is told of itself: instance metadata by IMDSv2. Blocking, for threads.

A token is asked for first, by PUT, and shown with each question: that is what keeps a web page that
a task was made to fetch from reading it (docs/grids_ec2.md). Only the standard library is used: it
runs on hosts where nothing but a worker is installed.
"""

import http.client
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

ENDPOINT: Final = "http://169.254.169.254"
ENDPOINT_VARIABLE: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # as the SDKs call it
TOKEN_TTL_S: Final = 21_600  # the longest that there is
TIMEOUT_S: Final = 2.0
ANSWER_BYTES_MAX: Final = 64 << 10


class MetadataError(Exception):
    """The metadata service did not answer, or not in a way that can be used."""


class Source(Protocol):
    """Where notices are read."""

    def get(self, path: str) -> str | None:
        """What stands there; None: there is no such thing (now). Raises MetadataError."""
        ...


class Relayed:
    """Notices in a folder: who may ask the metadata service puts them there, who may not reads."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def get(self, path: str) -> str | None:
        """What was put there under that name."""
        try:
            return self._file(path).read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise MetadataError(f"a notice can't be read: {error}") from None

    def put(self, path: str, text: str) -> None:
        """Put a notice there, whole or not at all, for everybody to read."""
        new = self._file(f"{path}.new")
        new.write_text(text)
        new.chmod(0o644)
        new.rename(self._file(path))

    def _file(self, path: str) -> Path:
        return self._folder / path.replace("/", "-")


def source(address: str) -> Source:
    """Of an address: a metadata service, `http://…`, or a folder with what it says."""
    return Relayed(address) if address.startswith("/") else Metadata(address)


def endpoint() -> str:
    """Where this host asks for its metadata."""
    return os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT


class Metadata:
    """Asks one metadata service. Not for several threads at once."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname:
            raise MetadataError(f"{address!r} is no address of a metadata service: http://HOST")
        self._host, self._port = parts.hostname, parts.port or 80
        self._prefix = parts.path.rstrip("/")
        self._token = ""
        self._token_ends_s = 0.0

    def get(self, path: str) -> str | None:
        """What stands at `latest/meta-data/PATH`; None: there is no such thing (now)."""
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
            raise MetadataError(f"instance metadata {path}: answer {status}")
        return body

    def need(self, path: str) -> str:
        """The same; MetadataError when it is not there."""
        found = self.get(path)
        if found is None:
            raise MetadataError(f"the instance's metadata has no {path}")
        return found

    def _renew(self) -> None:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        status, body = self._ask("PUT", "/latest/api/token", ttl)
        if status != http.client.OK or not body:
            raise MetadataError(f"instance metadata gives no token: answer {status}")
        if not (body.isascii() and body.isprintable()):
            raise MetadataError("instance metadata gives a token that no header can hold")
        self._token = body
        self._token_ends_s = time.monotonic() + TOKEN_TTL_S / 2

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, self._prefix + path, headers=dict(headers))
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise MetadataError(f"instance metadata does not answer: {error}") from None
        finally:
            connection.close()
        return answer.status, body.decode("utf-8", "replace").strip()
