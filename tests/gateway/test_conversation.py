"""How long a gateway has said nothing, as whoever dials it is told."""

from types import SimpleNamespace

import pytest
import trio

from federation.errors import SessionRefused
from federation.handshake import SharedSecret
from gateway.conversation import REDIAL_MAX_S, Conversation


class Enough(Exception):
    pass


class Dialler:
    """Is refused so many times; then nobody is there."""

    def __init__(self, refusals):
        self.refusals, self.silences = refusals, []

    def dial(self, _on_change):
        if self.refusals:
            self.refusals -= 1
            raise SessionRefused("not you", "worker")
        return SimpleNamespace(is_up=False, is_lost=False, close=lambda: None)

    def refused(self, _error):
        pass

    def unanswered(self, for_s):
        self.silences.append(for_s)
        if for_s > 2 * REDIAL_MAX_S:
            raise Enough


async def test_who_waits_after_a_refusal_has_not_been_without_an_answer(autojump_clock):
    dialler = Dialler(refusals=8)
    conversation = Conversation(dialler, None, SharedSecret(""), random_bytes=bytes)
    with pytest.raises(Enough):
        await conversation.run()
    assert trio.current_time() > 3 * REDIAL_MAX_S, "it waited long between refusals"
    assert dialler.silences[0] == 0.0
    assert dialler.silences == sorted(dialler.silences), "silence adds up over attempts"
