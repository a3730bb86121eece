"""Looks at the processes of the gateways, their logs and their folders while a run lasts."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from tests.fuzz.judging import Sample
from tests.fuzz.town import FuzzSite

BOOKS: Final = "gridfed.db"


def look(site: FuzzSite) -> Sample:
    """A gateway's use of the host now. Raises psutil.Error when it has ended."""
    process = psutil.Process(site.gateway.pid)
    with process.oneshot():
        rss_bytes, threads = process.memory_info().rss, process.num_threads()
    sizes = {path: _size(path) for path in site.folder.rglob("*") if path.is_file()}
    books = {path: size for path, size in sizes.items() if path.name.startswith(BOOKS)}
    return Sample(
        at_s=time.monotonic(),
        rss_bytes=rss_bytes,
        threads=threads,
        descriptors=process.num_fds(),
        log_bytes=_size(site.gateway.log),
        files=len(sizes) - len(books),
        books_bytes=sum(books.values()),
    )


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


class Watch:
    """Samples of sites, taken by a thread; and which of them have ended meanwhile."""

    def __init__(self, sites: Sequence[FuzzSite], every_s: float) -> None:
        self.samples: dict[str, list[Sample]] = {each.name: [] for each in sites}
        self.ended: dict[str, int] = {}
        self._sites, self._every_s = sites, every_s
        self._is_over = threading.Event()
        self.look()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Take one more sample of each."""
        for each in self._sites:
            code = each.gateway.process.poll()
            if code is not None:
                self.ended[each.name] = code
                continue
            with suppress(psutil.Error):  # it ends now: the next look says so
                self.samples[each.name].append(look(each))

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            self.look()

    def stop(self) -> None:
        """Take the last samples."""
        self._is_over.set()
        self._thread.join()
        self.look()
