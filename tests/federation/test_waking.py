"""A pipe that ends a poll."""

import select

from federation.waking import Waker


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
