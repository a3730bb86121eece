"""The figures that the year is made of are whole."""

import pytest

from simulations.year.facts import HOUR_S, USD_PER_EUR, WEEK_S, electricity, log


@pytest.mark.parametrize("zone", ["gb", "de", "ny"])
def test_every_hour_of_the_year_has_a_price_and_an_intensity(zone):
    power = electricity(zone)
    assert len(power.usd_per_kwh) == len(power.g_per_kwh) == 365 * 24
    assert all(20 < grams < 800 for grams in power.g_per_kwh)
    assert 0.02 < sum(power.usd_per_kwh) / 8760 < 0.2


def test_the_first_hours_are_those_of_their_source():
    assert electricity("gb").g_per_kwh[0] == 91
    assert electricity("gb").usd_per_kwh[0] == pytest.approx(58.6 * USD_PER_EUR / 1000)
    assert electricity("de").usd_per_kwh[0] < 0  # New Year's night was windy


def test_an_hour_whose_price_was_not_published_has_the_next_one():
    prices = electricity("ny").usd_per_kwh
    assert prices[0] == prices[4] == prices[5]


def test_after_the_year_it_is_as_in_its_last_hour():
    power = electricity("gb")
    assert (power.hour(0.0), power.hour(HOUR_S), power.hour(1e9)) == (0, 1, 8759)


@pytest.mark.parametrize(("name", "weeks", "jobs", "slots"), [("nasa", 13, 17_950, 59),
                                                             ("hpc2n", 8, 3_050, 101)])  # fmt: skip
def test_a_log_has_whole_weeks_of_jobs_in_order(name, weeks, jobs, slots):
    found = log(name)
    assert found.weeks == weeks
    assert len(found.entries) == pytest.approx(jobs, rel=0.02)
    busy_s = sum(each.run_s * each.slots for each in found.entries)
    assert busy_s / (weeks * WEEK_S) == pytest.approx(slots, rel=0.04)
    times = [each.at_s for each in found.entries]
    assert times == sorted(times)
    assert times[-1] < weeks * WEEK_S
    assert all(each.run_s > 0 and each.slots > 0 for each in found.entries)
