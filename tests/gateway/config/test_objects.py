"""The table [objects]: the room for objects."""

import pytest

from gateway.base.values import ConfigError
from gateway.config.limits import OBJECT_BYTES_MAX, ObjectLimits, ObjectRoom
from gateway.config.site import load
from policies.costs.holding import HoldPrice
from policies.costs.moving import MovePrices


def read(tmp_path, text):
    path = tmp_path / "gateway.toml"
    path.write_text(f"[objects]\n{text}\n")
    return load(str(path)).objects


def test_room_is_a_share_of_memory_or_a_size(tmp_path):
    found = read(tmp_path, 'memory = "12.5%"\nuser = "8 GiB"\nproject = 10485760')
    assert found == ObjectLimits(0.125, 8 << 30, 10 << 20)
    assert found.room(16 << 30) == ObjectRoom(2 << 30, 8 << 30, 10 << 20)


def test_holding_objects_has_a_price_or_none(tmp_path):
    assert read(tmp_path, 'hold = "0.03 USD/GB-month"').price("EUR") == HoldPrice(30_000_000, "USD")
    assert read(tmp_path, 'user = "8 GiB"').price("EUR") == HoldPrice(0, "EUR")


def test_moved_bytes_have_a_price_in_each_direction(tmp_path):
    assert not read(tmp_path, 'user = "8 GiB"').move_prices()
    found = read(tmp_path, 'receive = "0.01 USD/GB"\nsend = "0.09 USD / GB"').move_prices()
    assert found == MovePrices(10_000_000, 90_000_000, "USD")
    found = read(tmp_path, 'send = "0.09 USD/GB"').move_prices()
    assert found == MovePrices(0, 90_000_000, "USD")


def test_moved_bytes_are_charged_in_the_currency_of_the_pools(tmp_path):
    text = 'send = "0.09 EUR/GB"\n[[pool]]\nname = "fast"\nprice = "0.10 USD"'
    with pytest.raises(ConfigError, match="charged in EUR, but pool fast in USD"):
        read(tmp_path, text)
    with pytest.raises(ConfigError, match="EUR and USD"):
        read(tmp_path, 'send = "0.09 EUR/GB"\nreceive = "1 USD/GB"')


def test_objects_may_go_to_a_folder_on_disk(tmp_path):
    found = read(tmp_path, 'memory = "1 GiB"\nspill_dir = "/var/tmp/x"\nspill = "8 GiB"')
    room = found.room(1000)
    assert (room.spill_dir, room.spill, room.whole) == ("/var/tmp/x", 8 << 30, 9 << 30)
    assert read(tmp_path, 'spill_dir = "/x"').room(1000).spill == OBJECT_BYTES_MAX
    assert read(tmp_path, 'memory = "1 GiB"').room(1000).whole == 1 << 30


def test_by_default_objects_have_a_share_and_nobody_has_another_limit():
    assert ObjectLimits().room(1000) == ObjectRoom(300, OBJECT_BYTES_MAX, OBJECT_BYTES_MAX)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('memory = "95%"', "up to 90%"),
        ('memory = "0%"', "up to 90%"),
        ('memory = "nan%"', "up to 90%"),
        ('memory = "x%"', "as in"),
        ('memory = "much"', "memory"),
        ("memory = 0.3", "memory"),
        ("user = true", "user"),
        ("project = 10", "1 MiB"),
        ('hold = "0.03 USD"', "0.03 USD/GB-month"),
        ("hold = 3", "0.03 USD/GB-month"),
        ('send = "0.03 USD"', "0.02 USD/GB"),
        ('receive = "0.03 USD/GB-month"', "0.02 USD/GB"),
        ("send = 3", "0.02 USD/GB"),
        ('spill_dir = "here"', "path of a folder"),
        ('spill = "8 GiB"', "name that with spill_dir"),
        ('memry = "30%"', "memory"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path, text, said):
    with pytest.raises(ConfigError, match="line 2") as told:
        read(tmp_path, text)
    assert said in str(told.value)
