"""User data, templates, fleets, names: the requests made from an order."""

import contextlib
import os
import signal
import subprocess
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.grids.contract import GridFault, Launch, Order, Shape
from gateway.grids.ec2 import host
from gateway.grids.ec2.launching import (
    fleet_request,
    groups,
    name_rest,
    number_in,
    template_data,
    template_name,
    token,
    user_data,
)
from gateway.grids.ec2.prices import InstanceOffer
from gateway.grids.ec2.seen import read_instance
from gateway.grids.ec2.settings import Ec2Config, Ec2Market, Place
from gateway.worker.metadata import MetadataError

CONFIG = Ec2Config("eu-central-1", {"c7i.large": 2}, 10, image="ami-1")
ODD = "a 'b' \"c\" $HOME `id` $(id) \\n\nnext é"
IDS = st.sets(st.integers(0, 16**17 - 1).map("i-{:017x}".format), max_size=60)


@pytest.fixture
def launch(tmp_path):
    return Launch("paris", "cloud", "m", "tls+tcp://gw:1", {"ODD": ODD}, tmp_path, print)


def script(config, launch, limit_s=None):
    slots = {"c7i.large": 2, "c7i.xlarge": 4}
    return user_data(config, launch, Shape(tags={"gpu": 2}), slots, limit_s)


def run(text, folder, **programs):
    """Run user data as an instance with these programs does; its leftovers are ended."""
    for name, does in {"shutdown": f"echo $@ >> {folder}/off", **programs}.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o700)
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    with subprocess.Popen(["bash", "-c", text], env=path, start_new_session=True) as process:
        try:
            return process.wait(200)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.real
def test_user_data_gives_the_environment_as_it_is_and_ends_the_instance(launch, tmp_path):
    text = script(replace(CONFIG, python=str(tmp_path / "python")), launch)
    run(text, tmp_path, python=f'printf %s "$ODD" > {tmp_path}/seen; exit 3')
    assert (tmp_path / "seen").read_text() == ODD
    assert (tmp_path / "off").read_text() == "-h now\n"


@pytest.mark.real
def test_an_instance_ends_also_when_its_head_does(launch, tmp_path):
    assert run(script(replace(CONFIG, user_data_head="exit 7"), launch), tmp_path) == 7
    assert (tmp_path / "off").exists()


@pytest.mark.real
def test_an_instance_ends_also_when_its_head_hangs(launch, tmp_path):
    text = script(
        replace(CONFIG, user_data_head=f"until [ -e {tmp_path}/off ]; do :; done"), launch
    )
    assert "(sleep 1800; off) &" in text
    run(text.replace("sleep 1800", "sleep 0.1"), tmp_path)
    assert (tmp_path / "off").exists()


@pytest.mark.real
def test_a_head_that_has_ended_is_not_waited_for(launch, tmp_path):
    config = replace(CONFIG, user_data_head=":", python=str(tmp_path / "python"))
    text = script(config, launch).replace("sleep 1800", "sleep 1")
    run(text, tmp_path, python=f"sleep 1.5; cp {tmp_path}/off {tmp_path}/too-soon; :")
    assert not (tmp_path / "too-soon").exists()


@pytest.mark.real
def test_a_worker_is_told_before_the_time_is_over_and_then_it_is(launch, tmp_path):
    config = replace(CONFIG, python=str(tmp_path / "python"))
    text = script(config, launch, 36_000.0)
    assert "(sleep 36000; off) &" in text
    assert f"timeout --foreground $((35940 - SECONDS)) {tmp_path}/python" in text
    told = f"trap 'touch {tmp_path}/told' TERM; while [ ! -e {tmp_path}/off ]; do sleep 0.05; done"
    soon = text.replace("sleep 36000", "sleep 3").replace("$((35940 - SECONDS))", "1")
    run(soon, tmp_path, python=told)
    assert (tmp_path / "told").exists()
    assert (tmp_path / "off").exists()


def test_with_a_file_on_the_instance_no_secret_is_in_user_data(launch):
    config = replace(CONFIG, environment_file="/etc/gridfed/worker.env")
    text = script(config, launch)
    assert "ODD" not in text
    assert ". /etc/gridfed/worker.env || exit 1" in text


@pytest.mark.real
def test_a_user_can_not_ask_for_metadata_or_nothing_runs(launch, tmp_path):
    text = script(replace(CONFIG, user="worker", python=str(tmp_path / "python")), launch)
    assert "OUTPUT -d 169.254.169.254 -m owner --uid-owner worker -j REJECT || exit 1" in text
    assert run(text, tmp_path, python=f"touch {tmp_path}/ran", iptables="exit 1") == 1
    assert not (tmp_path / "ran").exists()


def test_spot_instances_listen_for_interruptions_and_others_need_not(launch):
    assert "--interruptions" not in script(CONFIG, launch)
    spot = replace(CONFIG, market=Ec2Market.SPOT)
    assert "--interruptions @metadata@ --interruptions-s 5 --heed-rebalance" in script(spot, launch)
    assert "--heed" not in script(replace(spot, leave_on_rebalance=False), launch)


def test_user_data_that_is_too_long_is_refused(launch):
    with pytest.raises(GridFault, match="the limit is 16,384"):
        script(CONFIG, replace(launch, environment={"A": "x" * 20_000}))
    with pytest.raises(GridFault, match="valid variable name"):
        script(CONFIG, replace(launch, environment={"A B": "x"}))


def test_a_template_keeps_what_the_owner_says_and_not_what_we_must(launch):
    base = {
        "InstanceInitiatedShutdownBehavior": "stop",
        "MetadataOptions": {"HttpTokens": "optional", "HttpPutResponseHopLimit": 2, "State": "x"},
        "InstanceMarketOptions": {"MarketType": "spot"},
        "EbsOptimized": True,
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": "gridfed:mark", "Value": "another"}]}
        ],
    }
    data = template_data(CONFIG, launch, "#!", base)
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["MetadataOptions"] == {
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 2,
        "HttpEndpoint": "enabled",
        "InstanceMetadataTags": "enabled",
    }
    assert data["EbsOptimized"]
    assert "InstanceMarketOptions" not in data
    for each in data["TagSpecifications"]:
        assert {"Key": "gridfed:mark", "Value": "m"} in each["Tags"]
    assert template_name("m", data) == template_name("m", dict(reversed(data.items())))
    assert template_name("m", data) != template_name("m", {**data, "ImageId": "ami-2"})


def test_a_fleet_has_each_pool_in_order_of_price():
    offers = [
        InstanceOffer("a", Place("z1"), 1, 1),
        InstanceOffer("b", Place("z1", "subnet-1"), 1, 2),
        InstanceOffer("a", Place(), 1, 3),
    ]
    config = replace(CONFIG, market=Ec2Market.MIXED, spot_share=0.5)
    found = fleet_request(config, "m", Order("o", 5, Shape()), "t", offers, 5)
    [one] = found["LaunchTemplateConfigs"]
    assert one["Overrides"] == [
        {"InstanceType": "a", "Priority": 0.0, "AvailabilityZone": "z1"},
        {"InstanceType": "b", "Priority": 1.0, "SubnetId": "subnet-1"},
        {"InstanceType": "a", "Priority": 2.0},
    ]
    target = found["TargetCapacitySpecification"]
    assert target["SpotTargetCapacity"] + target["OnDemandTargetCapacity"] == 5
    assert found["ClientToken"] == token("m", "o")
    assert len(token("m" * 40, "o" * 40)) <= 64


@given(IDS, st.integers(0, 1000))
def test_each_learns_its_own_number_and_no_tag_is_too_long(ids, first):
    numbers = {each: first + at for at, each in enumerate(sorted(ids))}
    told = {}
    for instances, tag in groups(numbers):
        assert len(tag) <= 256
        for each in instances:
            told[each] = number_in(tag, each)
    assert told == numbers


@given(IDS, st.sets(st.integers(0, 30)))
def test_who_has_no_number_gets_one_that_nobody_has(ids, taken):
    named = {f"n{each}": each for each in taken}
    found = name_rest(named, ids)
    assert found.keys() == ids
    assert len(set(found.values())) == len(ids)
    assert not set(found.values()) & taken


def test_groups_of_numbers_with_gaps():
    assert groups({"i-a": 0, "i-b": 2, "i-c": 3}) == [
        (["i-a"], "0 i-a"),
        (["i-b", "i-c"], "2 i-b i-c"),
    ]
    assert number_in("2 i-b i-c", "i-z") is None
    assert number_in("x i-b", "i-b") is None


def test_the_host_finds_its_slots_and_waits_for_its_name():
    assert host.slots_of("c7i.large=2,c7i.xlarge=4", "c7i.xlarge") == 4
    with pytest.raises(MetadataError, match=r"this instance is a m7i\.large"):
        host.slots_of("c7i.large=2", "m7i.large")
    answers = iter(["o-1", None, "o-1", "7 i-x i-me"])
    assert host.wait_for_name(lambda _path: next(answers), "i-me", float("inf"), 0.0) == "o-1.8"
    with pytest.raises(MetadataError, match="this instance has no name"):
        host.wait_for_name(lambda _path: None, "i-me", 0.0)
    assert host.fill_in(["a", "@name@"], {"@name@": "n"}) == ["a", "n"]


def test_the_host_asks_again_while_its_metadata_does_not_answer():
    facts, asked = {"instance-id": "i-me", "instance-type": "c7i.large"}, set()

    def need(path):
        if path not in asked:
            asked.add(path)
            raise MetadataError("the instance metadata service does not answer: timed out")
        return facts[path]

    assert host.identify(need, float("inf"), 0.0) == ("i-me", "c7i.large")
    asked.clear()
    with pytest.raises(MetadataError, match="timed out"):
        host.identify(need, 0.0, 0.0)


def test_ec2_is_told_the_highest_price_of_spot_instances_and_no_other():
    config = replace(CONFIG, market=Ec2Market.SPOT, spot_share=1.0, max_price_nanos=12_500_000)
    offers = [InstanceOffer("a", Place("z"), 4, 1)]

    def told(config):
        found = fleet_request(config, "m", Order("o", 1, Shape()), "t", offers, 1)
        return found["LaunchTemplateConfigs"][0]["Overrides"][0].get("MaxPrice")

    assert told(config) == "0.05"
    assert told(replace(config, spot_share=0.0)) is None
    assert told(replace(config, max_price_nanos=None)) is None


def test_a_limit_is_told_to_the_instance_and_read_again():
    order = Order("o", 1, Shape(), 3_600.5)
    found = fleet_request(CONFIG, "m", order, "t", [InstanceOffer("a", Place("z"), 1, 1)], 1)
    [tags] = [e["Tags"] for e in found["TagSpecifications"] if e["ResourceType"] == "instance"]
    launched = datetime(2026, 11, 22, tzinfo=UTC)
    seen = read_instance({"InstanceId": "i-1", "Tags": tags, "LaunchTime": launched})
    assert seen.sighting(0, 1).ends_at_s == launched.timestamp() + 3_600


def test_what_ec2_says_of_an_instance_may_be_little():
    found = read_instance({"InstanceId": "i-1"})
    assert (found.state, found.number, found.order) == ("pending", None, "")
    assert found.ends_at_s is None
