"""One contract for every transport: nng over tcp, ipc and tls, and the one in memory."""

import os
import select
import socket
import ssl
import time
from dataclasses import replace

import pytest
from support.processes import Relay, make_certificate, wait_until

from federation.address import AddressError
from federation.sessions.memory import MemoryPort
from federation.sessions.nng import NngLink, NngPort
from federation.sessions.session import RECEIVE_BYTES_MAX
from federation.transport import GONE, Origin, TlsSettings

pytestmark = pytest.mark.real

DEADLINE_S = 200.0


class Ends:
    """A port, and links to it, with waiting."""

    def __init__(self, port, dial):
        self.port = port
        self._dial = dial
        self._links = []

    def dial(self):
        link = self._dial()
        self._links.append(link)
        wait_until(lambda: link.is_up)
        return link

    def close(self):
        for link in self._links:
            link.close()
        self.port.close()


def receive(end, count):
    got = []
    until = time.monotonic() + DEADLINE_S
    while len(got) < count:
        assert time.monotonic() < until, f"{len(got)} frames of {count}"
        select.select([end.fileno()], [], [], 0.1)
        got += end.receive()
    return got


def nothing():
    """A callback that needs to do nothing: the tests look for themselves."""


@pytest.fixture(params=["memory", "ipc", "tcp", "tls+tcp"])
def ends(request, tmp_path):
    if request.param == "memory":
        port = MemoryPort()
        made = Ends(port, port.dial)
    else:
        tls = client_tls = None
        address = f"{request.param}://127.0.0.1:0"
        if request.param == "ipc":
            address = f"ipc://{tmp_path}/port.sock"
        if request.param == "tls+tcp":
            both, alone = make_certificate(tmp_path)
            tls = TlsSettings(certificate_file=both)
            client_tls = TlsSettings(ca_file=alone, server_name="localhost")
        port = NngPort([address], nothing, tls)
        made = Ends(port, lambda: NngLink(port.addresses[0], nothing, client_tls))
    yield made
    made.close()


def test_frames_arrive_in_order_and_know_their_pipe(ends):
    one, other = ends.dial(), ends.dial()
    for at in range(5):
        assert one.send(b"one %d" % at)
        assert other.send(b"other %d" % at)
    by_pipe = {}
    for pipe, frame in receive(ends.port, 10):
        by_pipe.setdefault(pipe, []).append(frame)
    assert sorted(by_pipe.values()) == [
        [b"one %d" % at for at in range(5)],
        [b"other %d" % at for at in range(5)],
    ]


def test_an_answer_goes_to_the_pipe_it_is_for(ends):
    one, other = ends.dial(), ends.dial()
    one.send(b"1")
    other.send(b"2")
    for pipe, frame in receive(ends.port, 2):
        assert ends.port.send(pipe, b"answer to " + frame)
    assert receive(one, 1) == [b"answer to 1"]
    assert receive(other, 1) == [b"answer to 2"]


def test_a_full_frame_passes(ends):
    link = ends.dial()
    frame = bytes(range(256)) * (RECEIVE_BYTES_MAX // 256)
    assert link.send(frame)
    ((pipe, got),) = receive(ends.port, 1)
    assert got == frame
    ends.port.send(pipe, frame)
    assert receive(link, 1) == [frame]


def test_a_closed_link_is_gone_and_cannot_be_sent_to(ends):
    link = ends.dial()
    link.send(b"hello")
    ((pipe, _),) = receive(ends.port, 1)
    link.close()
    gone = []
    wait_until(lambda: gone.extend(ends.port.gone()) or gone == [pipe])
    assert ends.port.send(pipe, b"late") is False


def test_a_dropped_pipe_is_lost_to_its_link(ends):
    link = ends.dial()
    link.send(b"hello")
    ((pipe, _),) = receive(ends.port, 1)
    ends.port.drop(pipe)
    wait_until(lambda: link.is_lost)
    assert link.send(b"late") is False


def test_nothing_there_is_an_empty_list(ends):
    link = ends.dial()
    assert link.receive() == []
    assert ends.port.receive() == []
    assert ends.port.gone() == []


def test_closing_twice_is_closing_once(ends):
    link = ends.dial()
    link.close()
    link.close()
    ends.port.close()
    ends.port.close()


@pytest.mark.parametrize("address", ["ws://127.0.0.1:0", "wss://127.0.0.1:0", "localhost:5", ""])
def test_other_transports_are_refused(address):
    with pytest.raises(AddressError, match="must start with"):
        NngPort([address], nothing)
    with pytest.raises(AddressError, match="must start with"):
        NngLink(address, nothing)


@pytest.mark.parametrize("scheme", ["tcp", "tls+tcp", "ipc"])
def test_a_link_that_dials_once_knows_that_nobody_listens(scheme, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unused.getsockname()[1]}"
        place = f"{tmp_path}/none.sock" if scheme == "ipc" else place
        link = NngLink(f"{scheme}://{place}", nothing, once=True)
        try:
            wait_until(lambda: link.is_lost)
            assert link.is_absent
            assert not link.is_up
        finally:
            link.close()


def test_a_link_that_dials_once_is_a_link_like_any_other(tmp_path):
    port = NngPort([f"ipc://{tmp_path}/port.sock"], nothing)
    link = NngLink(port.addresses[0], nothing, once=True)
    try:
        wait_until(lambda: link.is_up)
        assert link.send(b"hello")
        assert [frame for _, frame in receive(port, 1)] == [b"hello"]
    finally:
        link.close()
        port.close()


def test_an_address_in_use_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(AddressError, match="can't listen"):
            NngPort([f"tcp://127.0.0.1:{taken.getsockname()[1]}"], nothing)


def test_a_stale_socket_file_is_taken_over(tmp_path):
    path = tmp_path / "port.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    NngPort([f"ipc://{path}"], nothing).close()


def test_an_oversized_frame_costs_its_sender_the_pipe(tmp_path):
    port = NngPort([f"ipc://{tmp_path}/port.sock"], nothing)
    ends = Ends(port, lambda: NngLink(port.addresses[0], nothing))
    try:
        link = ends.dial()
        link.send(bytes(RECEIVE_BYTES_MAX + 65))
        wait_until(lambda: link.is_lost)
        assert port.receive() == []
    finally:
        ends.close()


def test_a_gateway_with_another_certificate_is_not_believed(tmp_path):
    both, _ = make_certificate(tmp_path)
    _, other = make_certificate(tmp_path, "other")
    port = NngPort(["tls+tcp://127.0.0.1:0"], nothing, TlsSettings(certificate_file=both))
    with Relay(port.addresses[0]) as relay:
        tls = TlsSettings(ca_file=other, server_name="localhost")
        refused = NngLink(relay.address, nothing, tls)
        try:
            wait_until(lambda: relay.cut >= 2, "the refusal")
            assert not refused.is_lost, "it was up, then"
            assert not refused.is_up
        finally:
            refused.close()
            port.close()


def test_a_dialler_without_a_certificate_is_refused_where_one_is_asked_for(tmp_path):
    both, alone = make_certificate(tmp_path)
    _, guest = make_certificate(tmp_path, "guest")
    port = NngPort(
        ["tls+tcp://127.0.0.1:0"], nothing, TlsSettings(certificate_file=both, ca_file=guest)
    )
    with Relay(port.addresses[0]) as relay:
        tls = TlsSettings(ca_file=alone, server_name="localhost")
        link = NngLink(relay.address, nothing, tls)

        def is_cut_twice():
            if link.is_up:
                link.send(b"let me in")
            assert port.receive() == []
            return relay.cut >= 2

        try:
            wait_until(is_cut_twice, "the refusal")
        finally:
            link.close()
            port.close()


def test_a_pipe_that_says_nothing_is_known_and_can_be_dropped(ends):
    links = [ends.dial(), ends.dial()]
    came = []
    wait_until(lambda: came.extend(ends.port.came()) or len(came) == 2, "the pipes")
    ends.port.drop(came[0])
    wait_until(lambda: any(link.is_lost for link in links), "the drop")
    gone = []
    wait_until(lambda: gone.extend(ends.port.gone()) or gone, "the news of it")
    assert gone == came[:1]
    assert not all(link.is_lost for link in links)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_3_alone_is_spoken_whose_ciphers_all_authenticate(version, tmp_path):
    both, alone = make_certificate(tmp_path)
    port = NngPort(["tls+tcp://127.0.0.1:0"], nothing, TlsSettings(both))
    where = "127.0.0.1", int(port.addresses[0].rpartition(":")[2])
    context = ssl.create_default_context(cafile=alone)
    context.minimum_version = context.maximum_version = version
    try:
        with socket.create_connection(where, timeout=DEADLINE_S) as plain:
            if version is ssl.TLSVersion.TLSv1_2:
                with pytest.raises(ssl.SSLError):
                    context.wrap_socket(plain, server_hostname="localhost")
            else:
                with context.wrap_socket(plain, server_hostname="localhost") as made:
                    assert made.cipher()[0].startswith("TLS_")
    finally:
        port.close()


@pytest.mark.parametrize(
    ("scheme", "origin"),
    [
        ("ipc", Origin(uid=os.geteuid())),
        ("tcp", Origin("127.0.0.1")),
        ("tls+tcp", Origin("127.0.0.1")),
    ],
)
def test_a_pipe_knows_where_it_comes_from(scheme, origin, tmp_path):
    both, alone = make_certificate(tmp_path)
    where = str(tmp_path / "s") if scheme == "ipc" else "127.0.0.1:0"
    port = NngPort([f"{scheme}://{where}"], nothing, TlsSettings(both))
    link = NngLink(port.addresses[0], nothing, TlsSettings(None, alone, "localhost"))
    found = []
    wait_until(lambda: found.extend(port.came()) or found)
    assert replace(port.origin(found[0]), port=0) == origin
    link.close()
    wait_until(port.gone)
    assert port.origin(found[0]) == GONE
    port.close()
