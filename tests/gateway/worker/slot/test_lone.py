"""One slot without an agent: results, limits, the call at fault named, another slot started."""

import os
import signal
import sys
import time

import cloudpickle
import pytest

from gateway.worker.slot.lone import LoneCalls, LoneSlot

pytestmark = pytest.mark.real

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def act(what, *arguments):
    if what == "print":
        print("said", *arguments)
    elif what == "raise":
        raise ValueError(*arguments)
    elif what == "exit":
        os._exit(3)
    elif what == "sleep":
        time.sleep(*arguments)
    elif what == "hide":  # that the slot is at it, and end
        frame = sys._getframe()
        while type(frame.f_locals.get("self")).__name__ != "Slot":
            frame = frame.f_back
        time.sleep(1.0)
        for cell, value in enumerate(arguments):
            if value is not None:
                frame.f_locals["self"]._cells[cell] = value
        os._exit(0)
    elif what == "forge":  # what the slot says of the time, from now on
        part = sys.modules["__main__"]._Part
        say = part.message
        part.message = lambda self, is_over: [*say(self, is_over=is_over)[:5], 2, 2, 0, is_over]
        time.sleep(*arguments)
    return what


BODIES = {b"d": cloudpickle.dumps(act), b"bad": b"no pickle"}


@pytest.fixture(scope="module")
def slot():
    made = LoneSlot()
    yield made
    made.close()


def calls(*given, digest=b"d", prints=True, timeout_s=None, bytes_max=1 << 20):
    return LoneCalls(
        digest, "job", [cloudpickle.dumps(each) for each in given], prints, timeout_s, bytes_max
    )


def values(ran):
    failed = {failure[0] for failure in ran.failures}
    return [None if at in failed else cloudpickle.loads(v) for at, v in enumerate(ran.values)]


def kinds(ran):
    return {at: (kind, text) for at, kind, text, _ in ran.failures}


def test_results_failures_and_prints(slot):
    ran = slot.run(calls(("a",), ("raise", "no"), ("print", 1), ("b",)), BODIES)
    assert values(ran) == ["a", None, "print", "b"]
    assert kinds(ran)[1][0] == "error"
    assert "ValueError: no" in kinds(ran)[1][1]
    assert ran.prints == [[2, "said 1\n", 1]]
    assert ran.wall_ns > 0


def test_a_call_that_falsifies_what_its_slot_measures_is_charged():
    made = LoneSlot()
    try:
        assert made.run(calls(("forge", 2.0)), BODIES).wall_ns > 1.5e9
        assert made.run(calls(("sleep", 2.0)), BODIES).wall_ns > 1.5e9
    finally:
        made.close()


@pytest.mark.parametrize("cells", [(None, 0), (-1, None), (1 << 61, 0)])
def test_a_call_that_says_it_is_idle_and_takes_the_slot_down_is_at_fault_and_charged(cells):
    made = LoneSlot()
    try:
        ran = made.run(calls(("hide", *cells), ("b",)), BODIES)
    finally:
        made.close()
    assert values(ran) == [None, "b"]
    assert kinds(ran)[0][0] == "crash"
    assert ran.wall_ns > 0.5e9


def test_a_slot_that_ends_between_two_lots_is_no_calls_fault():
    made = LoneSlot()
    try:
        made.run(calls(("a",)), BODIES)
        os.kill(made._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, made._process.pid, os.WEXITED | os.WNOWAIT)
        assert values(made.run(calls(("a",)), BODIES)) == ["a"]
    finally:
        made.close()


def test_the_call_that_takes_the_slot_down_is_named_and_the_others_run(slot):
    ran = slot.run(calls(*[(str(n),) for n in range(5)], ("exit",), ("after",)), BODIES)
    assert values(ran) == ["0", "1", "2", "3", "4", None, "after"]
    assert kinds(ran)[5][0] == "crash"
    assert "exit code 3" in kinds(ran)[5][1]


def test_a_time_limit_holds_for_each_call(slot):
    ran = slot.run(calls(("a",), ("sleep", 60), ("b",), timeout_s=2.0), BODIES)
    assert values(ran) == ["a", None, "b"]
    assert kinds(ran)[1][0] == "timeout"


def test_a_result_that_is_too_large_and_a_function_that_is_none(slot):
    ran = slot.run(calls(("x" * 2000,), bytes_max=1000), BODIES)
    assert kinds(ran)[0][0] == "result"
    ran = slot.run(calls(("a",), digest=b"bad"), BODIES)
    assert "can't be unpickled" in kinds(ran)[0][1]


def test_nothing_is_left_when_the_looker_ends_it():
    class Enough(Exception):
        pass

    def look():
        raise Enough

    slot = LoneSlot(look=look)
    with pytest.raises(Enough):
        slot.run(calls(("sleep", 60)), BODIES)
    slot.close()
