"""How long a site that breaks the protocol is not dialled."""

from gateway.sessions.penalties import FIRST_S, FORGIVEN_S, MAX_S, Penalties


def test_each_time_it_is_twice_as_long_up_to_a_bound():
    penalties, now_s, waits_s = Penalties(), 100.0, []
    for _ in range(2000):
        waits_s.append(penalties.note("paris", "nonsense", now_s))
        now_s = penalties.until_s("paris")
    assert waits_s[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert waits_s[-1] == MAX_S
    assert (penalties.until_s("rome"), penalties.reason("rome")) == (0.0, "")
    assert penalties.reason("paris") == "nonsense"


def test_a_site_that_kept_to_the_protocol_for_long_begins_anew():
    penalties = Penalties()
    for _ in range(8):
        penalties.note("paris", "nonsense", 0.0)
    now_s = penalties.until_s("paris") + FORGIVEN_S + 1.0
    assert penalties.note("paris", "nonsense", now_s) == FIRST_S
