"""What a pool shows of the time to come."""

from itertools import count, islice

from federation.adverts import WINDOWS_MAX
from gateway.showing import _windows
from policies.pricelist import Adjustment, Band, PriceList
from policies.weeks import Span
from policies.windows import Allowed

HOUR_S = 3_600.0


def spans(slots=5):
    """For ever an hour with slots, and one without."""
    for at in count():
        yield Allowed(at * HOUR_S, (at + 1) * HOUR_S, slots * (at % 2 == 0), 10**6)


def test_no_more_of_the_time_to_come_is_looked_at_than_is_shown():
    """An advert is made for each job that is placed: what is left out of it must cost nothing."""
    looked = iter(spans())
    found = list(_windows(looked, None, 7))
    assert [(each.from_s, each.slots, each.price_nanos) for each in found] == [
        (2 * at * HOUR_S, 5, 7) for at in range(WINDOWS_MAX)
    ]
    assert next(looked).from_s <= 2 * (WINDOWS_MAX + 1) * HOUR_S


def test_a_span_is_shown_in_parts_where_the_price_is_another():
    bands = (Band("half", Span(900, 1_800), Adjustment(factor=500_000)),)
    prices = PriceList(1_000, "USD", "1", bands=bands).at(0.0)
    found = list(_windows(islice(spans(), 1), prices, 1_000))
    assert [(each.from_s, each.until_s, each.price_nanos) for each in found] == [
        (0.0, 900.0, 1_000),
        (900.0, 1_800.0, 500),
        (1_800.0, 3_600.0, 1_000),
    ]
