"""The emissions of runs, from a pool's slots to the books of the sender. See town.py."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pure.town import CHEAP, DEAR, UTC_S, Town, dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.messages import MESSAGES
from federation.messages.wire import pack, unpack
from gateway.api.views import work_views
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from gateway.scheduler.tasks.task_usage import footprint_of
from policies.costs.carbon import (
    NOTHING_KNOWN,
    SOURCE_CHARS_MAX,
    Emissions,
    Footprint,
    Intensity,
    Machine,
    footprint,
)
from policies.placement.asks import Wishes

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))
MACHINE = Machine(1_000, 5_000, 2, 1_200, 10**6, 10**8, 4)
CLEAN = Emissions(MACHINE, Intensity(50_000, "series FR.csv"))
DIRTY = Emissions(MACHINE, Intensity(700_000, "static"))


@pytest.fixture
def town():
    made = dear_and_cheap()
    made.sites["paris"].do(events.EmissionsKnown("local", CLEAN))
    return made


def used(site):
    return [each for each in site.books if isinstance(each, records.UsageRecord)]


def figures(record):
    return record.energy_uj, record.carbon_ng, record.embodied_ng, record.intensity_mg_per_kwh


def delivered(town):
    return [message for *_, message in town.said if isinstance(message, deals.Deliver)]


def know_duration(site):
    """Tasks so short that a worker gets all of them at once."""
    site.broker.durations.learn(b"f" * 32, 10**6, 10**6, "")


def run_at_home(tasks=10, task_s=0.5, emissions=DIRTY):
    """A site on its own that knows its emissions, after some work."""
    town = Town()
    site = town.build("london", DEAR, 2)
    site.do(events.EmissionsKnown("local", emissions))
    site.submit(tasks)
    town.now_s += 100.0
    while site.work(task_s=task_s):
        town.deliver()
    return site


def test_work_of_our_own_is_booked_with_what_it_emitted():
    books = used(run_at_home())
    assert sum(each.tasks for each in books) == 10
    for each in books:
        found = footprint(DIRTY, each.wall_ns, each.cpu_ns)
        assert figures(each) == (
            found.energy_uj,
            found.carbon_ng,
            found.embodied_ng,
            found.intensity_mg_per_kwh,
        )
        assert each.carbon_source == "static"
    # 5 s of a slot with one of two CPUs busy: 3 W · 1.2.
    assert sum(each.energy_uj for each in books) == 18_000_000
    assert sum(each.carbon_ng for each in books) == 3_500_000


def test_what_counts_is_what_is_known_when_work_ends():
    town = Town()
    site = town.build("london", DEAR, 1)
    site.submit(2)
    town.now_s += 10.0
    site.work(1)
    site.do(events.EmissionsKnown("local", DIRTY))
    site.work(1)
    site.do(events.EmissionsKnown("local", CLEAN))
    site.submit(1, job="k")
    town.now_s += 10.0
    site.work()
    assert [each.carbon_source for each in used(site)] == ["", "static", "series FR.csv"]
    assert used(site)[0].energy_uj == 0


def test_another_site_s_work_is_booked_as_its_word(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(100, wishes=ABROAD)
    town.run(lambda: len(london.answers()) == 100)
    theirs, ours = used(paris), used(london)
    assert {each.carbon_source for each in theirs} == {"series FR.csv"}
    assert {each.carbon_source for each in ours} == {"paris says: series FR.csv"}
    assert sum(each.energy_uj for each in ours) > 0
    for name in ("energy_uj", "carbon_ng", "embodied_ng"):
        total = sum(getattr(each, name) for each in theirs)
        assert sum(getattr(each, name) for each in ours) == total > 0


def test_what_a_seller_does_not_say_is_not_known(town):
    london = town.sites["london"]
    town.sites["paris"].do(events.EmissionsKnown("local", Emissions()))
    # Not even by what we know of a pool of ours of that name.
    london.do(events.EmissionsKnown("local", DIRTY))
    london.submit(10, wishes=ABROAD)
    town.run(lambda: len(london.answers()) == 10)
    assert {(*figures(each), each.carbon_source) for each in used(london)} == {(0, 0, 0, 0, "")}


def test_over_two_hops_each_site_passes_on_whose_word_it_is():
    town = Town()
    london = town.build("london", DEAR, 1)
    town.build("paris", CHEAP, 1)
    tokyo = town.build("tokyo", 2 * CHEAP, 4, gpu=True)
    tokyo.do(events.EmissionsKnown("local", CLEAN))
    london.permits.strangers.add("tokyo")
    town.show(hidden={("tokyo", "london")})
    london.submit(300, tags={"gpu": True})
    town.run(lambda: len(london.answers()) == 300)
    found = {each.carbon_source for each in used(london)}
    assert found == {"paris says: tokyo says: series FR.csv"}
    sums = {sum(each.carbon_ng for each in used(site)) for site in town.sites.values()}
    assert len(sums) == 1
    assert min(sums) > 0


def test_a_report_that_is_several_records_is_shared_out_exactly():
    """Tasks that were charged before run again: their share is a record of its own."""
    town = Town()
    site = town.build("london", DEAR, 1)
    site.do(events.EmissionsKnown("local", DIRTY))
    know_duration(site)
    site.submit(7)
    town.now_s += 10.0
    job = site.broker.jobs["j"]
    job.charged.add(2, 4)
    (order,) = site.at_work[1]
    wall_ns = 1_000_000_007
    values = [b""] * len(order.arguments)
    site.do(events.Reported(1, order.assignment, 0, values, [], [], wall_ns, wall_ns // 3))
    books = used(site)
    assert len(books) == 3
    assert footprint_of(books) == footprint(DIRTY, wall_ns, wall_ns // 3)
    assert sum(each.wall_ns for each in books) == wall_ns


@given(
    st.integers(1, 50).flatmap(
        lambda tasks: st.tuples(st.just(tasks), st.sets(st.integers(0, tasks - 1)))
    ),
    st.integers(0, 10**10),
    st.integers(0, 10**10),
)
def test_records_of_a_report_add_up_to_it(shape, wall_ns, cpu_ns):
    tasks, charged = shape
    town = Town()
    site = town.build("london", DEAR, 2)
    site.do(events.EmissionsKnown("local", CLEAN))
    know_duration(site)
    site.submit(tasks)
    town.now_s += 100.0
    for task in charged:
        site.broker.jobs["j"].charged.add(task, task + 1)
    expected = []
    for order in list(site.at_work[1]):
        values = [b""] * len(order.arguments)
        report = events.Reported(1, order.assignment, order.first, values, [], [], wall_ns, cpu_ns)
        expected.append(footprint(CLEAN, wall_ns, cpu_ns))
        site.do(report)
    books = used(site)
    assert sum(each.tasks for each in books) == tasks
    for name in ("energy_uj", "carbon_ng", "embodied_ng"):
        total = sum(getattr(each, name) for each in expected)
        assert sum(getattr(each, name) for each in books) == total
        assert all(getattr(each, name) >= 0 for each in books)


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"energy_uj": 10**15}, "the energy is more"),
        ({"carbon_ng": 0}, "energy times its intensity"),
        ({"carbon_ng": 10**15}, "energy times its intensity"),
        ({"intensity_mg_per_kwh": 0}, "energy times its intensity"),
        ({"intensity_mg_per_kwh": 5_000_001}, "above the possible maximum"),
        ({"embodied_ng": 2**63 - 1}, "embodied"),
        ({"carbon_source": ""}, "no source"),
        ({"carbon_source": "x" * (SOURCE_CHARS_MAX + 1)}, "printable"),
        ({"carbon_source": "static\x1b[2J"}, "printable"),
    ],
)
def test_a_footprint_that_can_not_be_is_refused_and_nothing_is_booked(town, lie, why):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(4, wishes=ABROAD)
    town.deliver()
    town.now_s += 10.0
    town.cut.add(frozenset({"london", "paris"}))  # what Paris says is caught on its way
    honest = []
    carry = town.carry
    town.carry = lambda sender, say: honest.append(say.message) or carry(sender, say)
    paris.work(task_s=0.1)
    message = next(each for each in honest if isinstance(each, deals.Deliver))
    assert message.carbon_ng > 0
    with pytest.raises(ProtocolError, match=why):
        london.kernel.hear(
            "paris", PeerSide.SELLER, replace(message, **lie), town.now_s, UTC_S + town.now_s
        )
    london.do()
    assert used(london) == []
    london.kernel.hear("paris", PeerSide.SELLER, message, town.now_s, UTC_S + town.now_s)
    london.do()
    assert {each.carbon_source for each in used(london)} == {"paris says: series FR.csv"}


def test_a_seller_that_has_never_heard_of_carbon_is_understood():
    message = deals.Deliver("c", 1, 0, [b""], [], [], 0, 0, 0, 0, 0, [])
    assert MESSAGES.decode(MESSAGES.encode(message), 10_000) == message
    plain = unpack(MESSAGES.encode(replace(message, energy_uj=7)), 10_000)
    for name in ("energy_uj", "carbon_ng", "embodied_ng", "intensity_mg_per_kwh", "carbon_source"):
        del plain[name]
    assert MESSAGES.decode(pack(plain), 10_000) == message
    for name, value in (("energy_uj", -1), ("carbon_ng", 1 << 63), ("carbon_source", None)):
        with pytest.raises(ProtocolError, match=name):
            MESSAGES.decode(pack({**plain, name: value}), 10_000)


def test_adverts_and_status_show_the_intensity_as_it_is_now(town):
    paris = town.sites["paris"]
    (pool,) = paris.exchange.show(UTC_S).pools
    assert (pool.carbon_g_per_kwh, pool.slot_watts) == (50.0, 6.0)
    paris.do(events.EmissionsKnown("local", DIRTY))
    (pool,) = paris.exchange.show(UTC_S + 1).pools
    assert pool.carbon_g_per_kwh == 700.0
    (shown,) = work_views.status(paris.broker, "paris", [], 0)["pools"]
    assert (shown["carbon_g_per_kwh"], shown["carbon_source"]) == (700.0, "static")
    paris.do(events.EmissionsKnown("local", Emissions()))
    (pool,) = paris.exchange.show(UTC_S + 2).pools
    assert (pool.carbon_g_per_kwh, pool.slot_watts) == (None, None)


def test_no_records_emit_nothing_known():
    assert footprint_of([]) == NOTHING_KNOWN == Footprint()
