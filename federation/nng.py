"""The transport over real sockets: pynng, its descriptors polled, never awaited.

pynng's own `asend` and `arecv` cost a thread hop a message and leak on failure; its descriptors
cost neither (docs/protocol.md has the figures). Only `tcp://`, `tls+tcp://` and `ipc://` are
allowed: nng 1.11 aborts the whole process when a websocket client connects and closes at once.

A link uses a socket for one pipe only and then throws it away, so nothing queued for a lost pipe
can ever be sent on its successor ahead of the handshake.
"""

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pynng

from federation.errors import GridError
from federation.session import RECEIVE_BYTES_MAX
from federation.transport import TlsSettings

SCHEMES: Final = ("tcp://", "tls+tcp://", "ipc://")
_NNG_MAX: Final = RECEIVE_BYTES_MAX + 64  # nng counts its own header in
_LINK_QUEUE: Final = 64
_SEND_QUEUE: Final = 8192  # the most that nng allows
_BATCH_MAX: Final = 256  # frames taken in one `receive`, so that nobody starves
_SOCKET_PATH_MAX: Final = 107  # of sockaddr_un
_PORT_MAX: Final = 65535
PROBE_S: Final = 1.0
_process_with_nng: int | None = None


class ForkedProcessError(GridError):
    """nng can't be used in a child forked from a process that has used it."""


class AddressError(GridError, ValueError):
    """An address that can't be dialled or listened on."""


def check_address(address: str) -> None:
    """Raise AddressError unless `address` is one that gridfed speaks; nng's reasons say little."""
    if not address.startswith(SCHEMES):
        allowed = ", ".join(SCHEMES)
        raise AddressError(f"address {address!r}: it must start with one of {allowed}")
    if address.startswith("ipc://"):
        length = len(os.fsencode(address.removeprefix("ipc://")))
        if length > _SOCKET_PATH_MAX:
            raise AddressError(
                f"address {address!r}: the path of a socket may be {_SOCKET_PATH_MAX} bytes long, "
                f"this one has {length}"
            )
        return
    _, port = _host_and_port(address)
    if not (port.isascii() and port.isdecimal() and int(port) <= _PORT_MAX):
        raise AddressError(f"address {address!r}: it must end in a port, 0 to {_PORT_MAX}")


def _host_and_port(address: str) -> tuple[str, str]:
    host, _, port = address.partition("://")[2].rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def explain_silence(address: str) -> str:
    """What may be wrong where no gateway answers, in words: what listens at the address, if any.

    nng tells nobody why a connection does not come about. Waits PROBE_S at most.
    """
    if address.startswith("ipc://"):
        known = os.path.exists(address.removeprefix("ipc://"))
        return "nobody listens on that socket any more" if known else "there is no such socket"
    host, port = _host_and_port(address)
    try:
        socket.create_connection((host, int(port)), PROBE_S).close()
    except OSError as error:
        return f"nothing listens there ({error.strerror or error})"
    if address.startswith("tls+tcp://"):
        return (
            "something listens there, but TLS fails: check the CA file (--tls-ca-file), the name "
            "in its certificate (--tls-server-name), and whether it wants a certificate of yours "
            "(--tls-certificate-file); in Python, Client(tls=TlsSettings(...))"
        )
    return "something listens there, but not as a gateway: does it speak tls+tcp://?"


def _claim_process() -> None:
    """Refuse to open a socket in a forked child: nng would abort the whole process."""
    global _process_with_nng
    pid = os.getpid()
    if _process_with_nng is None:
        _process_with_nng = pid
    elif _process_with_nng != pid:
        raise ForkedProcessError(
            "this process was forked from one that already talks to a gateway, and nng does not "
            'survive that. Start children with multiprocessing.get_context("spawn").'
        )


def _poll_of(descriptor: int) -> select.poll:
    """Whether there is more to receive, at a sixth of what asking nng in vain costs."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll


def _dialler_tls(settings: TlsSettings, address: str) -> Any:
    return _tls(
        settings,
        mode=pynng.TLSConfig.MODE_CLIENT,
        auth_mode=pynng.TLSConfig.AUTH_MODE_REQUIRED,
        server_name=settings.server_name or _host_and_port(address)[0],
    )


def _listener_tls(settings: TlsSettings) -> Any:
    if settings.certificate_file is None:
        raise AddressError("tls+tcp:// needs a certificate file (certificate and key, PEM)")
    mode = pynng.TLSConfig.AUTH_MODE_REQUIRED
    return _tls(
        settings,
        mode=pynng.TLSConfig.MODE_SERVER,
        auth_mode=mode if settings.ca_file else pynng.TLSConfig.AUTH_MODE_NONE,
    )


def _tls(settings: TlsSettings, **terms: Any) -> Any:
    """nng's own settings; AddressError names the file that is no good."""
    ca_file, certificate_file = _readable(settings.ca_file), _readable(settings.certificate_file)
    try:
        return pynng.TLSConfig(
            ca_files=[ca_file] if ca_file else None, cert_key_file=certificate_file, **terms
        )
    except pynng.exceptions.NNGException as error:
        files = [
            what
            for what in (
                certificate_file and f"certificate and key together in {certificate_file}",
                ca_file and f"certificates in {ca_file}",
            )
            if what
        ]
        raise AddressError(
            f"TLS can't use its files ({error}): there must be, in PEM, {' and '.join(files)}"
        ) from error


def _readable(name: str | None) -> str | None:
    if not name:
        return None
    path = Path(name).expanduser()
    try:
        path.open("rb").close()
    except OSError as error:
        raise AddressError(f"TLS file {path}: {error.strerror}") from None
    return str(path)


class NngLink:
    """The dialling end over nng; see federation.transport.Link.

    Args:
        address: the gateway's.
        on_change: called, from a thread of nng's, when the pipe comes up or is lost.
        tls: needed for tls+tcp.
    """

    def __init__(
        self, address: str, on_change: Callable[[], None], tls: TlsSettings | None = None
    ) -> None:
        check_address(address)
        _claim_process()
        self.is_up = False
        self.is_lost = False
        self._on_change = on_change
        self._socket = pynng.Pair1(
            recv_max_size=_NNG_MAX,
            recv_buffer_size=16,
            # A window of frames, heartbeats and acknowledgements: with room for them all a send
            # never has to wait. The socket is thrown away with its pipe, and what it held.
            send_buffer_size=_LINK_QUEUE,
            reconnect_time_min=50,
            reconnect_time_max=1000,
        )
        try:
            if address.startswith("tls+tcp://"):
                self._socket.tls_config = _dialler_tls(tls or TlsSettings(), address)
            self._socket.add_post_pipe_connect_cb(self._came_up)
            self._socket.add_post_pipe_remove_cb(self._went)
            self._socket.dial(address, block=False)
            self._fileno = int(self._socket.recv_fd)
            self._poll = _poll_of(self._fileno)
        except AddressError:
            self._socket.close()
            raise
        except pynng.exceptions.NNGException as error:
            self._socket.close()
            raise AddressError(f"can't dial {address}: {error}") from error
        self._closed = False

    def _came_up(self, _pipe: Any) -> None:
        self.is_up = True
        self._on_change()

    def _went(self, _pipe: Any) -> None:
        self.is_up = False  # first: who sees that it is lost must not be able to send
        self.is_lost = True
        self._on_change()

    def receive(self) -> list[bytes]:
        """The frames that have arrived."""
        frames: list[bytes] = []
        try:
            while len(frames) < _BATCH_MAX and self._poll.poll(0):
                frames.append(self._socket.recv(block=False))
        except pynng.TryAgain:
            pass
        except pynng.Closed:
            self.is_lost = True
        return frames

    def send(self, frame: bytes) -> bool:
        """Hand a frame to the pipe, if it is up and can take one."""
        if not self.is_up:
            return False
        try:
            self._socket.send(frame, block=False)
        except pynng.TryAgain:
            return False
        except pynng.Closed:
            self.is_lost = True
            return False
        return True

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._fileno

    def close(self) -> None:
        """Close the socket."""
        if not self._closed:
            self._closed = True
            self.is_up = False
            self._socket.close()


class NngPort:
    """The listening end over nng; see federation.transport.Port.

    Args:
        addresses: where to listen; port 0 takes a free one.
        on_change: called, from a thread of nng's, when a pipe is gone.
        tls: needed for tls+tcp.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        on_change: Callable[[], None],
        tls: TlsSettings | None = None,
    ) -> None:
        _claim_process()
        self._pipes: dict[int, Any] = {}
        self._gone: deque[int] = deque()
        self._closing = threading.Event()
        self._on_change = on_change
        # Frames pass through one queue of the socket on their way to the pipes' own, which hold
        # two each. This one must never be full: under the transport rule two frames a pipe.
        self._socket = pynng.Pair1(
            polyamorous=True,
            recv_max_size=_NNG_MAX,
            recv_buffer_size=64,
            send_buffer_size=_SEND_QUEUE,
        )
        self.addresses: list[str] = []
        try:
            self._socket.add_post_pipe_remove_cb(self._went)
            for address in addresses:
                check_address(address)
                if address.startswith("tls+tcp://"):
                    self._socket.tls_config = _listener_tls(tls or TlsSettings())
                self.addresses.append(self._listen(address))
            self._fileno = int(self._socket.recv_fd)
            self._poll = _poll_of(self._fileno)
        except (pynng.exceptions.NNGException, GridError):
            self._socket.close()
            raise

    def _listen(self, address: str) -> str:
        try:
            listener = self._socket.listen(address)
        except pynng.exceptions.NNGException as error:
            raise AddressError(f"can't listen on {address}: {error}") from error
        head, colon, port = address.rpartition(":")
        if address.startswith("ipc://") or not colon or port != "0":
            return address
        bound = int.from_bytes(int(listener.local_address.port).to_bytes(2, "little"), "big")
        return f"{head}:{bound}"

    def _went(self, pipe: Any) -> None:
        self._gone.append(pipe.id)
        if not self._closing.is_set():
            self._on_change()

    def receive(self) -> list[tuple[int, bytes]]:
        """The frames that have arrived, each with its pipe."""
        frames: list[tuple[int, bytes]] = []
        try:
            while len(frames) < _BATCH_MAX and self._poll.poll(0):
                message = self._socket.recv_msg(block=False)
                pipe = message.pipe
                if pipe is not None:
                    number = pipe.id
                    self._pipes[number] = pipe
                    frames.append((number, message.bytes))
        except (pynng.TryAgain, pynng.Closed):
            pass
        return frames

    def send(self, pipe: int, frame: bytes) -> bool:
        """Hand a frame to a pipe."""
        known = self._pipes.get(pipe)
        if known is None:
            return False
        try:
            self._socket.send_msg(pynng.Message(frame, known), block=False)
        except pynng.exceptions.NNGException:
            return False
        return True

    def gone(self) -> list[int]:
        """The pipes that were closed since the last call."""
        pipes = []
        while self._gone:
            pipe = self._gone.popleft()
            self._pipes.pop(pipe, None)
            pipes.append(pipe)
        return pipes

    def drop(self, pipe: int) -> None:
        """Close a pipe."""
        known = self._pipes.get(pipe)
        if known is not None:
            try:
                known.close()
            except pynng.exceptions.NNGException:
                # It went by itself, and a frame of it that was still queued brought us here.
                self._pipes.pop(pipe, None)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._fileno

    def close(self) -> None:
        """Close every pipe and stop listening."""
        if not self._closing.is_set():
            self._closing.set()
            self._socket.close()
