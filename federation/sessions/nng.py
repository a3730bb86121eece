"""The transport over real sockets: pynng, its descriptors polled, never awaited.

pynng's own `asend` and `arecv` cost a thread hop a message and leak on failure; its descriptors
cost neither (docs/protocol.md has the figures). Only `tcp://`, `tls+tcp://` and `ipc://` are
allowed: nng 1.11 aborts the whole process when a websocket client connects and closes at once.

A link uses a socket for one pipe only and then discards it, so that no frame queued for a lost pipe
can ever be sent on its successor ahead of the handshake.
"""

import atexit
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pynng

from federation.address import AddressError, check_address, host_and_port, plain_ip
from federation.errors import GridError
from federation.files import read_regular
from federation.sessions.session import RECEIVE_BYTES_MAX
from federation.transport import GONE, TLS_BYTES_MAX, Origin, TlsSettings

_NNG_MAX: Final = RECEIVE_BYTES_MAX + 64  # nng includes its own header
_LINK_QUEUE: Final = 64
_SEND_QUEUE: Final = 8192  # the most that nng allows
_BATCH_MAX: Final = 256  # frames taken in one `receive`, so that no pipe starves
PROBE_S: Final = 1.0
ANSWERS_NOT: Final = "the peer at that address accepts connections but does not answer as a gateway"
# nng passes each step of a frame's way to a pool of threads, by default two a core and at least
# four, which wake each other over one lock. A lone frame by TLS costs 313 µs of CPU at one end with
# four of them and 201 with two, the minimum for nng.
_TASK_THREADS: Final = 2
# The process at the other end of an ipc pipe: options of nng that pynng does not name.
_CALLER: Final = (b"ipc:peer-uid", b"ipc:peer-pid")
_NNG_END: Final[Any] = getattr(pynng.nng, "_pynng_atexit", None)
_process_with_nng: int | None = None


class ForkedProcessError(GridError):
    """nng can't be used in a child forked from a process that has used it."""


def explain_silence(address: str, certificate_name: str = "") -> str:
    """Explain why no gateway answers at an address: is there a listener, and of which kind?

    `certificate_name` is what its certificate must have, if that is not the host of the address.
    nng reports no reason for a failed connection. Waits PROBE_S at most.
    """
    if address.startswith("ipc://"):
        return _explain_socket(address.removeprefix("ipc://"))
    host, port = host_and_port(address)
    try:
        socket.create_connection((host, int(port)), PROBE_S).close()
    except OSError as error:
        return f"connection failed ({error.strerror or error})"
    if address.startswith("tls+tcp://"):
        return (
            "the TLS handshake fails: check the CA file (--tls-ca-file), the gateway's "
            f"certificate, which must have the name {certificate_name or host} "
            "(--tls-server-name), and whether the gateway requires a client certificate "
            "(--tls-certificate-file); in Python, Client(tls=TlsSettings(...))"
        )
    return f"{ANSWERS_NOT}: check whether it expects tls+tcp://, is stopped, or is not a gateway"


def is_refused(address: str) -> bool:
    """Whether the host of an address says that nothing listens there. Waits PROBE_S at most."""
    path = address.removeprefix("ipc://")
    try:
        if path != address:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PROBE_S)
                probe.connect(path)
        else:
            host, port = host_and_port(address)
            socket.create_connection((host, int(port)), PROBE_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _explain_socket(path: str) -> str:
    if not os.path.exists(path):
        return "the socket does not exist"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(path)
        except OSError:
            return "no process listens on the socket any more"
    return f"{ANSWERS_NOT}: it is stopped (SIGSTOP), or overloaded"


class _Socket(pynng.Pair1):  # type: ignore[misc]
    """A socket that a forked child leaves alone, even when it is garbage-collected there."""

    def __init__(self, **options: Any) -> None:
        self._owner = os.getpid()
        super().__init__(**options)

    def close(self) -> None:
        """Close it in the process that opened it; in a fork of that nng would abort."""
        if os.getpid() == self._owner:
            super().close()


def _claim_process() -> None:
    """Refuse to open a socket in a forked child: nng would abort the whole process."""
    global _process_with_nng
    pid = os.getpid()
    if _process_with_nng is None:
        _process_with_nng = pid
        limit_threads()
        # pynng makes nng clean up at exit. In a forked child that waits for ever for nng's threads,
        # which are in the parent.
        os.register_at_fork(after_in_child=lambda: atexit.unregister(_NNG_END))
    elif _process_with_nng != pid:
        raise ForkedProcessError(
            "this process was forked from a process with a connection to a gateway, which "
            "nng does not support. Start children with "
            'multiprocessing.get_context("spawn").'
        )


def limit_threads() -> None:
    """Make nng use few threads in this process; no effect once nng is in use."""
    pynng.lib.nng_init_set_parameter(pynng.lib.NNG_INIT_NUM_TASK_THREADS, _TASK_THREADS)


def _poll_of(descriptor: int) -> select.poll:
    """Return a poll for more input, at a sixth of the cost of a receive in vain by nng."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll


def _dialler_tls(settings: TlsSettings, address: str) -> Any:
    return _tls(
        settings,
        mode=pynng.TLSConfig.MODE_CLIENT,
        auth_mode=pynng.TLSConfig.AUTH_MODE_REQUIRED,
        server_name=settings.server_name or host_and_port(address)[0],
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
    """Return nng's own settings; AddressError names the file that is unusable."""
    ca_file, certificate_file = _readable(settings.ca_file), _readable(settings.certificate_file)
    try:
        made = pynng.TLSConfig(
            ca_files=[ca_file] if ca_file else None, cert_key_file=certificate_file, **terms
        )
        # nng does not let its users choose ciphers. Those of TLS 1.3 are few, and all authenticate;
        # with 1.2 it would accept Camellia and CBC as well. pynng exposes this call without a name.
        only = pynng.lib.NNG_TLS_1_3
        pynng.check_err(pynng.lib.nng_tls_config_version(made._tls_config, only, only))
        return made
    except pynng.exceptions.NNGException as error:
        files = [
            what
            for what in (
                certificate_file and f"the certificate and its key in {certificate_file}",
                ca_file and f"certificates in {ca_file}",
            )
            if what
        ]
        raise AddressError(
            f"TLS files can't be used ({error}): expected, in PEM format, {' and '.join(files)}"
        ) from error


def _readable(name: str | None) -> str | None:
    if not name:
        return None
    path = Path(name).expanduser()
    try:
        read_regular(path, TLS_BYTES_MAX)
    except OSError as error:
        raise AddressError(f"TLS file {path}: {error.strerror}") from None
    return str(path)


def _origin_of(pipe: Any) -> Origin:
    remote = pipe.remote_address
    if not isinstance(remote, pynng.sockaddr.InAddr | pynng.sockaddr.In6Addr):
        return Origin()
    text, _, port = str(remote).rpartition(":")
    host = plain_ip(text.strip("[]"))
    is_tls = str(pipe.url).startswith("tls+tcp://")
    return Origin(str(host), int(port), is_private=is_tls or host.is_loopback)


class NngLink:
    """The dialling end over nng; see federation.transport.Link.

    Args:
        address: the address of the gateway.
        on_change: called, from a thread of nng's, when the pipe comes up or is lost.
        tls: needed for tls+tcp.
        once: try once, and be lost when that fails, instead of dialling until it succeeds. nng
            reports the result only to a caller that waits: a thread is used for that time.

    Attributes:
        is_absent: nothing listens at the address; known only of a link that dials `once`.
    """

    def __init__(
        self,
        address: str,
        on_change: Callable[[], None],
        tls: TlsSettings | None = None,
        *,
        once: bool = False,
    ) -> None:
        check_address(address)
        _claim_process()
        self.is_up = False
        self.is_lost = False
        self.is_absent = False
        self._closed = False
        self._dialling: threading.Thread | None = None
        self._on_change = on_change
        self._socket = _Socket(
            recv_max_size=_NNG_MAX,
            recv_buffer_size=16,
            # A window of frames, heartbeats and acknowledgements: with room for them all, a send
            # never has to wait. The socket is discarded with its pipe and its queue.
            send_buffer_size=_LINK_QUEUE,
            reconnect_time_min=50,
            reconnect_time_max=1000,
        )
        try:
            if address.startswith("tls+tcp://"):
                self._socket.tls_config = _dialler_tls(tls or TlsSettings(), address)
            self._socket.add_post_pipe_connect_cb(self._came_up)
            self._socket.add_post_pipe_remove_cb(self._went)
            self._fileno = int(self._socket.recv_fd)
            self._poll = _poll_of(self._fileno)
            if once:
                self._dialling = threading.Thread(
                    target=self._dial_once, args=(address,), name="gridfed-dial", daemon=True
                )
                self._dialling.start()
            else:
                self._socket.dial(address, block=False)
        except AddressError:
            self._socket.close()
            raise
        except pynng.exceptions.NNGException as error:
            self._socket.close()
            raise AddressError(f"can't dial {address}: {error}") from error

    def _dial_once(self, address: str) -> None:
        try:
            self._socket.dial(address, block=True)
        except pynng.exceptions.NNGException as error:
            self.is_absent = isinstance(error, pynng.ConnectionRefused)
            self.is_lost = True
            if not self._closed:
                self._on_change()

    def _came_up(self, _pipe: Any) -> None:
        if self.is_lost:
            return  # nng has dialled again by itself: that pipe must not be used
        self.is_up = True
        self._on_change()

    def _went(self, _pipe: Any) -> None:
        self.is_up = False  # first: a thread that sees `is_lost` must not be able to send
        self.is_lost = True
        self._on_change()

    def receive(self) -> list[bytes]:
        """Return the frames that have arrived."""
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
        """Send a frame, if the pipe is up and can take one."""
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
        """Return the descriptor to poll."""
        return self._fileno

    def close(self) -> None:
        """Close the socket."""
        if not self._closed:
            self._closed = True
            self.is_up = False
            self._socket.close()
            if self._dialling is not None:
                self._dialling.join()  # at once: the dial fails, as its socket is closed


class NngPort:
    """The listening end over nng; see federation.transport.Port.

    Args:
        addresses: where to listen; port 0 takes a free one.
        on_change: called, from a thread of nng's, when a pipe has come or is gone.
        tls: needed for tls+tcp.
        is_owner: whether a process of this host, given its user and process id, has the rights of
            our own user; called once a pipe. By default any process of our user.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        on_change: Callable[[], None],
        tls: TlsSettings | None = None,
        is_owner: Callable[[int, int], bool] = lambda uid, _pid: uid in (0, os.geteuid()),
    ) -> None:
        _claim_process()
        self._is_owner = is_owner
        self._owned: dict[int, bool] = {}  # by pipe
        self._pipes: dict[int, Any] = {}
        self._origins: dict[int, Origin] = {}
        self._came: deque[Any] = deque()
        self._gone: deque[int] = deque()
        self._closing = threading.Event()
        self._on_change = on_change
        # Frames pass through one queue of the socket on their way to the pipes' own, which hold two
        # each. This one must never be full: under the transport rule two frames a pipe.
        self._socket = _Socket(
            polyamorous=True,
            recv_max_size=_NNG_MAX,
            recv_buffer_size=64,
            send_buffer_size=_SEND_QUEUE,
        )
        self.addresses: list[str] = []
        try:
            self._socket.add_post_pipe_connect_cb(self._arrived)
            self._socket.add_post_pipe_remove_cb(self._went)
            self._open(addresses, tls)
            self._fileno = int(self._socket.recv_fd)
            self._poll = _poll_of(self._fileno)
        except (pynng.exceptions.NNGException, GridError):
            self._socket.close()
            raise

    def _open(self, addresses: Sequence[str], tls: TlsSettings | None) -> None:
        for address in addresses:
            check_address(address)
            if address.startswith("tls+tcp://"):
                self._socket.tls_config = _listener_tls(tls or TlsSettings())
            self.addresses.append(self._listen(address))

    def reopen(self, tls: TlsSettings) -> None:
        """Listen at the same addresses with other certificates; every pipe is closed.

        nng reads certificates when a listener is made, and closes the pipes of a listener that
        ends. Sessions continue over new pipes.

        Raises:
            AddressError: another process has taken an address by now, or a file can't be read.
        """
        addresses, self.addresses = self.addresses, []
        for listener in self._socket.listeners:
            listener.close()
        try:
            self._open(addresses, tls)
        except (pynng.exceptions.NNGException, GridError) as error:
            self.addresses = addresses
            raise AddressError(f"can't listen again: {error}") from error

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

    def _arrived(self, pipe: Any) -> None:
        self._came.append(pipe)
        self._on_change()

    def _went(self, pipe: Any) -> None:
        self._gone.append(pipe.id)
        if not self._closing.is_set():
            self._on_change()

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the frames that have arrived, each with its pipe."""
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
        """Send a frame on a pipe."""
        known = self._pipes.get(pipe)
        if known is None:
            return False
        try:
            self._socket.send_msg(pynng.Message(frame, known), block=False)
        except pynng.exceptions.NNGException:
            return False
        return True

    def came(self) -> list[int]:
        """Return the pipes that were made since the last call."""
        pipes = []
        while self._came:
            pipe = self._came.popleft()
            self._pipes[pipe.id] = pipe
            pipes.append(pipe.id)
        return pipes

    def is_local(self, pipe: int) -> bool:
        """Whether a pipe came by an ipc address, from our own user, and not from a slot.

        The kernel records the connecting process. Its record is read at the first call: a process
        may end, and its id later be another's.
        """
        known = self._owned.get(pipe)
        if known is None:
            caller = self._caller(pipe) if self.is_near(pipe) else None
            known = self._owned[pipe] = caller is not None and self._is_owner(*caller)
        return known

    def is_near(self, pipe: int) -> bool:
        """Whether a pipe came by an ipc address."""
        known = self._pipes.get(pipe)
        try:
            return known is not None and isinstance(known.local_address, pynng.sockaddr.IPCAddr)
        except pynng.exceptions.NNGException:
            return False  # it is gone already

    def _caller(self, pipe: int) -> tuple[int, int] | None:
        """Return user and id of the process that connected; None if nng does not know them."""
        found = []
        for option in _CALLER:
            value = pynng.ffi.new("uint64_t *")
            if pynng.lib.nng_pipe_get_uint64(self._pipes[pipe].pipe, option, value):
                return None
            found.append(int(value[0]))
        return found[0], found[1]

    def origin(self, pipe: int) -> Origin:
        """Return the other end of a pipe."""
        found = self._origins.get(pipe)
        if found is None:
            try:
                found = _origin_of(self._pipes[pipe])
                if self.is_near(pipe) and (caller := self._caller(pipe)) is not None:
                    found = replace(found, uid=caller[0])
            except (KeyError, pynng.exceptions.NNGException):
                return GONE
            self._origins[pipe] = found
        return found

    def remotes(self) -> list[tuple[str, int]]:
        """Return host and port of the other end of each tcp pipe."""
        origins = (self.origin(pipe) for pipe in self._pipes)
        return [(each.host, each.port) for each in origins if each.port]

    def gone(self) -> list[int]:
        """Return the pipes that were closed since the last call."""
        pipes = []
        while self._gone:
            pipe = self._gone.popleft()
            self._pipes.pop(pipe, None)
            self._origins.pop(pipe, None)
            self._owned.pop(pipe, None)
            pipes.append(pipe)
        return pipes

    def drop(self, pipe: int) -> None:
        """Close a pipe."""
        known = self._pipes.get(pipe)
        if known is not None:
            try:
                known.close()
            except pynng.exceptions.NNGException:
                # It closed by itself; one of its frames was still queued.
                self._pipes.pop(pipe, None)
                self._origins.pop(pipe, None)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._fileno

    def close(self) -> None:
        """Close every pipe and stop listening."""
        if not self._closing.is_set():
            self._closing.set()
            self._socket.close()
