"""docs/grids_slurm.md is true: each key with its default and bounds, and each option."""

import re
from pathlib import Path

import pytest

from gateway.base.values import SettingError
from gateway.grids.slurm import settings
from gateway.grids.slurm.settings import OPTIONS, read_settings

TEXT = (Path(__file__).parents[4] / "docs" / "grids_slurm.md").read_text()
KEYS = TEXT.partition("## Keys of `[pool.slurm]`")[2].partition("\n`options` may have")[0]
ROWS = {
    name: [cell.strip() for cell in line.split("|")[2:4]]
    for line in KEYS.splitlines()
    for name in re.findall(r"`(\w+)`", line.split("|")[1] if line.startswith("| `") else "")
}
LEAST = {"partition": "compute", "python": "/shared/bin/python"}


def test_every_key_is_documented():
    assert set(ROWS) == set(settings._KEYS)


def test_every_option_is_documented():
    listed = TEXT.partition("`options` may have")[2].partition("Others are refused")[0]
    assert set(re.findall(r"`([\w-]+)`", listed)) == set(OPTIONS)


@pytest.mark.parametrize(
    ("key", "attribute", "shown"),
    [
        ("cpus_per_slot", "cpus_per_slot", 1),
        ("warn", "warn_s", 60.0),
        ("folder", "folder", "/tmp"),
        ("requeue", "requeue", False),
        ("orders_max", "orders_max", 30),
        ("timeout", "timeout_s", 30.0),
    ],
)
def test_defaults_are_as_documented(key, attribute, shown):
    assert getattr(read_settings(LEAST), attribute) == shown
    said = ROWS[key][1].split(";")[0].strip("` ")
    assert said.removesuffix("s") == str(shown).removesuffix(".0").lower() or said == str(shown)


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("cpus_per_slot", (1, 1024), (0, 1025)),
        ("walltime", ("2m", "365d"), ("1m", "366d")),
        ("warn", ("0s", "18h"), ("19h",)),
        ("array_max", (1, 100_000), (0, 100_001)),
        ("orders_max", (1, 6_000), (0, 6_001)),
        ("timeout", ("1s", "5m"), ("0s", "6m")),
    ],
)
def test_bounds_are_as_documented(key, right, wrong):
    bounds = ROWS[key][1].replace(",", "")
    for value in right:
        read_settings({**LEAST, key: value})
        assert str(value) in bounds
    for value in wrong:
        with pytest.raises(SettingError):
            read_settings({**LEAST, key: value})
