"""A pipe that ends a thread's poll: written by anybody, at any time, also by a finaliser."""

import os


class Waker:
    """Something to poll that another thread can make readable."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._read

    def wake(self) -> None:
        """Make it readable. Nothing, once it is closed: nobody polls it then."""
        writable = self._write
        if writable < 0:
            return
        try:
            os.write(writable, b"w")
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
        if self._write >= 0:
            os.close(self._read)
            os.close(self._write)
            self._read = self._write = -1
