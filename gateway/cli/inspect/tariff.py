"""Price lists, gridfed tariff show; the cost of one's own slots, gridfed tariff ownership."""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from federation.clocks import UtcS
from federation.money import check_currency, format_amount, format_money
from federation.words import duration_text
from gateway.base.clocks import utc_now
from gateway.cli.operate.own_files import configuration_here
from gateway.cli.shared import show
from gateway.cli.shared.common import config_file_option, json_option
from gateway.cli.shared.moments import length_s, moment
from gateway.config.pools import USUAL_POOL
from gateway.config.site import PoolConfig
from policies.calendar.weeks import DAYS
from policies.costs.ownership import Ownership, price_of
from policies.costs.pricelist import Adjustment, PriceList, PriceNow
from policies.tariffs import MILLION, Extras, Wanted

FREE: Final = (
    "a price of zero breaks brokering: all work is placed where it looks free, however long "
    "the queue; no cost limit ever applies; nobody is paid. Set the price to what a slot-hour "
    "costs: hardware, power, space, staff"
)


@click.group()
def tariff() -> None:
    """Price lists: the prices of pools, and the cost of a slot-hour of one's own."""


@tariff.command("show")
@config_file_option
@click.option(
    "--at", "when", metavar="WHEN", help="A moment: 2026-11-22T18:00, in the site's zone."
)
@click.option("--next", "ahead", metavar="TIME", help="All changes from then on, for 12h, 7d, 4w.")
@json_option
def show_tariff(path: str | None, when: str | None, ahead: str | None, as_json: bool) -> None:
    """Print each pool's price list, and its prices over time, by its configuration.

    For a spot price, which follows utilisation, the prices with all slots idle and all slots busy
    are shown.
    """
    config, is_named = configuration_here(path, None)
    if not is_named:
        show.say(
            "gridfed: using the default configuration, not that of a running gateway: choose "
            "a file with --config; options given to `gridfed up` are not included",
            err=True,
        )
    at_s = (
        utc_now()
        if when is None
        else moment(when, end_of_day=False, option="--at", zone=ZoneInfo(config.zone))
    )
    until_s = None if ahead is None else at_s + length_s(ahead, option="--next")
    pools = {pool.name: pool.prices for pool in config.pools or (PoolConfig(USUAL_POOL),)}
    found = {name: list(_holding(prices, at_s, until_s)) for name, prices in pools.items()}
    if as_json:
        show.as_json(
            [
                {
                    "pool": name,
                    **_plain(prices),
                    "holds": [_row(prices, *row) for row in found[name]],
                }
                for name, prices in pools.items()
            ]
        )
        return
    for name, prices in pools.items():
        show.say(f"{show.clean(name)}: {prices.version}")
        if not prices.price_nanos:
            show.say(f"gridfed: {FREE}", err=True)
        for line in _lines(prices):
            show.say(f"  {show.clean(line)}")
        rows = [_row(prices, *row) for row in found[name]]
        clock = ("by its clock",) if str(prices.zone) != str(show.zone()) else ()
        show.table(
            (show.timed("from"), *clock, "window", "price", "when full", "preemptible"),
            [
                [
                    show.when(row["from_s"]),
                    *([row["local"]] if clock else []),
                    row["window"],
                    *(
                        format_money(row[key], prices.currency)
                        for key in ("price_nanos", "full_nanos", "preemptible_nanos")
                    ),
                ]
                for row in rows
            ],
            "no entries",
        )


@tariff.command()
@click.option("--hardware", required=True, help="The cost of all the hardware, installed.")
@click.option("--watts", default="0", help="The average power draw of all the hardware.")
@click.option(
    "--pue",
    default="1",
    show_default=True,
    help="The power usage effectiveness (PUE) of the building.",
)
@click.option("--power-price", default="0", help="The price of a kilowatt-hour.")
@click.option("--space", default="0", help="The cost of space per year.")
@click.option("--staff", default="0", help="The cost of staff per year.")
@click.option("--years", default="4", show_default=True, help="The service life of the hardware.")
@click.option(
    "--slots",
    default=1,
    show_default=True,
    type=click.IntRange(1, 10**8),
    help="The number of slots.",
)
@click.option(
    "--utilisation",
    default="1",
    show_default=True,
    help="The share of slot time that is sold: 0.8 or 80%.",
)
@click.option(
    "--currency", default="USD", show_default=True, help="The currency of all these amounts."
)
@json_option
def ownership(currency: str, slots: int, as_json: bool, **given: str) -> None:
    """Work out the cost of a slot-hour of one's own hardware, and each share of it.

    (hardware / years + kW · PUE · 8,766 h · power price + space + staff) a year, over slots ·
    8,766 h · utilisation. Write it into the configuration: a price of zero breaks brokering, as all
    work goes where it looks free.
    """
    try:
        check_currency(currency)
        owned = Ownership(
            slots=slots, **{name: _decimal(name, each) for name, each in given.items()}
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    costs = price_of(owned)
    shares = {
        "hardware": costs.hardware_nanos,
        "power": costs.power_nanos,
        "space": costs.space_nanos,
        "staff": costs.staff_nanos,
    }
    price = format_money(costs.price_nanos, currency)
    if as_json:
        note = "" if costs.price_nanos else FREE
        named = {f"{name}_nanos": nanos for name, nanos in shares.items()}
        whole = {"price_nanos": costs.price_nanos, "price": price, "currency": currency}
        show.as_json({**named, **whole, "note": note})
        return
    whole_nanos = max(1, costs.price_nanos)
    show.table(
        ("share", f"{currency} a slot-hour", "%"),
        [
            [name, format_amount(nanos), f"{100 * nanos / whole_nanos:.1f}"]
            for name, nanos in shares.items()
        ],
        "",
    )
    show.say(f'price = "{price}"')
    if not costs.price_nanos:
        show.say(f"gridfed: {FREE}", err=True)


def _holding(
    prices: PriceList, at_s: UtcS, until_s: UtcS | None
) -> Iterator[tuple[UtcS, PriceNow]]:
    """Yield the prices at a time, and from each change on until another."""
    yield at_s, prices.at(at_s)
    if until_s is None:
        return
    change_at_s = prices.next_change_at_s(at_s)
    while change_at_s is not None and change_at_s < until_s:
        yield change_at_s, prices.at(change_at_s)
        change_at_s = prices.next_change_at_s(change_at_s)


def _row(prices: PriceList, at_s: UtcS, now: PriceNow) -> dict[str, Any]:
    steps = prices.spot.steps if prices.spot is not None else 0
    preemptible = now.tariff_for(Wanted(price_class="preemptible"))
    return {
        "from_s": at_s,
        "local": datetime.fromtimestamp(float(at_s), prices.zone).strftime("%a %H:%M:%S %Z"),
        "window": now.tariff.window,
        "price_nanos": now.tariff.price_nanos,
        "full_nanos": prices.at(at_s, steps).tariff.price_nanos,
        "preemptible_nanos": preemptible.price_nanos,
    }


def _plain(prices: PriceList) -> dict[str, Any]:
    return {
        "version": prices.version,
        "price_nanos": prices.price_nanos,
        "currency": prices.currency,
        "zone": prices.zone.key,
        "minimum_nanos": prices.extras.minimum_nanos,
        "step_ns": prices.extras.step_ns,
        "rules": list(_lines(prices)),
    }


def _lines(prices: PriceList) -> Iterator[str]:
    """Yield a price list in words, a rule a line."""
    currency = prices.currency
    yield f"list price: {format_money(prices.price_nanos, currency)} a slot-hour"
    if prices.spot is not None:
        spot = prices.spot
        yield (
            f"spot: {format_amount(spot.floor_nanos)} to {format_amount(spot.ceiling_nanos)} "
            f"{currency}, with utilisation to the power of {spot.exponent}, in {spot.steps} steps, "
            f"damped over {duration_text(spot.damp_s)}"
        )
    for band in prices.bands:
        days = ",".join(DAYS[day] for day in sorted(band.span.days))
        times = f"{show.clock(band.span.from_s)} to {show.clock(band.span.to_s)} {prices.zone.key}"
        yield f"{band.name}: {days} {times}: {_adjusted(band.adjust, currency)}"
    yield from _extra_lines(prices.extras, currency)
    for tier in prices.volume:
        adjusted = _adjusted(tier.adjust, currency)
        yield f"from {tier.from_slot_hours:,} slot-hours in a month: {adjusted}"
    for site, adjust in sorted(prices.contracts.items()):
        yield f"contract of {site}: {_adjusted(adjust, currency)}, or the public price if less"


def _extra_lines(extras: Extras, currency: str) -> Iterator[str]:
    for tag, each in sorted(extras.surcharges.items()):
        added = f" + {format_money(each.add_nanos, currency)} each" if each.add_nanos else ""
        yield f"tag {tag}: price times {each.factor / MILLION:g}{added}"
    if extras.preemptible != MILLION:
        yield f"preemptible: price times {extras.preemptible / MILLION:g}"
    if extras.minimum_nanos:
        yield f"minimum per task: {format_money(extras.minimum_nanos, currency)}"
    if extras.step_ns:
        yield (
            f"time is rounded up to steps of {duration_text(extras.step_ns / 1e9)}, at least "
            "one per task"
        )


def _adjusted(adjust: Adjustment, currency: str) -> str:
    if adjust.nanos is not None:
        return format_money(adjust.nanos, currency)
    return f"times {adjust.factor / MILLION:g}"


def _decimal(name: str, text: str) -> Decimal:
    try:
        return Decimal(text[:-1]) / 100 if text.endswith("%") else Decimal(text)
    except InvalidOperation:
        hint = f"--{name.replace('_', '-')}"
        raise click.BadParameter(f"{text!r} is not a number", param_hint=hint) from None
