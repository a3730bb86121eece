"""The table [pool.scale]."""

import pytest

from gateway.base.values import SettingError
from gateway.config.scale import ScaleConfig, read_scale
from policies.placement.autoscaling import ScalingRules


def test_all_keys():
    found = read_scale(
        {
            "max": 400,
            "min": 4,
            "pilot_slots": 4,
            "waste": 0.2,
            "start": "45s",
            "idle": "2m",
            "step": "1h",
            "walltime": "8h",
            "starts_per_minute": 50,
            "stops_per_minute": 60,
            "hourly_cost": "40 USD",
            "markup": 1.2,
            "dial": "tls+tcp://gw.example:7461",
            "dial_for": "10m",
            "look": "10s",
            "python": "3.12",
            "token_file": "t",
            "ca_file": "c",
            "dry_run": True,
        }
    )
    rules = ScalingRules(400, 4, 4, 0.2, 120.0, 3600.0, 50, 60, 40 * 10**9)
    assert found == ScaleConfig(
        *(rules, 45.0, 8 * 3600.0, "tls+tcp://gw.example:7461", 600.0, 10.0),
        *("3.12", "t", "c", "USD", True, 1.2),
    )


def test_defaults():
    assert read_scale({"max": 10}) == ScaleConfig(ScalingRules(10))


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({}, "max is missing"),
        ({"max": 0}, "max is 0: it must be 1 to"),
        ({"max": 2.5}, "max is 2.5: it must be a whole number"),
        ({"max": True}, "max must be a number"),
        ({"max": 4, "min": 5}, "min is 5: it must be 0 to 4"),
        ({"max": 4, "pilot_slots": 8}, "max is 4: it must be at least the 8 slots of a pilot"),
        ({"max": 4, "waste": 0}, "waste is 0: it must be 0.001 to 10"),
        ({"max": 4, "start": 30}, "start: 30 has no unit: write 30s"),
        ({"max": 4, "start": "0s"}, "start is 0s: it must be 1s to 1h"),
        ({"max": 4, "hourly_cost": "lots"}, "hourly_cost"),
        ({"max": 4, "hourly_cost": "0 USD"}, "it must be above zero"),
        ({"max": 4, "markup": 0}, "markup is 0: it must be 0.01 to 100"),
        ({"max": 4, "dial": "gw.example"}, "dial"),
        ({"max": 4, "python": "python3"}, 'it must be a minor version, as in "3.11"'),
        ({"max": 4, "dry_run": "yes"}, "dry_run must be true or false"),
        ({"max": 4, "token_file": 7}, "token_file must be text of up to 4,096 characters"),
        ({"max": 4, "slots": 7}, "unknown key 'slots'"),
    ],
)
def test_mistakes(table, text):
    with pytest.raises(SettingError, match=text):
        read_scale(table)
