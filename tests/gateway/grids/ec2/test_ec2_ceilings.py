"""The instances that are released when prices rise, or ceilings are lowered."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.grids.contract import PilotState, Sighting
from gateway.grids.ec2.ceilings import InstanceRelease, surplus
from gateway.grids.ec2.prices import PriceBook
from gateway.grids.ec2.seen import Ec2Instance, spend_nanos
from gateway.grids.ec2.settings import Ec2Config, Ec2Market

CONFIG = Ec2Config("eu-central-1", {"a": 1, "b": 4}, 100, image="ami-1", market=Ec2Market.SPOT)
SLOTS = {"a": 1, "b": 4}
BOOK = PriceBook("USD", {}, {("a", "z"): 10, ("b", "z"): 80})


def instance(name, kind="a", state="running", launched_at_s=0.0):
    return Ec2Instance(name, "o", 0, state, kind, "z", True, launched_at_s, "")


SOME = [instance("a1"), instance("a2", launched_at_s=9.0), instance("b1", "b", "pending")]


@pytest.mark.parametrize(
    ("changes", "leaving", "goes"),
    [
        pytest.param({}, (), [], id="no ceiling is passed"),
        pytest.param({"max_spend_nanos": 100}, (), [], id="just within"),
        pytest.param({"max_spend_nanos": 99}, (), ["b1"], id="the dearest slots go first"),
        pytest.param({"max_spend_nanos": 15}, (), ["a2", "b1"], id="then the youngest"),
        pytest.param({"max_spend_nanos": 99}, {"b1"}, [], id="it is on its way out"),
        pytest.param({"max_price_nanos": 19}, (), ["b1"], id="a slot-hour costs 20"),
        pytest.param({"max_price_nanos": 9}, (), ["a1", "a2", "b1"], id="all are too dear"),
        pytest.param({"max_instances": 1}, (), ["a2", "b1"], id="a ceiling was lowered"),
    ],
)
def test_who_goes(changes, leaving, goes):
    assert sorted(surplus(replace(CONFIG, **changes), SOME, leaving, SLOTS, BOOK)) == goes


def test_of_what_has_no_price_nobody_is_let_go():
    config = replace(CONFIG, max_spend_nanos=1, max_price_nanos=1)
    assert not surplus(config, SOME, (), SLOTS, PriceBook())


def test_one_without_a_price_does_not_save_the_others():
    old = instance("old", "taken out of the table")
    config = replace(CONFIG, max_spend_nanos=15)
    assert sorted(surplus(config, [*SOME, old], (), SLOTS, BOOK)) == ["a2", "b1"]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 9)), max_size=20),
    st.integers(0, 500),
    st.integers(1, 20),
)
def test_the_rest_is_within_and_no_more_go_than_must(given_, most_nanos, most):
    shown = [instance(f"i{at}", kind, launched_at_s=at_s) for at, (kind, at_s) in enumerate(given_)]
    config = replace(CONFIG, max_spend_nanos=most_nanos, max_instances=most)
    goes = surplus(config, shown, (), SLOTS, BOOK)
    rest = [each for each in shown if each.id not in goes]
    assert len(rest) <= most
    assert spend_nanos(rest, BOOK) <= most_nanos
    for cheapest in [each for each in shown if each.id == next(reversed(goes), None)]:
        back = [*rest, cheapest]
        assert len(back) > most or spend_nanos(back, BOOK) > most_nanos


def test_who_is_let_go_ends_by_its_own_time_if_that_is_sooner():
    running = Sighting("o.0", PilotState.RUNNING, "i-1", 1, ends_at_s=50.0)
    assert InstanceRelease("why", 90.0).over(running).ends_at_s == 50.0
    found = InstanceRelease("why", 40.0).over(running)
    assert (found.state, found.ends_at_s, found.fault) == (PilotState.ENDING, 40.0, "why")
    ended = replace(running, state=PilotState.ENDED)
    assert InstanceRelease("why", 40.0).over(ended) is ended
