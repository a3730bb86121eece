"""A Symphony engine over a way of the test's own: answers that no stand-in of the product gives."""

import json

import pytest
import trio

from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.delegating import Home, Lost, Parcel, Room
from gateway.grids.symphony.engine import SymphonyEngine
from gateway.grids.symphony.journal import FILE, ParcelJournal
from gateway.grids.symphony.settings import read

LIMIT_S = 10.0
DIGEST = b"f" * 32
TABLE = {
    "way": "soamapi",
    "application": "gridfed",
    "login_file": "login",
    "interpreter": "python3",
    "slots": 2,
}


class OddWay:
    """A Way that gives every task the same id, and closes all sessions as told but `stuck`."""

    def __init__(self, stuck=""):
        self.stuck = stuck
        self.open_sessions = []

    async def run(self, hear, leaves, *, task_status):
        task_status.started()
        await trio.sleep_forever()

    def leave(self):
        pass

    async def open(self, name, common):
        self.open_sessions.append("new")
        return "new"

    async def reopen(self, session, tasks):
        return True

    async def send(self, session, inputs):
        return ["1"] * len(inputs)

    async def close(self, session):
        if session == self.stuck:
            raise GridFault(FailureClass.AGAIN, "not this one")
        if session in self.open_sessions:
            self.open_sessions.remove(session)


@pytest.fixture
def run_engine(tmp_path):
    """Run an engine until something was told, and end it: all that was told, and the fault."""

    async def run(way, until, *parcels):
        engine = SymphonyEngine(read(TABLE), Home("pool", "mark", tmp_path, print), way, None)
        told, fault = [], None
        more = trio.Event()

        def tell(news):
            told.append(news)
            if news == Room(2):
                engine.put(DIGEST, b"body")
                for parcel in parcels:
                    engine.send(parcel)
            if isinstance(news, until):
                more.set()

        try:
            with trio.fail_after(LIMIT_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(engine.run, tell)
                    await more.wait()
                    nursery.cancel_scope.cancel()
        except* GridFault as faults:
            (fault,) = faults.exceptions
        return told, fault

    return run


def parcels(count):
    return [Parcel(f"p-{n}", "job", DIGEST, [b"%d" % n], first=n) for n in range(count)]


async def test_a_session_that_can_not_be_closed_does_not_keep_the_pool_shut(run_engine, tmp_path):
    lines = [{"application": "gridfed"}, {"open": "stuck"}, {"open": "other"}]
    (tmp_path / FILE).write_text("".join(json.dumps(each) + "\n" for each in lines))
    told, fault = await run_engine(OddWay("stuck"), Room)
    assert (told, fault) == ([Room(2)], None)
    journal = ParcelJournal(tmp_path, "gridfed", print)
    journal.load()
    assert list(journal.sessions) == ["stuck"], "the next life tries again"


async def test_a_session_that_can_not_be_written_down_is_closed(run_engine, monkeypatch):
    def full(self, session):
        raise GridFault(FailureClass.AGAIN, "no space")

    monkeypatch.setattr(ParcelJournal, "opened", full)
    way = OddWay()
    told, fault = await run_engine(way, Parcel, *parcels(1))
    assert "no space" in str(fault)
    assert not way.open_sessions, "nobody would know of it after our death"
    assert isinstance(told[-1], Lost)


async def test_of_two_tasks_with_one_id_one_is_lost_and_none_waits_for_ever(run_engine):
    told, _ = await run_engine(OddWay(), Lost, *parcels(2))
    assert Lost("p-1", "Symphony did not accept the task") in told
