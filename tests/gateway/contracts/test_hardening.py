"""Billed usage is on its seller's disk: the bill waits for that, even when no other write waits."""

import pytest

from federation.messages import deals
from gateway.ledger.db import records
from gateway.runtime.outbox import EffectOutbox
from gateway.scheduler.model.effects import Harden, PeerSide, SendToSite, Write

BILL = deals.Bill("london-1-1", [[1, 0, 5, 100, 7, 1_000]])
SAY_BILL = SendToSite("london", PeerSide.BUYER, BILL)
POSTED = records.Posted("london-1-1", "sell", "london", 1, 0, 5, 7, 100, "EUR", 1_000)


class Disk:
    """A store that delays every write, and the messages sent meanwhile."""

    contracts = None

    def __init__(self):
        self.calls = []
        self.said = []

    def write(self, written, durable, done):
        self.calls.append((list(written), durable, done))

    def carry(self, site, side, message):
        self.said.append((site, side, message))

    def flush(self):
        pass


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def outbox(disk):
    found = EffectOutbox(None, disk, None, lambda call: call(), lambda jobs: None)
    found.attach_peers(disk)
    return found


def test_a_bill_waits_until_what_was_written_before_is_on_the_disk(outbox, disk):
    outbox.perform([Harden(), SAY_BILL])
    [(written, durable, done)] = disk.calls
    assert (written, durable) == ([], True)
    assert not disk.said
    done()
    assert disk.said == [("london", PeerSide.BUYER, BILL)]


def test_it_waits_for_what_was_written_in_another_turn_too(outbox, disk):
    outbox.perform([Write(POSTED)])
    outbox.perform([Harden(), SAY_BILL])
    (_, is_first_durable, first_done), (_, is_second_durable, second_done) = disk.calls
    assert (is_first_durable, is_second_durable) == (False, True)
    second_done()
    assert not disk.said
    first_done()
    assert disk.said


def test_what_is_written_in_the_same_turn_goes_to_the_disk_with_it(outbox, disk):
    outbox.perform([Write(POSTED), Harden(), SAY_BILL])
    [(written, durable, _)] = disk.calls
    assert (written, durable) == ([POSTED], True)


@pytest.mark.parametrize("batches", [1, 2])
def test_what_has_no_record_of_its_own_does_not_overtake_earlier_records(outbox, disk, batches):
    for _ in range(batches):
        outbox.perform([Write(POSTED)])
    outbox.perform([SAY_BILL])
    for _, _, done in disk.calls:
        assert not disk.said
        done()
    assert disk.said == [("london", PeerSide.BUYER, BILL)]
