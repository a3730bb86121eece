"""A pipe that ends a poll."""

import os
import select
import threading
from types import SimpleNamespace

from federation.sessions import waking
from federation.sessions.waking import Waker


def is_readable(waker):
    poll = select.poll()
    poll.register(waker.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def test_it_is_readable_from_the_first_wake_until_it_is_cleared():
    waker = Waker()
    assert not is_readable(waker)
    for _ in range(100_000):  # more than a pipe holds
        waker.wake()
    assert is_readable(waker)
    waker.clear()
    assert not is_readable(waker)
    waker.close()


def test_who_wakes_what_another_thread_has_closed_wakes_nobody():
    waker = Waker()
    waker.close()
    waker.wake()
    waker.close()


def test_a_signal_that_wakes_it_while_it_is_closed_wakes_nobody(monkeypatch):
    """The lock is the same thread's: a closed descriptor's number may be a file of the user's."""
    waker = Waker()
    written = []

    def close(descriptor):
        waker.wake()
        os.close(descriptor)

    os_like = SimpleNamespace(write=lambda *given: written.append(given), close=close)
    monkeypatch.setattr(waking, "os", os_like)
    waker.close()
    assert written == []


def test_nobody_closes_it_under_who_wakes(monkeypatch):
    """The write would go to the next owner of that descriptor: a file of the user's."""
    waker = Waker()
    closer = threading.Thread(target=waker.close)
    had_to_wait = []

    def write(descriptor, data):
        closer.start()
        closer.join(0.1)
        had_to_wait.append(closer.is_alive())
        return os.write(descriptor, data)

    monkeypatch.setattr(waking, "os", SimpleNamespace(write=write, close=os.close))
    waker.wake()
    closer.join()
    assert had_to_wait == [True]
