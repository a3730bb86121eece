"""A pipe that ends a thread's poll. Any thread, or a finaliser, may write to it at any time."""

import os
import threading


class Waker:
    """A descriptor to poll that another thread can make readable."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # The caller may be in any thread, nng's too: a descriptor that is closed in between could
        # be a file of the user's by the time of the write. Reentrant, for finalisers and signals.
        self._lock = threading.RLock()

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._read

    def wake(self) -> None:
        """Make it readable. Does nothing once it is closed: no thread polls it then."""
        with self._lock:
            if self._write < 0:
                return
            try:
                os.write(self._write, b"w")
            except BlockingIOError:
                return  # it is full of wake-ups already

    def clear(self) -> None:
        """Read all that was written."""
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        with self._lock:
            ends = [each for each in (self._read, self._write) if each >= 0]
            self._read = self._write = -1  # first: a signal's handler may wake us in between
            for each in ends:
                os.close(each)
