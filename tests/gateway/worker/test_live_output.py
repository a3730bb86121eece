"""Output that waits in an agent: in order, bounded, and cuts are marked."""

from federation.messages.messages import TaskOutput
from federation.messages.printed import PRINTS_BYTES_MAX
from gateway.worker.live_output import LiveOutput, size_of
from gateway.worker.outbox import WorkerOutbox


def test_pieces_go_out_in_order_by_assignment():
    output = LiveOutput()
    for assignment, task in ((1, 5), (1, 6), (2, 0), (1, 7)):
        output.add(assignment, task, 1, f"{task}\n")
    assert output.take() == [
        TaskOutput(1, [[5, 1, "5\n"], [6, 1, "6\n"]]),
        TaskOutput(2, [[0, 1, "0\n"]]),
        TaskOutput(1, [[7, 1, "7\n"]]),
    ]
    assert not output
    assert output.take() == []


def test_the_oldest_output_is_cut_and_counted():
    output = LiveOutput()
    for _ in range(100):
        output.add(1, 5, 1, "x" * 1000)
    ((*_, text), *rest) = output.take()[0].pieces
    assert text.startswith("[gridfed: 35,000 earlier characters were cut]\nx")
    assert len(rest) == 64
    output.add(1, 5, 2, "y" * (PRINTS_BYTES_MAX + 5))
    ((_, stream, text),) = output.take()[0].pieces
    note, _, text = text.partition("\n")
    assert (stream, len(text), note) == (
        2,
        PRINTS_BYTES_MAX,
        "[gridfed: 5 earlier characters were cut]",
    )


def test_an_outbox_knows_the_output_that_it_holds():
    outbox = WorkerOutbox()
    message = TaskOutput(1, [[0, 1, "abc"], [1, 2, "de"]])
    outbox.add_output(message)
    assert outbox.output_chars == size_of(message) == 5
    assert outbox.take() == [message]
    assert outbox.output_chars == 0
