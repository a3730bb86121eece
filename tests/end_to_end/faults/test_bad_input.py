"""Strangers and vandals at the gateway's door: refused with a reason, and no harm to others."""

import os
import random

import msgpack
import pytest
from support.vandal import Vandal

from federation.errors import GridError, SessionRefused
from federation.messages import messages
from federation.messages.messages import HANDSHAKE, MESSAGES, Hello
from federation.messages.wire import pack
from federation.sessions.session import RECEIVE_BYTES_MAX

pytestmark = pytest.mark.real


def square(x):
    return x * x


@pytest.fixture
def vandal(shared_site):
    made = Vandal(shared_site.address)
    yield made
    made.leave()
    with shared_site.client() as client:
        assert client.submit(square, 12).result(timeout=300) == 144


def hello(**changes):
    fields = {
        "versions": [1],
        "role": "client",
        "name": "n",
        "user": "u",
        "nonce": bytes(16),
        "resume": "",
        "received": 0,
        "about": {},
    }
    return HANDSHAKE.encode(Hello(**(fields | changes)))


SEED = random.randrange(1 << 32)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (random.Random(SEED).randbytes(500), "protocol"),
        (b"", "protocol"),
        (hello()[:-5], "protocol"),
        (b"\xdd\xff\xff\xff\xff", "protocol"),
        (b"\x81" * 60_000, "protocol"),
        (pack([1, 0, []]), "protocol"),
        (pack({"t": "from the future"}), "protocol"),
        (HANDSHAKE.encode(messages.Proof(b"")), "protocol"),
        (hello(versions=[7, 99]), "version"),
        (hello(role="king"), "role"),
        (hello(nonce=b"short"), "nonce"),
        (hello(name="n" * 5000), "name"),
        (hello(name="a\0b"), "protocol"),
        (hello(name="a\nb"), "name"),
        (hello(user="a\nb"), "name"),
    ],
)
def test_what_is_no_greeting_is_refused_with_the_reason(vandal, frame, code):
    print(f"seed {SEED}")
    vandal.link.send(frame)
    answer = HANDSHAKE.decode(vandal.answer(), 1 << 16)
    assert isinstance(answer, messages.Refused)
    assert answer.code == code
    assert answer.reason
    vandal.wait(lambda: vandal.link.is_lost)


def test_an_oversized_frame_costs_the_pipe(vandal):
    vandal.link.send(bytes(RECEIVE_BYTES_MAX + 100))
    vandal.wait(lambda: vandal.link.is_lost)


@pytest.mark.parametrize(
    "frame",
    [
        b"\x93\x01",
        os.urandom(300),
        pack([5, 0, []]),
        pack([1, 99, []]),
        pack([1, 0, [b"\xc1"]]),
        pack([1, 0, [pack({"t": "tasks", "job": 5})]]),
        pack([1, 0, [msgpack.packb({"t": "results", "job": "j", "first": 0, "values": [],
                                    "failures": [], "prints": []})]]),
        pack([1, 0, [MESSAGES.encode(messages.Cancel(1, "j", [[5, 2]], False))]]),
        pack([1, 0, [MESSAGES.encode(messages.PutFunction(bytes(32), b"another"))]]),
    ],
)  # fmt: skip
def test_a_peer_that_breaks_the_protocol_is_expelled(vandal, frame):
    vandal.come_in()
    vandal.link.send(frame)
    assert "protocol error" in vandal.expect_expulsion()


def test_an_unknown_message_is_answered_and_ignored(vandal):
    dialogue = vandal.come_in()
    dialogue.session.post(pack({"t": "from the future", "x": 1}))
    dialogue.flush(vandal.link.send, 0.0)
    got = []
    while not got:
        got = dialogue.receive(vandal.answer(), 0.0)
    assert got == [messages.Unknown("from the future")]


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"slots": 0, "pool": "local", "python": "3.11"},
        {"slots": 10**9, "pool": "local", "python": "3.11"},
        {"slots": 1, "pool": "no such pool", "python": "3.11"},
        {"slots": 1, "pool": "local", "python": 3},
        {"slots": 1, "pool": "local", "python": "3.11", "tags": {"gpu": float("nan")}},
        {"slots": 1, "pool": "local", "python": "3.11", "tags": {"gpu": [1]}},
    ],
)
def test_a_worker_that_makes_no_sense_is_not_let_in(vandal, about):
    with pytest.raises(SessionRefused, match=r"slots|pool|Python|tag"):
        vandal.come_in("worker", about)
    vandal.dialogue = None


def test_a_worker_that_reports_what_it_was_not_given_harms_nobody(make_site):
    site = make_site(1)
    vandal = Vandal(site.address)
    dialogue = vandal.come_in("worker", {"slots": 1, "pool": "local", "python": "0.0"})
    dialogue.post(messages.Report(12345, 0, [b"x"], [], [], 1, 1, 1))
    dialogue.flush(vandal.link.send, 0.0)
    with site.client() as client:
        assert client.submit(square, 12).result(timeout=300) == 144
    vandal.leave()


def test_a_job_that_makes_no_sense_is_rejected(vandal):
    dialogue = vandal.come_in()
    opening = messages.OpenJob(
        "j",
        "n\x1b[31m",
        bytes(32),
        False,
        "p",
        0.0,
        {},
        None,
        0,
        None,
        "",
        "3.11",
        False,
        False,
        {},
    )
    dialogue.post(opening)
    dialogue.flush(vandal.link.send, 0.0)
    got = []
    while not got:
        got = [m for m in dialogue.receive(vandal.answer(), 0.0) if hasattr(m, "code")]
    assert got[0].code == "bad-request"
    assert "printable" in got[0].reason


def test_the_secret_is_asked_for_and_both_sides_prove_it(make_site, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    site = make_site(1, config=f'[site]\nsecret_file = "{secret}"\n')
    with site.client(secret="open sesame") as client:
        assert client.submit(square, 3).result(timeout=300) == 9
    with pytest.raises(SessionRefused, match="GRIDFED_SECRET"):
        site.client(secret="wrong")
    with pytest.raises(SessionRefused, match="secret"):
        site.client(secret="")


def test_a_gateway_that_others_can_reach_must_have_a_secret(tmp_path):
    import subprocess
    import sys

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gateway",
            "gateway",
            "--listen",
            "tcp://0.0.0.0:0",
            "--state",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "GRIDFED_SECRET": ""},
    )
    assert done.returncode != 0
    assert "secret_file" in done.stderr


@pytest.mark.parametrize(
    "details",
    [
        {"python": ["3.11"]},
        {"function": [b"x"] * 32},
        {"tasks": 2**40, "task_s": 1e8},
        {"tags": 5},
        {"wishes": {"sites": 3}},
        {"priority": "high"},
    ],
    ids=["python", "function", "cost", "tags", "sites", "priority"],
)
def test_a_question_that_makes_no_sense_ends_nobody(client, details):
    with pytest.raises(GridError):
        client.ask("explain", **details)
    assert client.ask("status")


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_question_with_a_text_that_no_database_holds_is_refused_and_the_client_goes_on(
    client, text
):
    for details in ({"sites": [text]}, {"site": text, "reference": text}):
        with pytest.raises(GridError, match=r"NUL|surrogates not allowed"):
            client.ask("statement", **details)
    assert client.ask("statement")["rows"] == []
