"""A gateway whose prices change while it works: the amounts that users pay, and its books."""

from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from support.answers import answer
from support.processes import InnerSite, SetClock, wait_until

from federation import Client
from gateway.cli.main import cli
from gateway.config.site import PoolConfig
from gateway.ledger.db.usage.records import Dimension
from gateway.runtime.environment import RuntimeEnvironment

pytestmark = pytest.mark.real

TARIFF = {
    "version": "list-1",
    "zone": "Europe/London",
    "preemptible": 0.5,
    "minimum": "0.0001 USD",
    "bands": [{"name": "night", "from": "22:00", "to": "06:00", "price": "0.02 USD"}],
    "volume": [{"from": 1, "factor": 0.5}],
}
# An hour of BST in which the band does not begin at 22:00 UTC.
EVENING_S = datetime(2026, 7, 1, 20, 59, tzinfo=UTC).timestamp()


def triple(x):
    return 3 * x


@pytest.fixture
def site(tmp_path):
    clock = SetClock(EVENING_S)
    pools = (PoolConfig("local", "local", 1, price="0.04 USD", tariff=TARIFF),)
    made = InnerSite(tmp_path, RuntimeEnvironment(utc_s=clock), pools=pools)
    made.clock = clock
    yield made
    made.stop()


def pool(client):
    (found,) = client.ask("status")["pools"]
    return found


def totals(site):
    by = (Dimension.TARIFF, Dimension.WINDOW, Dimension.PRICE_CLASS)
    return {each.key: each for each in site.site.store.usage.totals(by)}


@pytest.mark.slow
def test_a_band_that_begins_while_a_gateway_runs_is_what_the_next_task_costs(site):
    with Client(site.address) as client:
        assert (pool(client)["window"], pool(client)["price"]) == ("", "0.04 USD per slot-hour")
        assert client.submit(triple, 1).result(200) == 3
        (shown,) = client.ask("pools")
        assert shown["next_price"] == "0.02 USD"
        assert shown["next_price_at_s"] == EVENING_S + 60.0
        site.clock.ahead_s += 60.0
        wait_until(lambda: pool(client)["window"] == "night", "the band begins")
        assert pool(client)["price"] == "0.02 USD per slot-hour"
        assert client.submit(triple, 2).result(200) == 6
        assert list(client.options(preemptible=True).map(triple, range(10))) == [
            3 * x for x in range(10)
        ]
        site.clock.ahead_s += 10 * 3600.0
        wait_until(lambda: pool(client)["window"] == "", "the band ends")
        wait_until(lambda: len(totals(site)) == 3, "all is in the books")
    found = totals(site)
    assert set(found) == {
        ("list-1", "", "guaranteed"),
        ("list-1", "night", "guaranteed"),
        ("list-1", "night", "preemptible"),
    }
    minimum_nanos = 100_000
    assert found["list-1", "", "guaranteed"].cost_nanos == minimum_nanos
    assert found["list-1", "night", "preemptible"].cost_nanos == 10 * minimum_nanos


@pytest.mark.slow
def test_what_was_bought_is_known_after_a_restart(site, tmp_path):
    hour_ns = 3600 * 10**9
    with Client(site.address) as client:
        assert client.submit(triple, 1).result(200) == 3
        wait_until(lambda: totals(site), "it is in the books")
        user = next(iter(site.site.store.usage.totals([Dimension.USER]))).key[0]
    site.stop()
    again = InnerSite(
        tmp_path, RuntimeEnvironment(utc_s=site.clock), pools=(PoolConfig("local", tariff=TARIFF),)
    )
    try:
        had = again.site.server._prices.had_ns(again.site.store.usage, site.clock())
        (buyer,) = had
        assert (buyer.pool, buyer.site, buyer.user) == ("local", "", user)
        assert 0 < had[buyer] < hour_ns
    finally:
        again.stop()


SITE = """
[[pool]]
name = "grid"
price = "0.04 USD"
[pool.tariff]
version = "2026-q4"
zone = "America/New_York"
bands = [ { name = "night", from = "22:00", to = "06:00", factor = 0.5 } ]
spot = { floor = "0.01 USD", ceiling = "0.11 USD" }
"""


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(SITE)

    def run_(*words, code=0):
        result = CliRunner().invoke(cli, ["tariff", *words])
        assert result.exit_code == code, result.output
        return result.output

    run_.path = str(path)
    return run_


def test_what_holds_when_is_shown_also_when_the_clock_jumps(run):
    span = ("--at", "2026-10-31T12:00", "--next", "2d", "--json")
    (shown,) = answer(run("show", "--config", run.path, *span))
    moments = [
        (datetime.fromtimestamp(row["from_s"], UTC).strftime("%dT%H"), row["window"])
        for row in shown["holds"]
    ]
    assert moments == [
        ("31T12", ""),
        ("01T02", "night"),
        ("01T11", ""),
        ("02T03", "night"),
        ("02T11", ""),
    ]
    night = shown["holds"][1]
    assert (night["price_nanos"], night["full_nanos"]) == (10_000_000, 55_000_000)
    assert shown["version"] == "2026-q4"
    text = run("show", "--config", run.path, "--at", "2026-10-31", "--next", "1d")
    assert "night: mon,tue,wed,thu,fri,sat,sun 22:00 to 06:00 America/New_York: times 0.5" in text


def test_without_a_configuration_the_usual_price_is_shown(run):
    assert "workers@0.04 USD" in run("show")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("show", "--at", "noon"), "write"),
        (("show", "--next", "7"), "7 has no unit: write"),
        (("show", "--next", "1000d"), "not in the range above 0s to 400d"),
    ],
)
def test_a_moment_that_can_not_be_read_is_refused(run, words, why):
    assert why in run(*words, code=2)


def test_ownership_shows_each_share_and_their_sum(run):
    words = ("--hardware", "8766", "--years", "1", "--watts", "1000", "--power-price", "0.5")
    text = run("ownership", *words, "--staff", "4383", "--slots", "2", "--utilisation", "0.5")
    assert 'price = "2 USD"' in text
    found = answer(run("ownership", *words, "--currency", "EUR", "--json"))
    assert (found["hardware_nanos"], found["power_nanos"]) == (10**9, 5 * 10**8)
    assert (found["price"], found["note"]) == ("1.5 EUR", "")


def test_a_price_of_zero_is_said_to_break_brokering(run):
    free = ("ownership", "--hardware", "0")
    assert "breaks brokering" in run(*free)
    assert "breaks brokering" in answer(run(*free, "--json"))["note"]


def test_a_pool_that_costs_nothing_is_said_to_break_brokering(run, tmp_path):
    free = tmp_path / "free.toml"
    free.write_text('[[pool]]\nname = "free"\nprice = "0 USD"\n')
    assert "breaks brokering" in run("show", "--config", str(free))
    assert "breaks brokering" not in run("show", "--config", run.path)


def test_the_cost_of_nothing_is_not_worked_out(run):
    assert "Missing option '--hardware'" in run("ownership", code=2)


def test_whose_prices_are_shown_is_said_where_nobody_named_the_file(run):
    def said(*options):
        return CliRunner().invoke(cli, ["tariff", "show", *options]).stderr

    assert "choose a file with --config" in said()
    assert said("--config", run.path) == ""


@pytest.mark.parametrize(
    "words",
    [
        *(("--hardware", "x"), ("--hardware", "-1"), ("--hardware", "1", "--utilisation", "0")),
        *(("--hardware", "1", *wrong) for wrong in (("--years", "0"), ("--pue", "0.5"))),
        *(("--hardware", "1", *wrong) for wrong in (("--currency", "usd"), ("--slots", "0"))),
    ],
)
def test_an_ownership_that_can_not_be_is_refused(run, words):
    assert "Error" in run("ownership", *words, code=2)
