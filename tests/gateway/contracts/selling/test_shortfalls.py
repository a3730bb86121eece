"""The unpaid slot time of small grants."""

from gateway.contracts.model.sale import Sale
from gateway.contracts.selling.shortfalls import ALLOWED_S, FORGOTTEN_SHARE, Shortfalls
from policies.tariffs import Tariff

PRICE = 36 * 10**9  # nano-units a slot-hour: 10 ** 7 a slot-second


def sale_to(buyer, price_nanos=PRICE):
    return Sale("c", buyer, None, "local", Tariff(price_nanos, "USD", "v1"), 1, "open", 0.0)


def test_unpaid_time_is_counted_by_buyer_and_forgotten_at_a_steady_rate():
    shortfalls = Shortfalls()
    for _ in range(11):
        assert not shortfalls.is_over("london", 0.0)
        shortfalls.note(sale_to("london"), 10**7, 0.0)
    assert shortfalls.is_over("london", 0.0)
    assert not shortfalls.is_over("tokyo", 0.0)
    free_s = (11.0 - ALLOWED_S) / FORGOTTEN_SHARE
    assert shortfalls.is_over("london", free_s - 1.0)
    assert not shortfalls.is_over("london", free_s + 1.0)


def test_a_free_pool_and_a_paid_delivery_leave_nothing_unpaid():
    shortfalls = Shortfalls()
    shortfalls.note(sale_to("london", 0), 10**12, 0.0)
    shortfalls.note(sale_to("london"), 0, 0.0)
    assert not shortfalls.is_over("london", 0.0)
