"""Emissions of runs: by hand, after the examples of SCI 1.1; and properties of all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.costs.carbon import (
    COUNT_MAX,
    INTENSITY_MAX_MG_PER_KWH,
    NOTHING_KNOWN,
    SOURCE_CHARS_MAX,
    Emissions,
    Footprint,
    Intensity,
    Machine,
    carbon_ng,
    embodied_ng,
    energy_uj,
    footprint,
    mg_per_kwh,
    objection,
)
from policies.costs.coefficients import CLOUDS, CPUS, GRIDS

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
KWH_UJ = 3_600_000_000_000
AWS = Machine(740, 3500, pue_thousandths=1135)


@pytest.mark.parametrize(
    ("machine", "wall_ns", "cpu_ns", "microjoules"),
    [
        (Machine(1000, 1000), SECOND_NS, 0, 10**6),
        (Machine(0, 2000), SECOND_NS, SECOND_NS // 2, 10**6),
        (Machine(0, 2000, pue_thousandths=1500), SECOND_NS, SECOND_NS // 2, 1_500_000),
        # Cloud Carbon Footprint: an AWS vCPU-hour at 50 % takes (.74 + .5 · 2.76) W · 1.135.
        (AWS, HOUR_NS, HOUR_NS // 2, 8_662_320_000),
        # More CPU time than the slot's CPUs had in that time counts as all of it.
        (Machine(1000, 3000), SECOND_NS, 5 * SECOND_NS, 3 * 10**6),
        (Machine(1000, 3000, vcpus=4), SECOND_NS, 2 * SECOND_NS, 2 * 10**6),
        (Machine(1000, 3000), 0, 0, 0),
        # A nanosecond at half a watt is half a thousandth of a microjoule; a µs half of one: up.
        (Machine(500, 500), 1, 0, 0),
        (Machine(500, 500), 1000, 0, 1),
        (Machine(500, 500), 999, 0, 0),
    ],
)
def test_energy_by_hand(machine, wall_ns, cpu_ns, microjoules):
    assert energy_uj(machine, wall_ns, cpu_ns) == microjoules


@pytest.mark.parametrize(
    ("energy", "intensity", "nanograms"),
    [
        (KWH_UJ, 1_000, 10**9),  # a gram a kilowatt-hour
        (KWH_UJ, 225_000, 225 * 10**9),
        # The AWS vCPU-hour in London, Virginia and Stockholm: .54, .91 and .02 g.
        (8_662_320_000, GRIDS["aws:eu-west-2"], 541_395_000),
        (8_662_320_000, GRIDS["aws:us-east-1"], 911_949_800),
        (8_662_320_000, GRIDS["aws:eu-north-1"], 21_655_800),
        (1, 1_800_000, 1),  # a half: up
        (1, 1_799_999, 0),
        (0, 5_000_000, 0),
    ],
)
def test_operational_carbon_by_hand(energy, intensity, nanograms):
    assert carbon_ng(energy, intensity) == nanograms


def test_the_embodied_share_by_hand():
    # The example of the Impact Framework's sci-embodied, in kilograms: 1533.12 for a server, used
    # three years, an hour of one of its eight parts: 7.292 g.
    server = Machine(0, 0, embodied_g=1_533_120, lifetime_s=94_608_000, server_slots=8)
    assert embodied_ng(server, HOUR_NS) == 7_292_237_443
    # The whole of it in the whole of its life, all slots together.
    assert 8 * embodied_ng(server, 94_608_000 * SECOND_NS) == 1_533_120 * 10**9


def test_a_footprint_has_all_of_it_and_its_source():
    machine = Machine(740, 3500, 1, 1135, 1_533_120, 94_608_000, 8)
    found = footprint(Emissions(machine, Intensity(225_000, "static")), HOUR_NS, HOUR_NS // 2)
    assert found == Footprint(8_662_320_000, 541_395_000, 7_292_237_443, 225_000, "static")


def test_what_is_not_known_is_not_zero_but_nameless():
    assert footprint(None, HOUR_NS, 0) == NOTHING_KNOWN
    assert footprint(Emissions(None, Intensity(1, "static")), HOUR_NS, 0) == NOTHING_KNOWN
    found = footprint(Emissions(AWS), HOUR_NS, HOUR_NS // 2)
    assert (found.energy_uj, found.carbon_ng, found.source) == (8_662_320_000, 0, "")


@pytest.mark.parametrize(
    ("grams", "milligrams"),
    [(0, 0), (225, 225_000), ("91.44", 91_440), (0.0005, 1), (0.00049, 0), (5000, 5_000_000)],
)
def test_an_intensity_is_whole_milligrams(grams, milligrams):
    assert mg_per_kwh(grams) == milligrams


@pytest.mark.parametrize(
    "grams",
    [-1, -0.001, 5000.1, float("nan"), float("inf"), "x", "", "sNaN", "1e999999999", 10**400],
)
def test_an_intensity_that_can_not_be_is_refused(grams):
    with pytest.raises(ValueError, match=r"number|must be from 0 to"):
        mg_per_kwh(grams)


def test_the_named_coefficients_are_within_reason():
    for idle_mw, max_mw, *_ in [*CPUS.values(), *CLOUDS.values()]:
        assert 0 < idle_mw < max_mw < 10_000
    assert all(1_000 <= pue < 2_000 for *_, pue in CLOUDS.values())
    assert all(0 < factor < 1_000_000 for factor in GRIDS.values())


# --- for all of them -----------------------------------------------------------------------------

times_ns = st.integers(0, 10**17)
machines = st.builds(
    lambda idle, above, *rest: Machine(idle, idle + above, *rest),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(1, 64),
    st.integers(1_000, 3_000),
    st.integers(0, 10**7),
    st.integers(180 * 86_400, 10**9),
    st.integers(1, 1_000),
)
intensities = st.builds(Intensity, st.integers(0, INTENSITY_MAX_MG_PER_KWH), st.just("static"))
footprints = st.builds(
    Footprint,
    st.integers(0, COUNT_MAX),
    st.integers(0, COUNT_MAX),
    st.integers(0, COUNT_MAX),
    st.integers(0, INTENSITY_MAX_MG_PER_KWH),
    st.sampled_from(["", "static"]),
)


def figures(found):
    return found.energy_uj, found.carbon_ng, found.embodied_ng


@given(footprints, st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_parts_add_up_to_the_whole(whole, weights):
    parts = whole.split(weights)
    assert len(parts) == len(weights)
    for sums, total in zip(zip(*map(figures, parts), strict=True), figures(whole), strict=True):
        assert sum(sums) == total
        assert min(sums) >= 0
    assert {(each.source, each.intensity_mg_per_kwh) for each in parts} == {
        (whole.source, whole.intensity_mg_per_kwh)
    }


@given(machines, intensities, times_ns, times_ns, times_ns, times_ns)
def test_more_time_never_emits_less(machine, intensity, wall_ns, cpu_ns, more_wall, more_cpu):
    known = Emissions(machine, intensity)
    less = footprint(known, wall_ns, cpu_ns)
    more = footprint(known, wall_ns + more_wall, cpu_ns + more_cpu)
    assert min(figures(less)) >= 0
    assert all(a <= b for a, b in zip(figures(less), figures(more), strict=True))
    assert max(figures(more)) <= COUNT_MAX


@given(machines, intensities, times_ns, times_ns)
def test_what_we_work_out_ourselves_nobody_objects_to(machine, intensity, wall_ns, cpu_ns):
    assert objection(footprint(Emissions(machine, intensity), wall_ns, cpu_ns), wall_ns) == ""


@given(machines, st.integers(0, INTENSITY_MAX_MG_PER_KWH), times_ns, st.integers(0, 10**6))
def test_dirtier_electricity_never_emits_less(machine, intensity, wall_ns, more):
    energy = energy_uj(machine, wall_ns, wall_ns)
    assert carbon_ng(energy, intensity) <= carbon_ng(energy, intensity + more)


# --- what others say -----------------------------------------------------------------------------

HONEST = footprint(Emissions(AWS, Intensity(225_000, "static")), HOUR_NS, HOUR_NS)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Footprint(10**9, 0, 0, 0, ""), ""),
        (Footprint(10**9, 62_500_000, 0, 225_000, "static"), ""),
        (Footprint(10**9, 62_500_001, 0, 225_000, "static"), ""),
        (Footprint(10**9, 62_500_002, 0, 225_000, "static"), "the emissions differ"),
        (Footprint(10**9, 0, 0, 225_000, "static"), "the emissions differ"),
        (Footprint(10**9, 1_388_888_889, 0, 5_000_001, "static"), "above the possible maximum"),
        (Footprint(COUNT_MAX, COUNT_MAX, 0, 1, "static"), "the energy is more"),
        (Footprint(0, 0, COUNT_MAX, 0, ""), "embodied"),
        (Footprint(10**9, 62_500_000, 0, 225_000, ""), "no source"),
        (Footprint(0, 0, 0, 0, "a\nb"), "printable"),
        (Footprint(0, 0, 0, 0, "x" * (SOURCE_CHARS_MAX + 1)), "printable"),
    ],
)
def test_what_can_not_be_is_named(found, why):
    assert objection(HONEST, HOUR_NS) == ""
    assert why in objection(found, HOUR_NS) if why else not objection(found, HOUR_NS)


def test_what_another_site_says_is_marked_as_its_word():
    found = HONEST.as_told_by("berlin").as_told_by("paris")
    assert found.source == "paris says: berlin says: static"
    assert figures(found) == figures(HONEST)
    assert NOTHING_KNOWN.as_told_by("paris") == NOTHING_KNOWN
    long = Footprint(source="x" * SOURCE_CHARS_MAX).as_told_by("paris")
    assert len(long.source) == SOURCE_CHARS_MAX
