"""The fuzzer sends the messages that it should, and its checks can fail."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from fuzz import run
from fuzz.judging import CHECKS, HANG_S, Done, FuzzFacts, Sample, judge
from fuzz.report import markdown
from fuzz.roles import ClientRole, WorkerRole
from fuzz.tally import Tally
from fuzz.values import BY_TYPE, Level, broken
from fuzz.vocabulary import mutated, odd_frame

from federation.errors import ProtocolError
from federation.messages.messages import MESSAGES
from federation.messages.wire import CHECKS as WIRE_CHECKS
from federation.messages.wire import pack
from federation.sessions.session import Session

BYTES_MAX = 1 << 26
SAMPLE = Sample(0.0, 100 << 20, 12, 40, 1_000, 18, 1 << 20)
MORE = {
    "rss_bytes": 300 << 20,
    "threads": 90,
    "descriptors": 300,
    "log_bytes": 9 << 20,
    "files": 90,
}


@pytest.fixture
def facts():
    """A run in which all was well."""
    return FuzzFacts(
        tallies={"client": Tally(9, 8, 1, Counter(busy=1), Counter(), Counter(answer=3))},
        done=[Done("home", 0.1), Done("home", 0.2)],
        after=[Done("home", 0.2)],
        ways=["home"],
        codes={"london": 0},
        audits={"london": ""},
        samples={"london": [replace(SAMPLE, at_s=float(each)) for each in range(9)]},
        warm_s=2.0,
        logs={"london": "2026-11-24T04:08:13Z berlin: protocol error: 'hold': ValueError\n"},
    )


def violated(facts):
    return {name for name, found in judge(facts).items() if found}


def test_nothing_is_found_where_all_is_well(facts):
    assert violated(facts) == set()
    assert "| client | 9 | 8 | 1 | 1 | 0 | 3 |" in markdown(facts, judge(facts), 3.0, "")


def test_without_messages_each_look_is_shown(facts):
    shown = markdown(replace(facts, tallies={}), {}, 3.0, "")
    assert "| london | 0.1 | 100.0 | 12 | 40 | 1 | 1.0 |" in shown


PLANTED = {
    "gateways go on": [{"ended": {"london": -11}}, {"codes": {"london": 1}}],
    "honest work is done": [
        {"done": [Done("home", 1.0, "no result")]},
        {"done": [Done("home", HANG_S + 1)]},
        {"after": []},
        {"ways": ["home", "away"]},
    ],
    "futures end": [{"hanging": ["home: a future has not ended"]}],
    "books are right": [{"audits": {"london": "a transfer without its entry"}}],
    "memory is flat": [
        {"samples": {"london": [SAMPLE, replace(SAMPLE, at_s=9.0, **{each: MORE[each]})]}}
        for each in ("rss_bytes", "threads", "descriptors")
    ],
    "logs and files are bounded": [
        {"samples": {"london": [SAMPLE, replace(SAMPLE, at_s=9.0, **{each: MORE[each]})]}}
        for each in ("log_bytes", "files")
    ],
    "nothing of ours broke": [
        {"logs": {"london": "2026-11-24T04:08:13Z fault: 'hold': KeyError: 1\n"}},
        {"logs": {"london": "Traceback (most recent call last):\n"}},
        {
            "logs": {
                "london": "Z protocol error: 'hold' that this gateway failed to handle: KeyError\n"
            }
        },
    ],
}


@pytest.mark.parametrize(
    ("check", "changes"),
    [(check, changes) for check, planted in PLANTED.items() for changes in planted],
)
def test_each_check_finds_what_is_planted(facts, check, changes):
    if "samples" in changes:
        changes = {**changes, "warm_s": 0.0}
    assert violated(replace(facts, **changes)) == {check}


def test_something_is_planted_for_each_check():
    assert PLANTED.keys() == CHECKS.keys()


def test_values_of_a_type_are_valid_and_broken_ones_are_not():
    chance = random.Random(1)
    for kind, levels in BY_TYPE.items():
        for _ in range(300):
            for draw in levels:
                assert WIRE_CHECKS[kind](value := draw(chance)), (kind, value)
            if kind != "Anything":
                assert not WIRE_CHECKS[kind](broken(kind)(chance)), kind


@pytest.mark.parametrize("role", [lambda: ClientRole("eve"), WorkerRole])
def test_what_a_role_says_can_be_read_and_its_breaches_often_not(role):
    said, chance, kinds = role(), random.Random(1), Counter()
    refused = 0
    for _ in range(2_000):
        for level in (Level.TAME, Level.WILD):
            kinds[type(MESSAGES.decode(said.say(chance, level), BYTES_MAX))] += 1
        try:
            MESSAGES.decode(said.breach(chance), BYTES_MAX)
        except ProtocolError:
            refused += 1
    assert len(kinds) >= 7
    assert refused > 1_000


def test_the_same_seed_says_the_same():
    def speech(seed):
        said, chance = WorkerRole(), random.Random(seed)
        return [said.say(chance, Level.WILD) for _ in range(100)]

    assert speech(1) == speech(1) != speech(2)


def test_odd_frames_break_a_session_and_nothing_else():
    chance = random.Random(1)
    broke = Counter()
    for _ in range(500):
        terms = {"window": 1, "peer_window": 8, "numbers_acks": True, "message_bytes_max": 1 << 20}
        session, frame = Session(**terms), pack([1, 0, [mutated(b"\x81\xa1t\xa3bye", chance)]])
        try:
            session.accept(odd_frame(frame, 1, chance))
        except ProtocolError as error:
            broke[str(error)[:12]] += 1
    assert len(broke) > 5


@pytest.mark.real
def test_a_gateway_withstands_some_thousand_messages(capsys):
    settings = run.FuzzSettings(
        seed=1, messages=4_000, minutes=3.0, roles=("client", "worker", "buyer"), every_s=0.5
    )
    facts, violations = run.perform(settings)
    assert not any(violations.values()), capsys.readouterr().out
    assert sum(each.heard for each in facts.tallies.values()) > 0
