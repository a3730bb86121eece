"""The socket at which a slot in a container fetches its descriptors; only its container sees it.

The slot sends its Python version. It receives its end of the channel, its cells and a lifeline (the
far end of a pipe of ours: when the pipe closes the agent is gone, and the slot must end). The
connection tells us its process id on this host, so that we can kill it without its runtime.
"""

import os
import signal
import socket
from pathlib import Path
from typing import Final

import trio

from federation.sessions.credentials import peer_credentials

GREETING_BYTES_MAX: Final = 64


class Handover:
    """The socket of one slot, and the descriptors handed over there, once.

    Args:
        path: the socket's; the container sees its folder.
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
        # The container may run as any user; only it can see the socket.
        os.chmod(path, 0o666)  # noqa: S103
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._is_closed = False

    @property
    def is_through(self) -> bool:
        """Whether the slot has connected, so that its process is known."""
        return self._pidfd is not None

    async def hand_over(self) -> int:
        """Wait for the slot and send it its descriptors; return its process id."""
        await trio.lowlevel.wait_readable(self._listener)
        connection, _ = self._listener.accept()
        with connection:
            pid = peer_credentials(connection).pid
            self._pidfd = os.pidfd_open(pid)
            connection.setblocking(False)
            await trio.lowlevel.wait_readable(connection)
            self.version = connection.recv(GREETING_BYTES_MAX).decode("ascii", errors="replace")
            descriptors = [self._channel.fileno(), self._cells, self._life]
            socket.send_fds(connection, [b"\n"], descriptors)
        self._let_go()
        return pid

    def kill(self) -> None:
        """Kill the slot, and so its container."""
        if self._pidfd is None:
            return
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended
        except PermissionError:
            self._cut()  # it has another user, and watches the lifeline

    def _cut(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _let_go(self) -> None:
        """Close the descriptors that the slot has now, or will never have."""
        if self._life >= 0:
            self._channel.close()
            os.close(self._cells)
            os.close(self._life)
            self._life = -1

    def close(self) -> None:
        """Kill the slot if it runs, and close everything."""
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
