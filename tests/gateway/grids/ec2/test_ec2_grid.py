"""The reactions of a pool on EC2 to EC2's answers: orders, ceilings, strays, faults, prices.

Instances are there and run nothing: these tests are of the adapter alone.
"""

import json
import time
from dataclasses import replace

import pytest
import trio

from gateway.grids.contract import (
    FailureClass,
    GridFault,
    Maintained,
    Order,
    PilotState,
    Priced,
    Shape,
)
from gateway.grids.ec2 import events

pytestmark = pytest.mark.real

LARGE, XLARGE = "c7i.large", "c7i.xlarge"
A, B = "eu-central-1a", "eu-central-1b"


@pytest.fixture(autouse=True)
def idle(ec2):
    ec2.boots = False


def order(name="o-1", pilots=2, **shape):
    return Order(name, pilots, Shape(**shape))


def start(grid, what):
    trio.run(grid.start, what)


def fault(grid, what):
    with pytest.raises(GridFault) as caught:
        trio.run(grid.start, what)
    return caught.value


def shown(grid):
    return {each.name: each for each in trio.run(grid.pilots)}


# --- an order is one fleet -----------------------------------------------------------------------


def test_an_order_is_made_once_though_its_answer_is_lost(ec2, make_grid):
    ec2.lost["CreateFleet"] = 2  # the adapter's own attempts
    assert fault(make_grid(), order()).failure_class is FailureClass.AGAIN
    assert ec2.calls.count("CreateFleet") == 2
    next_life = make_grid()
    found = shown(next_life)
    assert set(found) == {"o-1.0", "o-1.1"}, "who looks next has named them"
    start(next_life, order())
    assert shown(make_grid()).keys() == found.keys()
    assert len(ec2.alive()) == 2


def test_a_token_makes_it_once_where_nothing_is_shown_yet(ec2, make_grid):
    ec2.lost["CreateFleet"] = 2
    ec2.hides_new = True
    fault(make_grid(), order())
    next_life = make_grid()
    assert not shown(next_life)
    start(next_life, order())
    assert set(shown(next_life)) == {"o-1.0", "o-1.1"}
    assert len(ec2.alive()) == 2


def test_what_was_started_twice_where_tokens_do_not_count_is_terminated(
    ec2, make_grid, make_launch
):
    ec2.honours_tokens, ec2.hides_new = False, True
    start(make_grid(), order())
    start(make_grid(), order())
    assert len(ec2.alive()) == 4
    ec2.hides.clear()
    assert set(shown(make_grid())) == {"o-1.0", "o-1.1"}
    assert len(ec2.alive()) == 2
    assert make_launch.said == ["terminates 2 duplicate instances"]


def test_the_same_order_at_other_prices_is_not_made_twice(ec2, make_grid, make_launch):
    ec2.hides_new = True
    start(make_grid(), order())
    start(make_grid(zones=[A, B]), order())
    assert len(ec2.alive()) == 2
    assert any("has this order already" in line for line in make_launch.said)


def test_what_is_not_shown_yet_is_on_its_way_and_can_be_stopped(ec2, make_grid):
    ec2.hides_new = True
    grid = make_grid()
    start(grid, order())
    assert {each.state for each in shown(grid).values()} == {PilotState.STARTING}
    trio.run(grid.stop, ["o-1.1"])
    assert len(ec2.alive()) == 1


def test_who_is_not_shown_when_it_is_named_is_named_later(ec2, make_grid):
    """EC2 does not show new instances everywhere at once, and takes no tags for them."""
    ec2.failures["CreateTags"] = [("InvalidInstanceID.NotFound", "no such instance")]
    grid = make_grid()
    start(grid, order(pilots=2))
    assert len(ec2.alive()) == 2
    names = shown(grid).keys()
    assert names == {"o-1.0", "o-1.1"}
    assert ec2.calls.count("CreateTags") == 2, "they wait for it, and would give up"
    shown(grid)
    assert shown(make_grid()).keys() == names
    assert ec2.calls.count("CreateTags") == 2


def test_who_could_not_be_named_by_a_former_life_is_named_later(ec2, make_grid):
    ec2.failures["CreateTags"] = [("InvalidInstanceID.NotFound", "no such instance")]
    start(make_grid(), order(pilots=2))
    assert shown(make_grid()).keys() == {"o-1.0", "o-1.1"}


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "RequestLimitExceeded"])
def test_who_can_not_be_named_is_seen_and_held_to_the_ceilings(ec2, make_grid, make_launch, code):
    ec2.failures["CreateTags"] = [(code, "no tags")] * 40
    grid = make_grid(max_instances=4)
    start(grid, order(pilots=2))
    assert shown(grid).keys() == {"o-1.0", "o-1.1"}
    start(grid, order(pilots=2))  # made again, as where an answer was lost
    assert len(ec2.alive()) == 2
    assert any("could not tag 2 instances with names" in line for line in make_launch.said)
    grid._config = replace(grid._config, max_instances=1, over_ceiling_s=0.0)
    shown(grid)
    assert len(ec2.alive()) == 1


@pytest.mark.thorough
def test_more_instances_than_a_tag_can_name(ec2, make_grid):
    grid = make_grid(max_instances=30)
    start(grid, order(pilots=27))
    names = {f"o-1.{number}" for number in range(27)}
    assert shown(make_grid()).keys() == names
    assert ec2.calls.count("CreateTags") == 3


@pytest.mark.thorough
def test_what_one_instance_is_told_is_what_the_gateway_sees(ec2, make_grid):
    start(make_grid(max_instances=14), order(pilots=14))
    for each in shown(make_grid()).values():
        [tag] = ec2.direct.describe_tags(
            Filters=[
                {"Name": "resource-id", "Values": [each.grid_id]},
                {"Name": "key", "Values": ["gridfed:pilots"]},
            ]
        )["Tags"]
        first, *ids = tag["Value"].split()
        assert each.name == f"o-1.{int(first) + ids.index(each.grid_id)}"


# --- capacity ------------------------------------------------------------------------------------


def test_another_place_or_type_takes_what_one_has_no_room_for(ec2, make_grid):
    ec2.capacity = {(LARGE, A): 1, (LARGE, B): 1}
    grid = make_grid(zones=[A, B], instance_types={LARGE: 1, XLARGE: 4})
    start(grid, order(pilots=4))
    assert sorted(each.slots for each in shown(grid).values()) == [1, 1, 4, 4]


def test_a_part_of_an_order_is_started_and_the_rest_is_said(ec2, make_grid):
    ec2.capacity = {(LARGE, A): 2}
    grid = make_grid()
    found = fault(grid, order(pilots=3))
    assert found.failure_class is FailureClass.ELSEWHERE
    assert "2 of 3 instances were started: InsufficientInstanceCapacity (c7i.large" in str(found)
    assert set(shown(grid)) == {"o-1.0", "o-1.1"}


def test_spot_and_on_demand_by_their_share(ec2, make_grid):
    ec2.listed, ec2.spot = {LARGE: "0.09"}, {(LARGE, A): "0.03"}
    grid = make_grid(market="mixed", spot_share=0.75)
    start(grid, order(pilots=4))
    assert [each.get("InstanceLifecycle") for each in ec2.alive()].count("spot") == 3


def test_a_pilot_has_the_slots_memory_and_gpus_of_its_shape(ec2, make_grid):
    grid = make_grid(instance_types=[LARGE, XLARGE])  # two and four vCPUs
    start(grid, order(pilots=1, slots=3))
    assert shown(grid)["o-1.0"].slots == 4
    for shape in ({"slots": 5}, {"memory_bytes": 1 << 40}, {"gpus": 1}):
        found = fault(grid, order("o-2", 1, **shape))
        assert (found.failure_class, "none of" in str(found)) == (FailureClass.NEVER, True)


# --- ceilings ------------------------------------------------------------------------------------


def test_no_more_instances_than_the_ceiling(ec2, make_grid):
    grid = make_grid(max_instances=3)
    start(grid, order())
    assert trio.run(grid.capacity, Shape()).slots_now == 1
    found = fault(grid, order("o-2"))
    assert "1 of 2 instances were started: max_instances" in str(found)
    found = fault(grid, order("o-3", 1))
    assert (found.failure_class, "max_instances" in str(found)) == (FailureClass.ELSEWHERE, True)
    assert len(ec2.alive()) == 3
    assert trio.run(grid.capacity, Shape()).slots_now == 0


def test_no_more_spend_than_the_ceiling_at_prices_of_now(ec2, make_grid):
    ec2.listed, ec2.spot = {LARGE: "0.10"}, {(LARGE, A): "0.03", (LARGE, B): "0.05"}
    table = {"market": "spot", "zones": [A, B], "max_spend_per_hour": "0.10 USD"}
    start(make_grid(**table), order(pilots=2))  # at most 0.10, wherever they are: they are in A
    found = fault(make_grid(**table), order("o-2", 2))
    assert "1 of 2 instances were started: max_spend_per_hour" in str(found)
    ec2.spot = {(LARGE, A): "0.08", (LARGE, B): "0.08"}
    found = fault(make_grid(**table), order("o-3", 1))
    assert (found.failure_class, "max_spend" in str(found)) == (FailureClass.ELSEWHERE, True)
    assert len(ec2.alive()) == 3


def test_what_costs_too_much_now_is_let_go_and_then_ended(ec2, make_grid, make_launch, monkeypatch):
    from gateway.grids.ec2 import grid as module

    monkeypatch.setattr(module, "SPOT_S", 0.0)
    ec2.listed, ec2.spot = {LARGE: "0.10"}, {(LARGE, A): "0.03"}
    table = {"market": "spot", "max_spend_per_hour": "0.10 USD"}
    grid = make_grid(**table)
    start(grid, order(pilots=3))
    assert {each.state for each in shown(grid).values()} == {PilotState.RUNNING}
    ec2.spot = {(LARGE, A): "0.045"}
    [gone] = [each for each in shown(grid).values() if each.state is PilotState.ENDING]
    assert "max_spend_per_hour at current prices" in gone.fault
    assert gone.ends_at_s == pytest.approx(time.time() + 600, abs=30)
    ec2.spot = {(LARGE, A): "0.03"}
    assert shown(grid)[gone.name].state is PilotState.ENDING, (
        "it has been told, and gets nothing more"
    )
    assert len(ec2.alive()) == 3
    impatient = make_grid(over_ceiling="0s", max_price="0.02 USD", **table)
    shown(impatient)
    assert not ec2.alive()
    assert any("exceeds max_price" in line for line in make_launch.said)
    found = fault(impatient, order("o-2"))
    assert (found.failure_class, "max_price" in str(found)) == (FailureClass.ELSEWHERE, True)
    assert trio.run(impatient.capacity, Shape()).slots_now == 0


def test_one_that_does_not_end_when_its_time_is_over_is_terminated(ec2, make_grid, monkeypatch):
    from gateway.grids.ec2 import grid as module

    grid = make_grid()
    start(grid, Order("o-1", 1, Shape(), 60.0))
    [before] = shown(grid).values()
    assert before.ends_at_s == before.paid_at_s + 60
    monkeypatch.setattr(module, "LATE_S", -60.0)
    shown(grid)
    assert not ec2.alive()


def test_in_a_mixed_market_each_counts_as_if_on_demand(ec2, make_grid):
    ec2.listed, ec2.spot = {LARGE: "0.09"}, {(LARGE, A): "0.03"}
    grid = make_grid(market="mixed", spot_share=0.5, max_spend_per_hour="0.20 USD")
    found = fault(grid, order(pilots=4))
    assert "2 of 4 instances were started: max_spend_per_hour" in str(found)


def test_a_ceiling_without_prices_starts_nothing(ec2, make_grid):
    found = fault(make_grid(max_spend_per_hour="1 USD"), order())
    assert "no price is known" in str(found)
    ec2.failures["GetProducts"] = [("AccessDeniedException", "no")]
    found = fault(make_grid(max_spend_per_hour="1 USD"), order())
    assert found.failure_class is FailureClass.NEVER
    assert "docs/grids_ec2.md" in str(found)
    assert not ec2.alive()


def test_prices_from_a_file(ec2, make_grid, tmp_path):
    listed = {"currency": "CHF", "on_demand": {LARGE: "0.09", XLARGE: "0.40"}}
    (tmp_path / "prices").write_text(json.dumps(listed))
    table = {"prices": str(tmp_path / "prices"), "instance_types": {LARGE: 1, XLARGE: 8}}
    assert trio.run(make_grid(**table).price_nanos) == (50_000_000, "CHF")
    assert "from 0.0500 CHF a slot-hour" in trio.run(make_grid(**table).check)
    start(make_grid(max_spend_per_hour="1 CHF", **table), order())
    for ceiling in ("max_spend_per_hour", "max_price"):
        found = fault(make_grid(**{ceiling: "1 USD"}, **table), order("o-2"))
        assert found.failure_class is FailureClass.NEVER
        assert f"{ceiling} is in USD, prices in CHF: use one currency for both" in str(found)


def test_the_price_is_that_of_what_runs(ec2, make_grid):
    ec2.listed, ec2.spot = {LARGE: "0.09"}, {(LARGE, A): "0.03", (LARGE, B): "0.02"}
    table = {"market": "spot", "zones": [A, B], "instance_types": {LARGE: 2}}
    assert isinstance(make_grid(**table), Priced)
    assert trio.run(make_grid(**table).price_nanos) == (10_000_000, "USD")
    start(make_grid(**{**table, "zones": [A]}), order())
    assert trio.run(make_grid(**table).price_nanos) == (15_000_000, "USD")


# --- whose it is ---------------------------------------------------------------------------------


def test_strays_are_shown_and_stopped_by_their_mark_and_others_left_alone(ec2, make_grid):
    start(make_grid("m-1"), order("o-old"))
    start(make_grid("m-2"), order("o-old"))
    ec2.direct.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)
    grid = make_grid("m-1")
    strays = shown(grid)
    assert set(strays) == {"o-old.0", "o-old.1"}
    trio.run(grid.stop, list(strays))
    assert {each.state for each in shown(grid).values()} <= {PilotState.ENDING, PilotState.ENDED}
    assert not ec2.alive("m-1")
    assert len(ec2.alive("m-2")) == 2
    assert len(ec2.alive()) == 3


def test_one_that_ec2_has_forgotten_does_not_keep_others_from_being_stopped(ec2, make_grid):
    grid = make_grid()
    start(grid, order(pilots=3))
    ec2.failures["TerminateInstances"] = [("InvalidInstanceID.NotFound", "i-1 does not exist")]
    trio.run(grid.stop, order(pilots=3).names())
    assert not ec2.alive()


def test_what_a_former_life_left_behind_is_removed(ec2, make_grid, monkeypatch):
    from gateway.grids.ec2 import grid as module

    start(make_grid(user_data_head="true"), order())
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "gridfed:mark", "Value": "m-1"}]}]
    ec2.direct.create_volume(AvailabilityZone=A, Size=1, TagSpecifications=tags)
    other = ec2.direct.create_volume(AvailabilityZone=A, Size=1)["VolumeId"]
    monkeypatch.setattr(module, "TIDY_AGE_S", 0.0)
    trio.run(make_grid().check)
    assert not ec2.direct.describe_launch_templates()["LaunchTemplates"]
    loose = ec2.direct.describe_volumes(Filters=[{"Name": "status", "Values": ["available"]}])
    assert [each["VolumeId"] for each in loose["Volumes"]] == [other]


# --- faults --------------------------------------------------------------------------------------


def test_throttling_is_borne_and_then_said(ec2, make_grid):
    throttled = ("RequestLimitExceeded", "Request limit exceeded.")
    ec2.failures["CreateFleet"] = [throttled]
    start(make_grid(), order())  # by the SDK's own second attempt
    ec2.failures["DescribeInstances"] = [throttled] * 2
    with pytest.raises(GridFault, match="RequestLimitExceeded") as caught:
        shown(make_grid())
    assert caught.value.failure_class is FailureClass.AGAIN


@pytest.mark.parametrize(
    ("code", "blame", "says"),
    [
        ("InsufficientInstanceCapacity", FailureClass.ELSEWHERE, "more instance_types"),
        ("VcpuLimitExceeded", FailureClass.ELSEWHERE, "quota"),
        ("MaxSpotInstanceCountExceeded", FailureClass.ELSEWHERE, "quota"),
        ("SpotMaxPriceTooLow", FailureClass.ELSEWHERE, "SpotMaxPriceTooLow"),
        ("InvalidAMIID.NotFound", FailureClass.NEVER, "image"),
        ("InvalidParameterValue", FailureClass.NEVER, "InvalidParameterValue"),
        ("UnauthorizedOperation", FailureClass.NEVER, "docs/grids_ec2.md"),
        ("InvalidLaunchTemplateName.NotFoundException", FailureClass.AGAIN, "retried next time"),
    ],
)
def test_whose_fault_it_is(ec2, make_grid, code, blame, says):
    ec2.failures["CreateFleet"] = [(code, f"something {'x' * 100} about it")]
    found = fault(make_grid(), order())
    assert found.failure_class is blame
    assert says in str(found)
    assert "x" * 100 not in str(found)
    assert not ec2.alive()


def test_wrong_credentials_are_said_without_them(ec2, make_grid):
    for profile in ("bad", "nobody"):
        found = fault(make_grid(profile=profile), order())
        assert found.failure_class is FailureClass.NEVER
        assert "credentials" in str(found)
        assert "AKIABAD" not in str(found)
        assert "bad-secret" not in str(found)


def test_a_launch_template_of_the_owner(ec2, make_grid):
    for name, more in (("theirs", {}), ("busy", {"UserData": "ZXhpdA=="})):
        ec2.direct.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={
                "ImageId": "ami-87654321",
                "KeyName": "key",
                "TagSpecifications": [
                    {"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "risk"}]}
                ],
                **more,
            },
        )
    start(make_grid(launch_template="theirs", image=""), order())
    for each in ec2.alive():
        assert each["ImageId"] == "ami-87654321"
        assert {"Key": "team", "Value": "risk"} in each["Tags"]
    found = fault(make_grid(launch_template="busy"), order("o-2"))
    assert (found.failure_class, "user_data_head" in str(found)) == (FailureClass.NEVER, True)
    for table in ({"launch_template": "none"}, {"launch_template": "lt-0123456789abcdef0"}):
        found = fault(make_grid(**table), order("o-3"))
        assert (found.failure_class, "`launch_template`" in str(found)) == (
            FailureClass.NEVER,
            True,
        )


def test_check_says_what_it_is_and_what_may_not_be(ec2, make_grid):
    ec2.listed = {LARGE: "0.09"}
    text = trio.run(make_grid().check)
    assert "c7i.large, on-demand, from 0.0900 USD a slot-hour; 0 of at most 10" in text
    ec2.failures["CreateFleet"] = [("UnauthorizedOperation", "no")]
    with pytest.raises(GridFault, match="docs/grids_ec2"):
        trio.run(make_grid().check)
    with pytest.raises(GridFault, match=r"t2\.small is not a Nitro instance type"):
        trio.run(make_grid(instance_types=["t2.small"]).check)


def test_why_one_has_ended(ec2, make_grid):
    grid = make_grid(market="spot")
    start(grid, order())
    ec2.interrupt(shown(grid)["o-1.0"].grid_id, 0.0, says=False)
    ends_at_s = time.monotonic() + 200
    while shown(grid)["o-1.0"].state is not PilotState.ENDED:
        assert time.monotonic() < ends_at_s
    found = shown(grid)["o-1.0"]
    assert "EC2 reclaimed the spot instance" in found.fault
    assert shown(grid)["o-1.1"].state is PilotState.RUNNING


# --- scheduled events ----------------------------------------------------------------------------


def instance_of(grid, name):
    return shown(grid)[name].grid_id


@pytest.mark.parametrize("code", events.CODES)
def test_a_pilot_leaves_before_an_event_of_its_instance(ec2, make_grid, code):
    grid = make_grid()
    assert isinstance(grid, Maintained)
    assert trio.run(grid.leaving) == {}
    assert "DescribeInstanceStatus" not in ec2.calls, "there is no instance to ask for"
    start(grid, order())
    ec2.events[instance_of(grid, "o-1.1")] = code, "maintenance", events.LEAD_S - 5
    found = trio.run(grid.leaving)
    assert list(found) == ["o-1.1"]
    assert f"({code}) from " in found["o-1.1"]
    assert trio.run(grid.leaving) == found
    assert ec2.calls.count("DescribeInstanceStatus") == 1, "it is asked for again at once"


@pytest.mark.parametrize(
    ("code", "text", "in_s"),
    [
        ("system-reboot", "maintenance", 86_400.0),
        ("system-reboot", "[Completed] maintenance", -60.0),
        ("instance-stop", "[Canceled] maintenance", 60.0),
        ("something-new", "maintenance", 60.0),
    ],
)
def test_an_event_that_is_far_or_over_changes_nothing(ec2, make_grid, code, text, in_s):
    grid = make_grid()
    start(grid, order())
    ec2.events[instance_of(grid, "o-1.0")] = code, text, in_s
    assert trio.run(grid.leaving) == {}


def test_events_that_may_not_be_asked_for_are_a_fault_with_advice(ec2, make_grid):
    grid = make_grid()
    start(grid, order())
    shown(grid)
    ec2.failures["DescribeInstanceStatus"] = [("UnauthorizedOperation", "no")] * 2
    with pytest.raises(GridFault, match=r"docs/grids_ec2\.md"):
        trio.run(grid.leaving)
