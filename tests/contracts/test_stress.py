"""The transport rule under stress: many sessions, bursts, broken pipes, readers that dawdle.

Every message is numbered, both ways; each side demands the very next number. So a message that
is lost, doubled or out of order fails the test, with its seed.
"""

import multiprocessing
import os
import random
import select
import time
from pathlib import Path

import pytest
from support.processes import make_certificate

from federation.messages.messages import Answer, Ask, Hello
from federation.sessions.handshake import Dialogue, Opened, SharedSecret
from federation.sessions.nng import NngLink, NngPort
from federation.transport import TlsSettings
from gateway.config.limits import ListenerLimits
from gateway.sessions.listener import PeerCameIn, PeerLeft, PeerSaid, SessionListener

pytestmark = pytest.mark.real

RULES = ListenerLimits(heartbeat_s=0.5, grace_s=60.0)


def nothing():
    """The loops below look for themselves."""


class Talker:
    """A dialler that sends bursts, expects bursts, breaks its pipe and dawdles, by its seed."""

    def __init__(self, name, address, tls, seed, messages):
        self.chance = random.Random(seed)
        self.dialogue = Dialogue(
            hello=Hello([], "client", name, "u", b"", "", 0, {}),
            credentials=SharedSecret(""),
            random_bytes=os.urandom,
        )
        self.address, self.tls, self.messages = address, tls, messages
        self.sent = self.got = self.breaks = 0
        self.deaf_until_s = 0.0
        self.link = None
        self.dial()

    def dial(self):
        self.link = NngLink(self.address, nothing, self.tls)
        self.greeted = False

    @property
    def is_done(self):
        session = self.dialogue.session
        told = self.sent == self.got == self.messages and session is not None and session.is_idle
        return told and self.breaks > 0

    def step(self, now_s):
        due = self.breaks == 0 and self.got > self.messages // 3
        if self.link.is_lost or due or self.chance.random() < 0.0005:
            self.link.close()
            self.dialogue.lost()
            self.breaks += 1
            self.dial()
            return
        if self.link.is_up and not self.greeted:
            self.greeted = True
            self.dialogue.connected(now_s)
        if self.dialogue.is_open and self.sent < self.messages and self.chance.random() < 0.3:
            burst = min(self.chance.choice((1, 2, 10, 200)), self.messages - self.sent)
            for _ in range(burst):
                self.dialogue.post(Ask(self.sent, "v", {"pad": "x" * self.chance.choice((0, 50))}))
                self.sent += 1
        if now_s < self.deaf_until_s:
            return
        if self.chance.random() < 0.002:
            self.deaf_until_s = now_s + 0.2
        for frame in self.link.receive():
            for message in self.dialogue.receive(frame, now_s):
                if isinstance(message, Opened):
                    assert message.resumed or not self.got
                elif isinstance(message, Answer):
                    assert message.request == self.got
                    self.got += 1
        self.dialogue.flush(self.link.send, now_s)


def talk(address, tls, seeds, messages, report):
    """A process full of talkers; reports the number of broken pipes, or an error."""
    try:
        talkers = [Talker(f"t{seed}", address, tls, seed, messages) for seed in seeds]
        until_s = time.monotonic() + 1500
        while not all(talker.is_done for talker in talkers):
            assert time.monotonic() < until_s, [(t.sent, t.got) for t in talkers if not t.is_done]
            now_s = time.monotonic()
            for talker in talkers:
                talker.step(now_s)
            time.sleep(0.0005)
        for talker in talkers:
            talker.link.close()
        report.put((sum(talker.breaks for talker in talkers), ""))
    except BaseException as error:
        report.put((0, f"{type(error).__name__}: {error}"))
        raise


def serve(port, sessions, messages, process):
    """Echo every message, and demand that each is the next of its sender."""
    listener = SessionListener(port, RULES)
    expected = {}
    tick_s = 0.0
    while process.is_alive():
        select.select([port.fileno()], [], [], 0.02)
        now_s = time.monotonic()
        news = []
        for pipe, frame in port.receive():
            news += listener.receive(pipe, frame, now_s)
        listener.pipes_gone(port.gone(), now_s)
        if now_s - tick_s > 0.05:
            tick_s = now_s
            news += listener.tick(now_s)
        for item in news:
            match item:
                case PeerCameIn(peer):
                    expected[peer.handle] = 0
                case PeerSaid(peer, message):
                    assert message.request == expected[peer.handle]
                    expected[peer.handle] += 1
                    listener.post(peer, Answer(message.request, "", "", None))
                case PeerLeft(peer, reason):  # one that nobody has used lapses
                    assert not expected[peer.handle], f"a session was lost: {reason}"
        listener.flush(now_s)
    # A pipe that broke before its welcome arrived leaves a session that nobody has ever used.
    used = [count for count in expected.values() if count]
    assert used == [messages] * sessions


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run(scheme, sessions, messages, tmp_path):
    seed = int(os.environ.get("GRIDFED_SEED", "0")) or random.randrange(1 << 32)
    print(f"GRIDFED_SEED={seed}")
    tls = client_tls = None
    address = f"{scheme}://127.0.0.1:0" if scheme != "ipc" else f"ipc://{tmp_path}/port.sock"
    if scheme == "tls+tcp":
        both, alone = make_certificate(tmp_path)
        tls = TlsSettings(certificate_file=both)
        client_tls = TlsSettings(ca_file=alone, server_name="localhost")
    port = NngPort([address], nothing, tls)
    context = multiprocessing.get_context("spawn")
    report = context.SimpleQueue()
    seeds = [seed + at for at in range(sessions)]
    arguments = (port.addresses[0], client_tls, seeds, messages, report)
    process = context.Process(target=talk, args=arguments)
    before = resident_bytes()
    process.start()
    try:
        serve(port, sessions, messages, process)
    finally:
        process.kill() if process.is_alive() else None
        process.join()
        port.close()
    breaks, wrong = report.get()
    grown = resident_bytes() - before
    print(f"{sessions} sessions, {sessions * messages:,} messages each way, {breaks} broken pipes,")
    print(f"{grown >> 20} MiB grown")
    assert not wrong
    assert breaks >= sessions
    assert grown < 300 << 20


@pytest.mark.parametrize(
    "scheme",
    [*(pytest.param(each, marks=pytest.mark.thorough) for each in ("ipc", "tcp")), "tls+tcp"],
)
def test_nothing_is_lost_or_doubled(scheme, tmp_path):
    run(scheme, 20, 1000, tmp_path)


@pytest.mark.stress
@pytest.mark.parametrize("scheme", ["ipc", "tcp", "tls+tcp"])
def test_a_million_messages_over_200_sessions(scheme, tmp_path):
    run(scheme, 200, 5000, tmp_path)
