"""[pool.tariff]: its meaning, and that every mistake names file, pool and key."""

import re

import pytest

from gateway.base.values import ConfigError
from gateway.config.site import load
from gateway.config.tariffs import read_time
from policies.calendar.weeks import WeekSpan
from policies.costs.pricelist import Adjustment, Band, Tier
from policies.costs.spot import Spot
from policies.tariffs import MILLION, Extras, Surcharge

WHOLE = """
version = "2026-q4"
zone = "Europe/London"
preemptible = 0.4
minimum = "0.0001 USD"
step_s = 0.1
bands = [
  { name = "night", days = "mon-fri", from = "22:00", to = "06:00:30", factor = 0.5 },
  { name = "weekend", days = "sat, sun", from = "06:30", price = "0.02 USD" },
]
tags = { gpu = { add = "1.20 USD" }, nvme = { factor = 1.1 } }
spot = { floor = "0.01 USD", ceiling = "0.12 USD", damp_s = 30 }
volume = [ { from = 1000, factor = 0.9 }, { from = 5000, price = "0.03 USD" } ]
contracts = { paris = { price = "0.03 USD" } }
"""


@pytest.fixture
def read(tmp_path):
    def read_(table, price="0.04 USD"):
        path = tmp_path / "site.toml"
        path.write_text(f'[[pool]]\nname = "grid"\nprice = "{price}"\n[pool.tariff]\n{table}\n')
        return load(str(path)).pools[0].prices

    return read_


def test_all_of_it_is_read(read):
    prices = read(WHOLE)
    assert (prices.price_nanos, prices.currency, prices.version) == (40_000_000, "USD", "2026-q4")
    assert prices.zone.key == "Europe/London"
    assert prices.bands == (
        Band(
            "night", WeekSpan(79_200, 21_630, frozenset(range(5))), Adjustment(factor=MILLION // 2)
        ),
        Band("weekend", WeekSpan(23_400, 86_400, frozenset({5, 6})), Adjustment(20_000_000)),
    )
    surcharges = {"gpu": Surcharge(1_200_000_000), "nvme": Surcharge(0, 1_100_000)}
    assert prices.extras == Extras(400_000, surcharges, 100_000, 100_000_000)
    assert prices.spot == Spot(10_000_000, 120_000_000, 2, 30.0, 20)
    assert prices.volume == (
        Tier(1000, Adjustment(factor=900_000)),
        Tier(5000, Adjustment(30_000_000)),
    )
    assert prices.contracts == {"paris": Adjustment(30_000_000)}


def test_without_a_table_the_version_names_the_price(read):
    assert read("").version == "grid@0.04 USD"


def test_another_list_has_another_version_and_the_same_list_the_same(read):
    one, other = "preemptible = 0.4", "preemptible = 0.5"
    assert read(one).version == read(one).version
    assert len({read(one).version, read(other).version, read(one, "0.05 USD").version}) == 3


@pytest.mark.parametrize(
    ("days", "expected"),
    [("daily", range(7)), ("sun", [6]), ("FRI-MON", [4, 5, 6, 0]), ("mon,wed-thu", [0, 2, 3])],
)
def test_days_as_people_write_them(read, days, expected):
    found = read(f'bands = [ {{ name = "b", days = "{days}", factor = 2 }} ]')
    assert found.bands[0].span.days == frozenset(expected)


BAND = 'bands = [ { name = "b", factor = 1, %s } ]'
SPOT = 'spot = { floor = "0.01 USD", ceiling = "0.02 USD", %s }'


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("prices = 1", "unknown key 'prices'"),
        ('version = ""', None),
        ("version = 7", "version must be text"),
        (f'version = "{"x" * 61}"', "version must be text"),
        ('version = "a\\u001b[31m"', "has unprintable characters"),
        ('zone = "Europe/Londn"', "zone: 'Europe/Londn' is not a time zone"),
        ("zone = 1", "zone: '1' is not a time zone"),
        ("preemptible = -0.1", "preemptible is -0.1: it must be"),
        ("preemptible = 0", "preemptible is 0: it must be"),
        ("preemptible = 1001", "preemptible is 1001: it must be"),
        ("preemptible = nan", "preemptible is nan: it must be"),
        ("preemptible = 0.1234567", "at most six decimals"),
        ('preemptible = "0.4"', "preemptible must be a number"),
        ("minimum = 0.1", "minimum is 0.1: write an amount"),
        ('minimum = "0.1 EUR"', "minimum is in EUR, but the price of the pool in USD"),
        ('minimum = "-1 USD"', "minimum: '-1 USD' is negative"),
        ('minimum = "1 usd"', "minimum: 'usd' is not a currency"),
        ('minimum = "0.05 USD"', "minimum charge of a task exceeds the price of a slot-hour"),
        ("step_s = 3601", "step_s is 3601"),
        ("bands = 1", "bands must be a list"),
        ("bands = [1]", "bands[1] must be a table"),
        ('bands = [ { name = "b" } ]', "bands[1] needs either a price or a factor"),
        ('bands = [ { factor = 1, price = "1 USD" } ]', "needs either a price or a factor"),
        ("bands = [ { factor = 1 } ]", "bands[1].name must be text"),
        ('bands = [ { name = "b", factor = inf } ]', "bands[1].factor is inf"),
        ('bands = [ { name = "b", price = "100000000 USD" } ]', "ten million units"),
        (BAND % "till = 1", "bands[1]: unknown key 'till'"),
        (BAND % 'days = "monday"', "tariff: band 'b': days is 'monday'"),
        (BAND % "days = 1", "days is 1"),
        (BAND % 'from = "25:00"', "from is '25:00': it is not a time of day"),
        (BAND % 'from = "9"', "from is '9': write a time"),
        (BAND % "from = 900", "from is 900: write a time"),
        (BAND % 'from = "24:00"', "a band must begin from 00:00"),
        (BAND % 'from = "05:00", to = "05:00"', "a band ends when it begins"),
        (
            'bands = [ { name = "a", factor = 1 }, { name = "b", to = "01:00", factor = 1 } ]',
            "overlap on mon at 00:00",
        ),
        ("tags = { gpu = 2 }", "tags.gpu must be a table"),
        ("tags = { gpu = {} }", "tags.gpu needs an amount to add"),
        ('tags = { gpu = { price = "1 USD" } }', "tags.gpu: unknown key 'price'"),
        ('tags = { "a,b" = { factor = 2 } }', "tags.a,b is not a tag name"),
        ('spot = { floor = "1 USD" }', "spot needs a ceiling"),
        ('spot = { floor = "0 USD", ceiling = "1 USD" }', "spot.floor must be above zero"),
        ('spot = { floor = "2 USD", ceiling = "1 USD" }', "floor of a spot price is above"),
        (SPOT % "exponent = 0", "spot.exponent is 0"),
        (SPOT % "exponent = 1.5", "whole number"),
        (SPOT % "steps = 0", "spot.steps is 0"),
        (SPOT % "damp_s = -1", "spot.damp_s is -1"),
        ("volume = [ { factor = 1 } ]", "volume[1].from must be a number"),
        ("volume = [ { from = 5, factor = 1 }, { from = 5, factor = 1 } ]", "more slot-hours"),
        ("contracts = { paris = {} }", "contracts.paris needs either a price or a factor"),
        ('contracts = { "" = { factor = 1 } }', "contracts must be text"),
        ('contracts = { paris = { price = "1 EUR" } }', "contracts.paris.price is in EUR"),
    ],
)
def test_a_mistake_names_the_file_the_pool_and_the_key(read, table, said):
    if said is None:
        assert read(table).version
        return
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        read(table)
    assert re.search(r"site.toml: line [45]: \[\[pool\]\] grid: tariff: ", str(caught.value))


@pytest.mark.parametrize(
    ("price", "said"),
    [("-1 USD", "negative"), ("1 usd", "currency"), ("1e8 USD", "ten million"), ("1", "amount")],
)
def test_an_absurd_list_price_is_refused(read, price, said):
    with pytest.raises(ConfigError, match=said) as caught:
        read("", price)
    assert re.search(r"site.toml: line [34]: \[\[pool\]\] grid: ", str(caught.value))


def test_a_tariff_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text('[[pool]]\nname = "grid"\ntariff = "cheap"\n')
    with pytest.raises(ConfigError, match=r"\[\[pool\]\] grid: tariff must be a table"):
        load(str(path))


@pytest.mark.parametrize(("text", "at_s"), [("9:00", 32_400), ("09:00", 32_400), ("24:00", 86_400)])
def test_an_hour_may_have_one_digit(text, at_s):
    assert read_time("from", text) == at_s
