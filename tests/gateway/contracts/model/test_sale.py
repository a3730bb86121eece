"""One contract that we sell: its buyer's tasks by our own numbers, and back."""

import pytest

from federation.errors import ProtocolError
from federation.messages.contracts import ContractPhase, Delivery
from federation.messages.messages import Results
from gateway.contracts.model.sale import Sale, number_of
from gateway.scheduler.model.effects import Charge
from policies.tariffs import Tariff


@pytest.fixture
def sale():
    """Tasks 100 to 109 came under epoch 1, and of them 104 to 106 again under epoch 3."""
    made = Sale(
        "london-1-1", "london", None, "grid", Tariff(1, "EUR", "1"), 4, ContractPhase.OPEN, 0.0
    )
    made.out.send(1, 100, 110)
    first = made.add(1, 100, 10)
    assert made.take(first, 4, 7) == (104, 107)
    made.out.send(3, 104, 107)
    made.add(3, 104, 3)
    return made


def test_a_task_that_comes_back_is_another_one(sale):
    assert [(b.epoch, low, high) for b, low, high in sale.parts(8, 12)] == [(1, 8, 10), (3, 10, 12)]
    assert sale.numbers(1, 0, 1000) == ((0, 4), (7, 10))
    assert sale.numbers(3, 105, 1000) == ((11, 13),)
    assert sale.numbers(2, 0, 1000) == ()


def test_what_is_back_does_not_come_back_again(sale):
    [bundle, again] = sale.order
    assert sale.take(bundle, 3, 5) is None
    assert sale.take(again, 10, 13) == (104, 107)
    assert sale.take(again, 10, 13) is None
    assert sale.order == [bundle]
    assert list(sale.bundles) == [1]


def test_a_part_of_the_results_has_its_own_failures_and_prints(sale):
    failures = [[1, "error", "no", b""], [2, "error", "nor that", b""]]
    results = Results("job", 8, [b"a", b"", b"", b"d"], failures, [[3, "hello"]], ["paris"])
    charge = Charge(wall_ns=5, cpu_ns=4, peak_memory_bytes=3, cost_nanos=2)
    message = sale.delivery(3, 104, results, (2, 4), charge, 77)
    assert (message.contract, message.epoch, message.first) == ("london-1-1", 3, 104)
    assert message.values == [b"", b"d"]
    assert message.failures == [[0, "error", "nor that", b""]]
    assert message.prints == [[1, "hello"]]
    assert (message.wall_ns, message.cost_nanos, message.sites) == (5, 2, ["paris"])
    assert message.delivery == Delivery(3, 104, 106, 2, 5, 77)
    assert Delivery.of(message.delivery.row) == message.delivery


def test_what_is_held_is_what_is_out(sale):
    assert sale.holding().forwards == [[1, 100, 104], [1, 107, 110], [3, 104, 107]]


@pytest.mark.parametrize("name", ["paris-1-1", "london-1", "london-1-x", "london-1-1 ", "x"])
def test_a_contract_is_named_after_its_buyer(name):
    assert number_of("london", "london-2-10") > number_of("london", "london-2-9")
    with pytest.raises(ProtocolError):
        number_of("london", name)
