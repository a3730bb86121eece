"""Slots that are no children of ours, as a hostile or broken image may have them."""

import os
import sys

import pytest
import trio

from gateway.worker.isolation.launch import SlotLaunch
from gateway.worker.slot import process
from gateway.worker.slot.process import SlotProcess

pytestmark = pytest.mark.real

CLOSES = """
import socket, sys, time
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
time.sleep(600)
"""
# A child of the first process takes all there is; the first process goes on, whatever happens.
SENDS_ANOTHER = """
import os, socket, sys, time
if os.fork() == 0:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    connection.sendall(b"3.11")
    socket.recv_fds(connection, 1, 3)
    time.sleep(600)
time.sleep(600)
"""


def start(folder, code, python=""):
    path = f"{folder}/slot"
    first = folder / "first"
    # Who is first says so, for "the runtime" to end it.
    command = ("/bin/sh", "-c", f'echo $$ > {first}; exec "$@"', "sh", sys.executable, "-c", code)
    return SlotProcess(
        SlotLaunch(
            (*command, path),
            dict(os.environ),
            socket=path,
            python=python,
            remove=("/bin/sh", "-c", f"kill -9 $(cat {first})"),
        )
    )


async def has_come(slot):
    while not slot.pid:  # noqa: ASYNC110 - it is a number
        await trio.sleep(0.01)


@pytest.mark.parametrize("python", ["", "3.11"])
async def test_one_that_takes_nothing_is_ended_and_nobody_else_is_the_worse(tmp_path, python):
    slot = start(tmp_path, CLOSES, python)
    with trio.fail_after(200):
        await slot.run(lambda _: None)
    await slot.close()
    assert slot.failure == "environment"


async def test_one_that_sends_another_is_ended_by_its_runtime(tmp_path, monkeypatch, ended):
    monkeypatch.setattr(process, "RUNTIME_LINGER_S", 0.1)
    slot = start(tmp_path, SENDS_ANOTHER)
    with trio.fail_after(200):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slot.run, lambda _: None)
            await has_come(slot)
            slot.kill()
    await slot.close()
    ended(int((tmp_path / "first").read_text()))


async def test_so_is_one_that_is_closed(tmp_path, monkeypatch, ended):
    monkeypatch.setattr(process, "RUNTIME_LINGER_S", 0.1)
    slot = start(tmp_path, SENDS_ANOTHER)
    with trio.fail_after(200):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slot.run, lambda _: None)
            await has_come(slot)
            nursery.cancel_scope.cancel()
        await slot.close()
    ended(int((tmp_path / "first").read_text()))
