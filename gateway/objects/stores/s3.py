"""A store in a bucket of S3, or of a service that speaks its protocol, by `gridfed[s3]`.

Bytes are sent in one request that fails where the name is taken (`If-None-Match`): it is all or
nothing, and of many writers one succeeds. So pieces are joined in memory first, and are at most
PUT_MAX together: larger objects are stored block by block.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from federation.errors import GridError
from gateway.objects.stores.contract import NotStored, StoreFull, check_name

PUT_MAX: Final = 5 << 30  # of one request, by S3
_NO_ROOM: Final = ("QuotaExceeded", "InsufficientStorage", "507")


class S3ObjectStore:
    """Keeps bytes as objects of a bucket. Any thread may use it.

    Args:
        url: of the bucket and a prefix in it, "s3://bucket/prefix".
        options: of `obstore.store.S3Store`: region, endpoint, access_key_id, … By default those of
            the environment, and of the host in a cloud.

    Raises GridError where obstore is missing, or the URL or an option is not valid.
    """

    def __init__(self, url: str, **options: Any) -> None:
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError
            from obstore.store import S3Store
        except ImportError:
            raise GridError(
                "a store in a bucket needs obstore: pip install 'gridfed[s3]'"
            ) from None
        self._s3 = obstore
        self._exists: type[Exception] = AlreadyExistsError
        self._url = url
        if not url.startswith("s3://") or not url.removeprefix("s3://").strip("/"):
            raise GridError(f'{url!r:.80} is not a bucket: write it as in "s3://bucket/prefix"')
        try:
            self._store = S3Store.from_url(url, **options)
        except (BaseError, ValueError, TypeError) as error:
            raise GridError(f"the bucket {url} can't be used: {error}") from None

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> bool:
        """Store pieces as one; see ObjectStore."""
        check_name(name)
        data = b"".join(pieces)
        if len(data) > PUT_MAX:
            raise StoreFull(f"{self._url} takes at most {PUT_MAX:,} bytes under one name")
        try:
            self._s3.put(self._store, name, data, mode="create", use_multipart=False)
        except self._exists:
            return False
        except Exception as error:
            if any(word in str(error) for word in _NO_ROOM):
                raise StoreFull(f"{self._url} has no room: {error}") from None
            raise
        return True

    def get(self, name: str, first: int = 0, stop: int | None = None) -> bytes:
        """Return bytes of a name; see ObjectStore."""
        check_name(name)
        try:
            if first == 0 and stop is None:
                return bytes(self._s3.get(self._store, name).bytes())
            size = self.size(name)  # S3 refuses a range beyond the end
            end = size if stop is None else min(stop, size)
            if first >= end:
                return b""
            return bytes(self._s3.get_range(self._store, name, start=first, end=end))
        except FileNotFoundError:
            raise NotStored(name) from None

    def size(self, name: str) -> int:
        """Return the number of bytes under a name; see ObjectStore."""
        try:
            return int(self._s3.head(self._store, check_name(name))["size"])
        except FileNotFoundError:
            raise NotStored(name) from None

    def delete(self, name: str) -> bool:
        """Delete a name; see ObjectStore. S3 does not say whether it was there: it is asked."""
        try:
            self.size(name)
        except NotStored:
            return False
        self._s3.delete(self._store, name)
        return True

    def list(self) -> Iterator[str]:
        """Yield all names; see ObjectStore."""
        for part in self._s3.list(self._store):
            yield from (str(each["path"]).rsplit("/", 1)[-1] for each in part)
