"""A pipe that ends a thread's poll: written by anybody, at any time, also by a finaliser."""

import os
import threading


class Waker:
    """Something to poll that another thread can make readable."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # Who wakes may be in any thread, nng's too: a descriptor that is closed under him can be a
        # file of the user's by the time that he writes. Reentrant, for finalisers and signals.
        self._lock = threading.RLock()

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._read

    def wake(self) -> None:
        """Make it readable. Nothing, once it is closed: nobody polls it then."""
        with self._lock:
            if self._write < 0:
                return
            try:
                os.write(self._write, b"w")
            except BlockingIOError:
                return  # it is full of wake-ups already

    def clear(self) -> None:
        """Take what was written."""
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the descriptors back. Idempotent."""
        with self._lock:
            ends = [each for each in (self._read, self._write) if each >= 0]
            self._read = self._write = -1  # first: a signal's handler may wake us in between
            for each in ends:
                os.close(each)
