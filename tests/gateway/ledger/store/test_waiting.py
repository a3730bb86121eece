"""Opening a store whose server is away: it is tried again, and not for ever."""

from itertools import pairwise

import pytest
import trio

from gateway.ledger.db.errors import StoreAway, StoreInUse
from gateway.ledger.store.waiting import open_patiently


class Server:
    """A server that refuses so many times, each with the next reason; then it answers."""

    def __init__(self, *reasons):
        self.reasons = list(reasons)
        self.asked_s = []

    def open(self):
        self.asked_s.append(trio.current_time())
        if self.reasons:
            raise self.reasons.pop(0)
        return "store"


async def test_a_server_that_comes_back_in_time_is_used(autojump_clock):
    server = Server(*[StoreAway("refused")] * 3, StoreAway("is starting"))
    told = []
    assert await open_patiently(server.open, 300.0, told.append) == "store"
    assert told == [
        "refused; retrying for up to 5 min",
        "is starting; retrying for up to 4 min 56 s",
    ]
    pauses = [later - earlier for earlier, later in pairwise(server.asked_s)]
    assert pauses == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("wait_s", [0.0, 7.0])
async def test_a_server_that_stays_away_is_given_up(autojump_clock, wait_s):
    server = Server(*[StoreAway("refused")] * 100)
    began_s = trio.current_time()
    with pytest.raises(StoreAway, match="refused"):
        await open_patiently(server.open, wait_s, lambda line: None)
    assert trio.current_time() == pytest.approx(began_s + wait_s)


async def test_other_reasons_are_not_waited_out(autojump_clock):
    server = Server(StoreInUse("process id 7 has it"))
    with pytest.raises(StoreInUse, match="process id 7"):
        await open_patiently(server.open, 300.0, lambda line: None)
    assert len(server.asked_s) == 1
