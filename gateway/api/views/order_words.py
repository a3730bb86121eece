"""Orders in words, for the log: the act and its object. Pure.

Those about keys and trust are in gateway.peering.order_lines. The details of an order that is
refused may hold anything: each is written within a bound.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from federation.money import format_money
from federation.words import count, duration_text
from gateway.peering.order_lines import order_words, written


def in_words(verb: str, details: Mapping[str, Any], found: Any = None) -> str:
    """Return an order as a noun with its object, or as its answer tells it.

    Args:
        verb: the order.
        details: as it was given.
        found: its answer; None: it was refused.
    """
    if isinstance(found, dict) and isinstance(found.get("text"), str):
        return str(found["text"])
    match verb:
        case "drain" | "drain_host":
            return _drain(verb, details, found)
        case "reload":
            return "reload of the configuration"
        case "change_rules":
            return _change(details)
        case "cancel_change":
            return f"cancel of change {written(details.get('change', ''))} of the rules"
        case "reserve":
            return _reservation(details)
        case "unreserve":
            return f"cancel of reservation {written(details.get('reservation', ''))}"
        case "write_off":
            name, site = (written(details.get(key, "")) for key in ("name", "site"))
            return f"write-off of the slice of budget {name} that site {site} has"
        case _:
            own = _about_work(verb, details) or _about_books(verb, details)
            return own or order_words(verb, details, found) or verb


def _about_work(verb: str, details: Mapping[str, Any]) -> str:
    job = written(details.get("job", ""))
    match verb:
        case "hold" | "release":
            return f"{verb} of job {job}"
        case "prioritise":
            return f"priority {written(details.get('priority', ''))} of job {job}"
        case "job":
            return f"order about job {job}"
        case "drop_object":
            whose = f" of {written(details['user'])}" if details.get("user") else ""
            return f"drop of object {written(details.get('name', ''))}{whose}"
    return ""


def _drain(verb: str, details: Mapping[str, Any], found: Any) -> str:
    what = "host" if verb == "drain_host" else "worker"
    name = written(details.get(what, ""))
    where = f"{what} {name}" if name else "the whole site"
    end = "" if details.get("on", True) is True else "end of the "
    workers = found.get("workers") if isinstance(found, dict) else None
    return f"{end}drain of {where}" + (f" ({count(workers, 'worker')})" if workers else "")


def _change(details: Mapping[str, Any]) -> str:
    edits = details.get("edits")
    named = [each for each in edits if isinstance(each, dict)] if isinstance(edits, list) else []
    texts = [
        " ".join(written(each[key]) for key in ("kind", "pool", "name") if each.get(key))
        for each in named[:5]
    ]
    more = f" and {len(named) - 5:,} more" if len(named) > 5 else ""
    reason = f": {written(details['reason'])}" if details.get("reason") else ""
    return f"change of the rules ({', '.join(texts)}{more}){reason}"


def _reservation(details: Mapping[str, Any]) -> str:
    lasts_s = details.get("lasts_s")
    is_known = isinstance(lasts_s, int | float) and isfinite(lasts_s)
    lasts = f" for {duration_text(float(lasts_s or 0))}" if is_known else ""
    slots = details.get("slots", "")
    many = count(slots, "slot") if type(slots) is int else f"{written(slots)} slots".lstrip()
    places = [
        f"{key} {written(details[key])}"
        for key in ("pool", "who", "project", "sites")
        if details.get(key)
    ]
    return f"reservation of {many}{lasts}" + (f": {', '.join(places)}" if places else "")


def _about_books(verb: str, details: Mapping[str, Any]) -> str:
    site, contract = written(details.get("site", "")), written(details.get("contract", ""))
    reference = written(details.get("reference", ""))
    match verb:
        case "reconcile":
            accept = ", and acceptance of the differences" if details.get("accept") else ""
            return f"reconciliation with site {site}{accept}"
        case "dispute":
            return f"dispute of contract {contract}: {written(details.get('reason', ''))}"
        case "answer_dispute":
            answer = "acceptance" if details.get("accept") else "rejection"
            reason = written(details.get("reason", ""))
            return f"{answer} of the dispute of contract {contract}: {reason}"
        case "settle":
            amount, nanos = "an amount", details.get("amount_nanos")
            currency = details.get("currency")
            if isinstance(nanos, int) and isinstance(currency, str):
                amount = format_money(nanos, currency[:3])
            direction = written(details.get("direction", ""))
            return f"payment {direction} of {amount}, site {site}, reference {reference}"
        case "undo_payment":
            return f"undo of the payment of site {site}, reference {reference}"
    return ""
