"""The cost of work: exact, rounded once."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federation.money import NANOS_LIMIT
from policies.tariffs import HOUR_NS, Tariff, cost_nanos


@given(st.integers(0, NANOS_LIMIT), st.integers(0, NANOS_LIMIT))
def test_cost_is_the_exact_cost_rounded_half_up(price_nanos: int, wall_ns: int) -> None:
    exact = Fraction(price_nanos * wall_ns, HOUR_NS)
    assert Fraction(-1, 2) < cost_nanos(price_nanos, wall_ns) - exact <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("price_nanos", "wall_ns", "cost"),
    [
        (40_000_000, HOUR_NS, 40_000_000),
        (1, HOUR_NS // 2, 1),
        (1, HOUR_NS // 2 - 1, 0),
        (3, HOUR_NS // 2, 2),
        (0, HOUR_NS, 0),
    ],
)
def test_cost_of_known_amounts(price_nanos: int, wall_ns: int, cost: int) -> None:
    assert cost_nanos(price_nanos, wall_ns) == cost


@pytest.mark.parametrize(("price_nanos", "wall_ns"), [(-1, 1), (1, -1)])
def test_cost_refuses_negative_input(price_nanos: int, wall_ns: int) -> None:
    with pytest.raises(ValueError, match="zero or more"):
        cost_nanos(price_nanos, wall_ns)


@pytest.mark.parametrize(
    ("price_nanos", "currency"), [(-1, "USD"), (NANOS_LIMIT + 1, "USD"), (1, "usd")]
)
def test_a_tariff_is_always_a_price(price_nanos: int, currency: str) -> None:
    with pytest.raises(ValueError, match=r"out of range|three capital letters"):
        Tariff(price_nanos, currency, "1")


steps = st.sampled_from([0, 1, 10**6, 10**9, HOUR_NS])


@given(
    st.integers(0, 10**13),
    st.integers(0, 1000),
    st.integers(0, 10**15),
    st.integers(0, 10**10),
    steps,
)
def test_a_charge_is_the_rule_to_the_nano_unit(price, tasks, wall_ns, minimum, step_ns) -> None:
    tariff = Tariff(price, "USD", "v", minimum_nanos=minimum, step_ns=step_ns)
    time_ns = wall_ns
    if step_ns:
        time_ns = max(-(-wall_ns // step_ns), tasks) * step_ns
    exact = Fraction(price * time_ns, HOUR_NS)
    found = tariff.charge_nanos(tasks, wall_ns)
    assert found >= tasks * minimum
    if found > tasks * minimum:
        assert Fraction(-1, 2) < found - exact <= Fraction(1, 2)


@given(
    st.integers(0, 10**13),
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10**13)), min_size=1, max_size=10),
    st.integers(0, 10**9),
    steps,
)
def test_parts_cost_at_least_the_whole_and_little_more(price, parts, minimum, step_ns) -> None:
    tariff = Tariff(price, "USD", "v", minimum_nanos=minimum, step_ns=step_ns)
    tasks, wall_ns = (sum(each) for each in zip(*parts, strict=True))
    whole = tariff.charge_nanos(tasks, wall_ns)
    apart = sum(tariff.charge_nanos(*part) for part in parts)
    assert apart >= whole - len(parts)  # a half each by rounding
    if not step_ns and not minimum:
        assert abs(apart - whole) <= len(parts)


@given(st.integers(0, 10**13), st.integers(1, 10**13), st.integers(0, 10**9), steps)
@example(price=0, task_ns=1, minimum=2_562_049, step_ns=0)
def test_what_is_planned_by_is_never_less_than_what_a_lone_task_costs(
    price, task_ns, minimum, step_ns
) -> None:
    tariff = Tariff(price, "USD", "v", minimum_nanos=minimum, step_ns=step_ns)
    planned = tariff.for_tasks_of(task_ns)
    assert 0 <= planned <= NANOS_LIMIT
    if planned < NANOS_LIMIT:
        assert planned * task_ns >= (tariff.charge_nanos(1, task_ns) - 1) * HOUR_NS


def test_a_price_that_is_planned_by_can_be_told_and_written_down() -> None:
    """It is quoted where work is passed on: as any price, it is the largest that there is."""
    for minimum, planned in ((2_562_047, 2_562_047 * HOUR_NS), (2_562_048, NANOS_LIMIT)):
        tariff = Tariff(minimum, "USD", "v", minimum_nanos=minimum)
        assert tariff.for_tasks_of(1) == planned
        assert Tariff(planned, "USD", "v").charge_nanos(1, 1) <= tariff.charge_nanos(1, 1)


@given(
    st.integers(0, 10**13),
    st.integers(0, 1000),
    st.integers(0, 10**13),
    st.integers(0, 10**9),
    steps,
)
def test_what_is_expected_is_what_tasks_cost_each_by_itself(
    price, tasks, task_ns, minimum, step_ns
) -> None:
    tariff = Tariff(price, "USD", "v", minimum_nanos=minimum, step_ns=step_ns)
    task_s = task_ns / 1e9
    one = tariff.charge_nanos(1, round(task_s * 1e9))
    assert tariff.expected_nanos(tasks, task_s) == tasks * one >= tasks * minimum
    assert tariff.expected_nanos(tasks, None) == tasks * tariff.charge_nanos(1, 0)


def test_a_charge_that_no_database_holds_is_the_largest_that_it_does() -> None:
    tariff = Tariff(NANOS_LIMIT, "USD", "v", minimum_nanos=NANOS_LIMIT)
    assert tariff.charge_nanos(10, 1) == NANOS_LIMIT


@pytest.mark.parametrize(
    "wrong", [{"minimum_nanos": -1}, {"step_ns": HOUR_NS + 1}, {"list_nanos": -1}]
)
def test_a_tariff_with_terms_that_make_no_sense_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"out of range|an hour"):
        Tariff(1, "USD", "v", **wrong)
