"""Who may use the bulk port, and how much (gateway.objects.bulk.admission)."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from federation.clocks import UtcS
from federation.signed.transfers import TransferTicket
from gateway.objects.bulk.admission import (
    PULLS_MAX,
    SITE_PULLS_MAX,
    SITE_STREAMS_MAX,
    STRANGERS_MAX,
    STREAMS_MAX,
    TICKET_STREAMS_MAX,
    TIMES_MAX,
    USER_PULLS_MAX,
    USER_STREAMS_MAX,
    PullQueue,
    StreamAdmission,
)

TICKET = TransferTicket(
    *("0" * 32, "f" * 32, "london", "paris", b"\x02" + bytes(32), 1_000, "risk", "ada", "c-1"),
    *(UtcS(0.0), UtcS(900.0)),
)


def ticket(number, site="paris", user="ada"):
    return replace(TICKET, id=f"{number:032x}", to=site, user=user)


def come(port, stream, shown):
    assert port.arrived(stream) is None
    return port.why_not(stream, shown)


def test_the_oldest_stranger_gives_way():
    port = StreamAdmission()
    assert [port.arrived(n) for n in range(STRANGERS_MAX)] == [None] * STRANGERS_MAX
    assert port.arrived(STRANGERS_MAX) == 0
    assert "wait to show" in port.why_not(0, TICKET)
    assert port.why_not(1, TICKET) == ""
    assert port.arrived(STRANGERS_MAX + 1) is None  # one is no stranger any more


def test_no_ticket_user_or_site_takes_all_streams():
    port = StreamAdmission()
    for number in range(TICKET_STREAMS_MAX):
        assert come(port, number, ticket(1)) == ""
    assert "this ticket has 8 streams" in come(port, 100, ticket(1))
    for number in range(TICKET_STREAMS_MAX, USER_STREAMS_MAX):
        assert come(port, number, ticket(number + 10)) == ""
    assert "user ada has 16 streams" in come(port, 101, ticket(2))
    for number in range(USER_STREAMS_MAX, SITE_STREAMS_MAX):
        assert come(port, number, ticket(number + 10, user=f"user {number}")) == ""
    assert "site paris has 32 streams" in come(port, 102, ticket(3, user="bob"))
    assert come(port, 103, ticket(4, "rome")) == ""
    port.left(0)
    assert come(port, 104, ticket(5, user="bob")) == ""


def test_the_port_has_only_so_many_streams():
    port = StreamAdmission()
    for number in range(STREAMS_MAX):
        assert come(port, number, ticket(number, f"site{number}")) == ""
    assert "the bulk port has 64 streams" in come(port, 100, ticket(100, "another"))


def test_a_ticket_fetches_its_object_a_few_times():
    port = StreamAdmission()
    assert come(port, 1, TICKET) == ""
    assert all(port.sent(1, 1_000) for _ in range(TIMES_MAX))
    assert not port.sent(1, 1)
    port.left(1)
    assert "ask for another one" in come(port, 2, TICKET)
    port.tidy(UtcS(901.0))
    assert come(port, 3, TICKET) == ""
    assert not port.sent(99, 1)


def test_bytes_of_a_ticket_are_remembered_while_a_stream_of_it_goes_on():
    port = StreamAdmission()
    assert come(port, 1, TICKET) == ""
    assert port.sent(1, TIMES_MAX * 1_000)
    port.tidy(UtcS(901.0))
    assert not port.sent(1, 1)


def test_a_site_that_is_cut_off_has_no_streams():
    port = StreamAdmission()
    assert come(port, 1, TICKET) == ""
    assert come(port, 2, ticket(1, "rome")) == ""
    assert port.cut("paris", "it is expelled", UtcS(10.0)) == [1]
    assert come(port, 3, TICKET) == "it is expelled"
    assert port.why_not(3, replace(TICKET, issued_s=UtcS(11.0))) == ""  # it is approved again


@given(st.lists(st.tuples(st.sampled_from(["a1", "a2", "a3", "b1", "c1"]), st.booleans())))
def test_sites_and_their_users_share_the_transfers(steps):
    queue, under_way, waiting = PullQueue(1 << 40), [], Counter()
    for who, is_end in steps:
        if is_end and under_way:
            queue.ended(*under_way.pop(0), 10)
        else:
            for _ in range(3):
                queue.add(*who, 10, who)
                waiting[who] += 1
        for each in queue.begin():
            waiting[each] -= 1
            under_way.append(each)
        assert len(under_way) <= PULLS_MAX
        users, sites = Counter(under_way), Counter(each[0] for each in under_way)
        assert max(users.values(), default=0) <= USER_PULLS_MAX
        assert max(sites.values(), default=0) <= SITE_PULLS_MAX
        if len(under_way) < PULLS_MAX:  # nobody waits for nothing
            assert all(
                not number or users[who] >= USER_PULLS_MAX or sites[who[0]] >= SITE_PULLS_MAX
                for who, number in waiting.items()
            )


def test_a_site_with_many_names_of_users_leaves_room_for_other_sites():
    queue = PullQueue(1 << 40)
    for number in range(100):
        queue.add("paris", f"user {number}", 10, number)
    assert len(queue.begin()) == SITE_PULLS_MAX
    queue.add("rome", "user 1", 10, "rome's")
    queue.add("paris", "user 1", 10, "another")
    assert queue.begin() == ["rome's"]
    queue.ended("paris", "user 0", 10)
    assert queue.begin() == [SITE_PULLS_MAX]


def test_objects_on_their_way_have_so_much_memory_and_one_site_half_of_it():
    queue = PullQueue(100)
    for name, size in (("a", 30), ("b", 30), ("c", 1)):
        queue.add("paris", name, size, name)
    assert queue.begin() == ["a"]  # and not "c", which would shut "b" out
    queue.add("rome", "x", 71, "x")
    queue.add("oslo", "y", 70, "y")
    assert queue.begin() == ["y"]
    queue.ended("oslo", "y", 70)
    queue.ended("paris", "a", 30)
    assert queue.begin() == ["b", "c"]
    queue.ended("paris", "b", 30)
    queue.ended("paris", "c", 1)
    assert queue.begin() == ["x"]


def test_an_object_as_large_as_the_memory_comes_alone():
    queue = PullQueue(100)
    queue.add("paris", "ann", 100, "whole")
    queue.add("rome", "bob", 1, "small")
    assert queue.begin() == ["whole"]
    assert queue.begin() == []
    queue.ended("paris", "ann", 100)
    assert queue.begin() == ["small"]
