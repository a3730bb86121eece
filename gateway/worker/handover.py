"""Where a slot in a container comes for its descriptors: a socket that only its container sees.

It says which Python it is, and is sent its end of the channel, its cells and a lifeline (the far
end of a pipe of ours: when that closes we are gone, and so must it be). From the connection we
know its process, by our own numbers, and end it without asking its runtime.
"""

import os
import signal
import socket
import struct
from pathlib import Path
from typing import Final

import trio

GREETING_BYTES_MAX: Final = 64
_CREDENTIALS: Final = struct.Struct("3i")


class Handover:
    """The socket of one slot, and what is handed out there, once.

    Args:
        path: the socket's; its folder is what the container sees.
        channel: the slot's end.
        cells: their descriptor.
    """

    def __init__(self, path: str, channel: socket.socket, cells: int) -> None:
        self.version = ""
        self._path = Path(path)
        self._channel = channel
        self._cells = cells
        self._life, self._lifeline = os.pipe()
        self._pidfd: int | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _bind(self._listener, self._path)
        # Whoever its user is: only its container can see it.
        os.chmod(path, 0o666)  # noqa: S103
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._is_closed = False

    @property
    def is_through(self) -> bool:
        """Whether the slot has come, so that we know its process."""
        return self._pidfd is not None

    async def hand_over(self) -> int:
        """Wait for the slot and hand it what is its own; the number of its process."""
        await trio.lowlevel.wait_readable(self._listener)
        connection, _ = self._listener.accept()
        with connection:
            size = _CREDENTIALS.size
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            pid: int
            pid, _, _ = _CREDENTIALS.unpack(raw)
            self._pidfd = os.pidfd_open(pid)
            connection.setblocking(False)
            await trio.lowlevel.wait_readable(connection)
            self.version = connection.recv(GREETING_BYTES_MAX).decode("ascii", errors="replace")
            descriptors = [self._channel.fileno(), self._cells, self._life]
            socket.send_fds(connection, [b"\n"], descriptors)
        self._let_go()
        return pid

    def kill(self) -> None:
        """End the slot, and so its container."""
        if self._pidfd is None:
            return
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended
        except PermissionError:
            self._cut()  # another user's, who looks at the lifeline

    def _cut(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _let_go(self) -> None:
        """Close what the slot has now, or will never have."""
        if self._life >= 0:
            self._channel.close()
            os.close(self._cells)
            os.close(self._life)
            self._life = -1

    def close(self) -> None:
        """The slot has ended, or is to."""
        if self._is_closed:
            return
        self._is_closed = True
        self.kill()
        self._cut()
        self._let_go()
        self._listener.close()
        self._path.unlink(missing_ok=True)
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def _bind(listener: socket.socket, path: Path) -> None:
    """Bind a socket below a folder of any length: an address has room for 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
