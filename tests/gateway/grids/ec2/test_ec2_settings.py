"""The table [pool.ec2]: the accepted keys, and refusals with the key's name."""

import re
import subprocess
import sys

import pytest

from gateway.base.values import SettingError
from gateway.grids.ec2 import KIND
from gateway.grids.ec2.settings import Ec2Market, Place, read

TABLE = {
    "region": "eu-central-1",
    "image": "ami-1",
    "instance_types": ["c7i.large"],
    "max_instances": 4,
}


def test_what_is_not_said_is_the_cautious_choice():
    found = read(TABLE)
    assert (found.market, found.spot_share) == (Ec2Market.ON_DEMAND, 0.0)
    assert (found.types, found.places) == ({"c7i.large": 0}, (Place(),))
    assert (found.max_spend_nanos, found.prices) == (None, "live")
    assert found.leave_on_rebalance


def test_all_that_can_be_said(tmp_path):
    (tmp_path / "prices.json").touch()
    found = read(
        {
            **TABLE,
            "endpoint_url": "https://ec2.example.org",
            "profile": "grids",
            "launch_template": "lt-1",
            "launch_template_version": "7",
            "subnets": ["subnet-1", "subnet-2"],
            "security_groups": ["sg-1"],
            "key_name": "ops key",
            "instance_profile": "arn:aws:iam::1:instance-profile/worker",
            "instance_types": {"c7i.large": 2, "c7i.xlarge": 0},
            "market": "mixed",
            "spot_share": 0.8,
            "strategy": "lowest-price",
            "max_spend_per_hour": "12.5 EUR",
            "prices": str(tmp_path / "prices.json"),
            "python": "/srv/bin/python",
            "user_data_head": "mount /data",
            "environment_file": "/etc/gridfed/worker.env",
            "tags": {"cost-centre": "4711"},
            "interruption_poll": "2s",
            "leave_on_rebalance": False,
        }
    )
    assert (found.max_spend_nanos, found.currency) == (12_500_000_000, "EUR")
    assert found.places == (Place(subnet="subnet-1"), Place(subnet="subnet-2"))
    assert (found.spot_share, found.interruption_poll_s) == (0.8, 2.0)
    assert found.types == {"c7i.large": 2, "c7i.xlarge": 0}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"regoin": "x"}, "unknown key 'regoin'"),
        ({"region": None}, "region is None"),
        ({"region": "Frankfurt"}, 'for example "eu-central-1"'),
        ({"image": ""}, "requires image, or a launch_template"),
        ({"image": 7}, "image is 7"),
        ({"instance_types": []}, "requires instance_types"),
        ({"instance_types": ["large"]}, "'large'"),
        ({"instance_types": {"c7i.large": -1}}, "instance_types.c7i.large is -1"),
        ({"instance_types": {"c7i.large": 1.5}}, "whole number"),
        ({"max_instances": 0}, "max_instances is 0: it must be 1 to 5000"),
        ({"max_instances": True}, "max_instances must be a number"),
        ({"zones": ["eu-central-1a"], "subnets": ["s-1"]}, "exclude each other"),
        ({"zones": "eu-central-1a"}, "zones must be a list"),
        ({"zones": ["eu-central-1a", "eu-central-1a"]}, "repeated"),
        ({"market": "cheap"}, "on-demand, spot, mixed"),
        ({"market": "mixed"}, "requires spot_share"),
        ({"market": "mixed", "spot_share": 1.1}, "spot_share is 1.1"),
        ({"market": "spot", "spot_share": 0.5}, "mixed"),
        ({"strategy": "best"}, "price-capacity-optimized"),
        ({"max_spend_per_hour": 40}, 'for example "40 USD"'),
        ({"max_spend_per_hour": "-1 USD"}, "negative"),
        ({"max_price": 1}, 'for example "0.06 USD"'),
        ({"max_price": "1 EUR", "max_spend_per_hour": "1 USD"}, "max_price is in EUR"),
        ({"over_ceiling": "2d"}, "over_ceiling"),
        ({"prices": "/nowhere/prices.json"}, "does not exist"),
        ({"python": "bin/python"}, "absolute path"),
        ({"user": "a b"}, "user is 'a b'"),
        ({"user_data_head": "x" * 9000}, "8192 bytes"),
        ({"tags": {"with space": "x"}}, "letters, digits"),
        ({"tags": {"gridfed:mark": "x"}}, "are reserved"),
        ({"tags": {"a": 1}}, "tags.a"),
        ({"interruption_poll": "1ms"}, "interruption_poll"),
        ({"interruption_poll": "2h"}, "0.1s to 60s"),
        ({"leave_on_rebalance": "yes"}, "true or false"),
        ({"endpoint_url": "ftp://x"}, "http:// or https://"),
        ({"endpoint_url": "https://user:password@x"}, "without a password"),
        (
            {
                "instance_types": [f"c7i.{n}xlarge" for n in range(2, 36)],
                "zones": [f"eu-central-1{letter}" for letter in "abcdefghi"],
            },
            "are 306: the limit is 300",
        ),
    ],
)
def test_what_is_refused(change, says):
    with pytest.raises(SettingError, match=re.escape(says)):
        read({**TABLE, **change})


@pytest.mark.real
def test_the_sdk_is_imported_by_who_opens_such_a_pool_alone():
    code = "import sys, gateway.grids.ec2, gateway.grids.ec2.host; sys.exit('boto3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert KIND.needs == "aws"
