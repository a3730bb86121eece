"""The network in memory: order, cuts, resets, and machines that are gone."""

from random import Random

import pytest

from simulations.world.clock import Clock
from simulations.world.network import QUEUE_DOWN, Network, SimLink, SimPort, Weather


class Two:
    """A gateway's port and a worker's link."""

    def __init__(self, weather: Weather | None = None) -> None:
        self.clock = Clock()
        weather = weather or Weather(0.01, 0.05)
        self.network = Network(self.clock, Random(1), weather)
        self.port: SimPort = self.network.listen("gateway", lambda: None)
        self.link: SimLink = self.network.dial("worker", "gateway", lambda: None)
        self.pass_s(1.0)
        assert self.link.is_up
        self.pipe = next(iter(self.port.pipes))

    def pass_s(self, seconds: float) -> None:
        self.clock.run(self.clock.now_s + seconds, lambda: False)

    def up(self) -> list[bytes]:
        return [frame for _, frame in self.port.receive()]


def test_frames_of_a_pipe_arrive_in_order() -> None:
    two = Two()
    sent = [b"%d" % n for n in range(50)]
    assert all(two.link.send(frame) for frame in sent)
    two.pass_s(1.0)
    assert two.up() == sent


def test_the_third_frame_that_waits_downwards_is_lost() -> None:
    two = Two()
    assert all(two.port.send(two.pipe, b"%d" % n) for n in range(5))
    two.pass_s(1.0)
    assert len(two.link.receive()) == QUEUE_DOWN
    assert two.network.dropped == 5 - QUEUE_DOWN


def test_a_cut_holds_frames_back_until_it_heals() -> None:
    two = Two()
    two.network.cut("worker", "gateway")
    two.link.send(b"a")
    two.pass_s(5.0)
    two.link.send(b"b")
    assert two.up() == []
    two.network.heal("worker", "gateway")
    two.pass_s(1.0)
    assert two.up() == [b"a", b"b"]


def test_a_cut_one_way_lets_the_other_way_through() -> None:
    two = Two()
    two.network.cut("worker", "gateway")
    two.port.send(two.pipe, b"down")
    two.link.send(b"up")
    two.pass_s(1.0)
    assert (two.link.receive(), two.up()) == ([b"down"], [])


def test_two_cuts_heal_when_both_have() -> None:
    two = Two()
    two.network.cut("worker", "gateway")
    two.network.cut("worker", "gateway")
    two.network.heal("worker", "gateway")
    assert two.network.is_cut("worker", "gateway")
    two.network.heal("worker", "gateway")
    assert not two.network.is_cut("worker", "gateway")


def test_a_reset_is_noticed_at_both_ends_and_loses_what_is_under_way() -> None:
    two = Two()
    two.link.send(b"lost")
    two.network.reset("worker", "gateway")
    two.pass_s(2.0)
    assert two.link.is_lost
    assert (two.port.gone(), two.up()) == ([two.pipe], [])


def test_a_process_that_dies_is_noticed_and_a_machine_that_dies_is_not() -> None:
    two = Two()
    two.network.host_died("worker", is_silent=True)
    two.pass_s(5.0)
    assert two.port.gone() == []
    assert two.port.send(two.pipe, b"to nobody")
    two = Two()
    two.network.host_died("worker", is_silent=False)
    two.pass_s(5.0)
    assert two.port.gone() == [two.pipe]


def test_who_closes_is_heard_after_what_was_sent_before() -> None:
    two = Two()
    two.link.send(b"last words")
    two.link.close()
    two.pass_s(1.0)
    assert (two.up(), two.port.gone()) == ([b"last words"], [two.pipe])


@pytest.mark.parametrize(("size", "least_s"), [(10, 0.0), (2_000_000, 1.0)])
def test_large_frames_take_their_time(size: int, least_s: float) -> None:
    two = Two(Weather(0.0, 0.0, 2e6))
    began_s = two.clock.now_s
    arrived: list[float] = []
    two.port._changed = lambda: arrived.append(two.clock.now_s - began_s)
    two.link.send(bytes(size))
    two.pass_s(5.0)
    assert least_s <= arrived[0] < least_s + 0.01


def test_a_cut_that_heals_while_frames_are_under_way_changes_nothing_of_their_order() -> None:
    two = Two(Weather(0.1, 0.3))
    sent = [b"%d" % n for n in range(40)]
    for at, frame in enumerate(sent):
        two.link.send(frame)
        two.pass_s(0.01)
        if at % 8 == 2:
            two.network.cut("worker", "gateway")
        elif at % 8 == 7:
            two.network.heal("worker", "gateway")
    two.pass_s(5.0)
    assert two.up() == sent


def test_a_host_has_a_port_of_each_service_and_loses_all_of_them_at_once() -> None:
    two = Two()
    other = two.network.listen("gateway", lambda: None, "peers")
    link = two.network.dial("paris", "gateway", lambda: None, "peers")
    two.pass_s(1.0)
    assert link.is_up
    link.send(b"hello")
    two.pass_s(1.0)
    assert [frame for _, frame in other.receive()] == [b"hello"]
    assert two.up() == []
    two.network.host_died("gateway", is_silent=False)
    two.pass_s(1.0)
    assert link.is_lost
    assert two.link.is_lost
