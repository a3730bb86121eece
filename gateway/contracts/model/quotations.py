"""Convert tariffs to and from quotes and contracts; bound the charge of a delivery. Pure."""

from typing import Any

from federation.messages import deals
from gateway.ledger.db.contracts.records import ContractRow
from gateway.scheduler.tasks.task_usage import charged_tasks
from policies.reservations.reservations import reservation_named
from policies.tariffs import Tariff


def tariff_of(quote: deals.Quote) -> Tariff:
    """Return the tariff of a quote, under the seller's name for it."""
    return Tariff(
        quote.price_nanos,
        quote.currency,
        quote.tariff or quote.contract,
        reservation=reservation_named(quote.tariff),
        window=quote.window,
        price_class="preemptible" if quote.preemptible else "guaranteed",
        list_nanos=max(quote.list_nanos, quote.price_nanos),
        minimum_nanos=quote.minimum_nanos,
        step_ns=quote.step_ns,
        receive_nanos=quote.receive_nanos,
        send_nanos=quote.send_nanos,
    )


def quoted_terms(tariff: Tariff) -> dict[str, Any]:
    """Return a tariff as the fields of a quote."""
    return {
        "price_nanos": tariff.price_nanos,
        "currency": tariff.currency,
        "preemptible": tariff.price_class == "preemptible",
        "tariff": tariff.version,
        "window": tariff.window,
        "list_nanos": tariff.price_nanos if tariff.list_nanos is None else tariff.list_nanos,
        "minimum_nanos": tariff.minimum_nanos,
        "step_ns": tariff.step_ns,
        "receive_nanos": tariff.receive_nanos,
        "send_nanos": tariff.send_nanos,
    }


def booked_tariff(row: ContractRow) -> Tariff:
    """Return the tariff of a contract in this site's books."""
    return Tariff(
        row.price_nanos,
        row.currency,
        row.tariff or row.contract,
        reservation=reservation_named(row.tariff),
        window=row.window,
        price_class=row.price_class,
        list_nanos=row.price_nanos if row.list_nanos is None else row.list_nanos,
        minimum_nanos=row.minimum_nanos,
        step_ns=row.step_ns,
        rules=row.rules,
        receive_nanos=row.receive_nanos,
        send_nanos=row.send_nanos,
    )


def booked_terms(tariff: Tariff) -> dict[str, Any]:
    """Return a tariff as the fields of a contract in the books."""
    terms = quoted_terms(tariff)
    del terms["preemptible"]
    return {**terms, "price_class": tariff.price_class, "rules": tariff.rules}


def allowed_nanos(tariff: Tariff, message: deals.Deliver) -> int:
    """Return the most that a delivery may cost under a tariff.

    A delivery that fails in no time is free. A preempted delivery is free too, except in the
    preemptible price class, which is cheaper in return.
    """
    tasks, wall_ns = len(message.values), message.wall_ns
    if len(message.failures) == tasks:
        is_preempted = all(kind == "preempted" for _, kind, *_ in message.failures)
        if not wall_ns or (is_preempted and tariff.price_class != "preemptible"):
            return 0
    return tariff.charge_nanos(charged_tasks(tasks, message.failures), wall_ns)
