"""The table [reservations]: its keys, and refusals with line and key."""

import pytest

from gateway.base.values import ConfigError
from gateway.config.site import load
from policies.access.claims import Amount
from policies.reservations.reservations import ReservationRules

WHOLE = """\
[site]
name = "london"

[reservations]
slots = 40
longest = "2h"
ahead = "7d"
unused_factor = 0.5
cancel_factor = 0
hold_s = 10
drain_lead_s = 60
grace_s = 5
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return load(str(path)).reservations

    return read


def test_all_that_it_may_say(read):
    assert read(WHOLE) == ReservationRules(Amount(40), 7200.0, 604_800.0, 500_000, 0, 10, 60, 5)
    assert read("[reservations]\n") == ReservationRules()
    assert read("") is None


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('slots = "150%"', "line 2: [reservations]: slots: '150%' is not a number of slots"),
        ("slots = -1", "line 2: [reservations]: slots: -1 is not a number of slots"),
        ('longest = "8d"', "line 2: [reservations]: longest is 8d: it must be 1m to 7d"),
        ("ahead = 7", "line 2: [reservations]: ahead: 7 has no unit: write 7s for"),
        ("unused_factor = 1.5", "line 2: [reservations]: unused_factor is 1.5: it must be 0 to 1"),
        ("cancel_factor = true", "line 2: [reservations]: cancel_factor must be a number"),
        ("hold_s = 0", "line 2: [reservations]: hold_s is 0: it must be 1s to 10m"),
        ("grace_s = nan", "line 2: [reservations]: grace_s is nan: it must be 0s to 1d"),
        ("price = 1", "line 2: [reservations]: unknown key 'price'; known keys: ahead"),
    ],
)
def test_what_it_may_not_say(read, line, text):
    with pytest.raises(ConfigError) as error:
        read(f"[reservations]\n{line}\n")
    assert text in str(error.value)
