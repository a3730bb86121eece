"""The agent's end of its slots: none waits for another's messages."""

import os
import sys

import cloudpickle
import pytest
import trio

from gateway.worker.isolation.launch import SlotLaunch, bare
from gateway.worker.slot.process import SlotProcess

pytestmark = pytest.mark.real

LARGE = bytes(1 << 20)
ROUNDS = 20


def bundle(number, arguments):
    return ["chunk", number, b"d", arguments, False, "job", 1 << 20, None, 0, "w"]


async def test_a_slot_is_served_while_another_is_slow_to_take_sixty_megabytes():
    slow = SlotProcess(
        SlotLaunch((sys.executable, "-c", "import time; time.sleep(600)"), os.environ)
    )
    quick = SlotProcess(bare(os.environ, 0))
    said, hears = trio.open_memory_channel(1000)
    try:
        with trio.fail_after(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(slow.run, lambda messages: None)
                nursery.start_soon(quick.run, lambda found: [*map(said.send_nowait, found)])
                assert await hears.receive() == ["ready"]
                slow.send(["function", b"d", LARGE])
                slow.send(bundle(0, [LARGE] * 60))
                quick.send(["function", b"d", cloudpickle.dumps(abs)])
                for number in range(ROUNDS):
                    quick.send(bundle(number, [cloudpickle.dumps((-number,))]))
                    kind, at, values, *_ = await hears.receive()
                    assert (kind, at, *map(cloudpickle.loads, values)) == ("part", number, number)
                assert slow.is_sending
                nursery.cancel_scope.cancel()
    finally:
        await slow.close()
        await quick.close()
