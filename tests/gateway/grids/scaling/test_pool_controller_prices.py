"""A pool whose price follows its grid's charges."""

from dataclasses import replace

import pytest

from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig
from gateway.grids.contract import Capacity, Limits
from gateway.grids.scaling.pool_controller import PoolController
from gateway.scheduler.broker import Broker
from policies.placement.asks import Preferences
from policies.placement.autoscaling import ScalingRules

CENT = 10**7
SCALE = ScaleConfig(ScalingRules(slots_max=100), look_s=1.0, markup=1.5)


class Dear:
    """A grid that does nothing and charges something."""

    def __init__(self):
        self.charges = 10 * CENT, "USD"

    async def price_nanos(self):
        return self.charges

    async def pilots(self):
        return []

    async def limits(self):
        return Limits()

    async def capacity(self, shape):
        return Capacity(100)


class Kept:
    """A pool controller, with a clock of its own and the prices that it has asked for."""

    def __init__(self, scale=SCALE, **pool):
        self.now_s, self.prices, self.said, self.grid = 0.0, [], [], Dear()
        made = PoolConfig("cloud", "ec2", price="0.12 USD", scale=scale, **pool)
        self.controller = PoolController(
            *(made, self.grid, Broker({"cloud": made.prices.at(0.0).tariff})),
            expect=lambda _: None,
            utc_s=lambda: self.now_s,
            say=self.said.append,
            preferences=Preferences(),
            reprice=self.prices.append,
        )

    async def look(self):
        self.controller._looked_at_s = self.controller._asked_at_s = float(
            "-inf"
        )  # it is due again
        await self.controller._look()
        return [each.price for each in self.prices]


async def test_the_price_follows_the_grids_with_its_markup():
    kept = Kept()
    assert await kept.look() == ["0.15 USD"]
    assert await kept.look() == ["0.15 USD"]  # nothing has changed
    kept.grid.charges = 101 * CENT // 10, "USD"
    assert await kept.look() == ["0.15 USD"]  # by less than two hundredths
    kept.grid.charges = 8 * CENT, "USD"
    assert await kept.look() == ["0.15 USD", "0.12 USD"]
    kept.controller.take_in(kept.controller.pool)  # after a reload the list is as it was written
    assert await kept.look() == ["0.15 USD", "0.12 USD", "0.12 USD"]


@pytest.mark.parametrize(
    ("scale", "charges", "said"),
    [
        (replace(SCALE, markup=None), (10 * CENT, "USD"), ""),
        (SCALE, None, ""),
        (SCALE, (10 * CENT, "EUR"), "it charges in EUR, this pool in USD"),
    ],
)
async def test_it_is_as_written_where_nothing_can_be_followed(scale, charges, said):
    kept = Kept(scale)
    kept.grid.charges = charges
    assert await kept.look() == []
    assert said in "\n".join(kept.said)


async def test_a_version_that_was_written_is_not_that_of_another_price():
    kept = Kept(tariff={"version": "2026-q4", "minimum": "0.001 USD"})
    await kept.look()
    [priced] = kept.prices
    assert priced.tariff == {"minimum": "0.001 USD"}
    assert priced.prices.version != "2026-q4"


async def test_what_may_be_spent_in_an_hour_is_by_what_the_grid_charges():
    kept = Kept(replace(SCALE, rules=ScalingRules(100, hourly_nanos=200 * CENT), currency="USD"))
    await kept.look()
    assert kept.controller._past(kept.now_s).price_nanos == 10 * CENT


async def test_a_grid_that_charges_in_another_currency_is_no_way_past_that():
    kept = Kept(replace(SCALE, rules=ScalingRules(100, hourly_nanos=120 * CENT), currency="USD"))
    kept.grid.charges = 10 * CENT, "EUR"
    await kept.look()
    assert kept.controller._past(kept.now_s).price_nanos == 12 * CENT, "the pool's own price counts"
