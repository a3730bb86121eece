"""Processes: gateway, up, worker."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
import trio

from federation.address import (
    TOKEN_VARIABLE,
    AddressError,
    check_address,
)
from federation.errors import GridError
from federation.package_conflicts import NameCollision, check_owners
from federation.words import duration_text
from gateway.base.child import collect_seldom
from gateway.base.clocks import utc_now
from gateway.base.no_pickle import forbid_unpickling
from gateway.base.secret_files import take_secret
from gateway.base.values import WORKER_SLOTS_MAX, ConfigError, SettingError
from gateway.checking.whole import check_start
from gateway.cli.operate.log_lines import LogLines
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    config_file_option,
    parse_memory,
    parse_tags,
)
from gateway.cli.shared.own_gateway import of_files
from gateway.config.site import SiteConfig, check, load, with_local
from gateway.grids.kinds import Installed
from gateway.runtime.garbage import collect_when_idle
from gateway.worker.isolation.secrecy import hide_memory, take_variable

if TYPE_CHECKING:
    from gateway.site import Site

INTERRUPTED: Final = 130
POOLS_READY_S: Final = 20.0  # after this long without a worker, and each time again, a line says so
STOP_S: Final = 5.0  # how long running tasks may take to end when the gateway stops


@click.command()
@config_file_option
@click.option("--listen", multiple=True, metavar="URL", help="An address to listen at; repeatable.")
@click.option("--state", metavar="DIR", help="The folder of the database.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON when ready.")
def gateway(path: str | None, listen: tuple[str, ...], state: str | None, as_json: bool) -> None:
    """Run a gateway. Workers join it with `gridfed worker`, or it has local pools by its config."""
    _serve(configured(path, listen, state), as_json)


@click.command()
@click.option(
    "--slots",
    type=click.IntRange(1, WORKER_SLOTS_MAX),
    help="The number of slots. [default: one per core]",
)
@click.option("--price", help='Price per slot-hour, as in "0.04 USD".')
@click.option("--memory", help="Memory limit per slot, as in 2G. [default: none]")
@click.option("--tags", help="The tags of the slots, as in linux,gpu=2.")
@of_files("A TOML file; see docs/configuration.md.", by_environment=False)
@click.option("--listen", multiple=True, metavar="URL", help="An address to listen at; repeatable.")
@click.option("--state", metavar="DIR", help="The folder of the database.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON when ready.")
def up(
    slots: int | None,
    price: str | None,
    memory: str | None,
    tags: str | None,
    path: str | None,
    listen: tuple[str, ...],
    state: str | None,
    as_json: bool,
) -> None:
    """Run a gateway with a local pool for all cores: a grid of your own, in one command.

    A pool `local` of the file is that pool; options given here override the file.
    """
    config = configured(path, listen, state)
    given: dict[str, Any] = {"kind": "local"}
    if slots is not None:
        given["slots"] = slots
    if price is not None:
        given["price"] = price
    if memory is not None:
        given["memory_bytes"] = parse_memory(memory)
    if tags is not None:
        given["tags"] = parse_tags(tags)
    _serve(replace(config, pools=with_local(config.pools, given), given=given), as_json)


def configured(path: str | None, listen: tuple[str, ...], state: str | None) -> SiteConfig:
    """Return the configuration of a file, or the default, with the command line's overrides."""
    try:
        config = load(path, Installed())
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    for address in listen:
        try:
            check_address(address)
        except AddressError as error:
            raise click.BadParameter(str(error), param_hint="--listen") from None
    if listen:
        config = replace(config, listen=listen)
    show.note_site(config.name)
    show.note_zone(config.zone)
    return replace(config, state=state) if state else config


def _serve(config: SiteConfig, as_json: bool) -> None:
    try:
        check_owners()
    except NameCollision as error:
        raise click.ClickException(str(error)) from None
    try:
        config = check(config, utc_now())
        for pool in config.pools:
            _ = pool.prices
        findings = check_start(config, utc_now())
    except (ConfigError, SettingError) as error:
        raise click.UsageError(str(error)) from None
    # Slots are processes of our user: neither our variables nor our memory are theirs to read.
    take_secret(take_variable)
    take_variable(TOKEN_VARIABLE)
    hide_memory()
    # The store's writer shares the interpreter with the loop: a turn of 5 ms is long for both.
    sys.setswitchinterval(0.0005)
    collect_seldom()
    try:
        log = LogLines(config.log.path)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    for each in findings:
        log.say(f"gridfed: {each.level}: {each}")
    forbid_unpickling(log.say)
    from gateway.site import Site  # it takes a second, and a worker does not need it

    site = Site(config, log.say)
    code = trio.run(_run_site, site, log, as_json)
    sys.exit(code)


async def _run_site(site: "Site", log: LogLines, as_json: bool) -> int:
    say = log.say
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, site, nursery.cancel_scope, say)
            await nursery.start(_obey_hangups, site, log, nursery.cancel_scope)
            addresses = await nursery.start(site.run)
            nursery.start_soon(collect_when_idle, lambda: site.broker.changes)
            while missing := await site.wait_for_local_pools(POOLS_READY_S):
                say(f"gridfed: not ready: no worker yet in pool {', '.join(missing)}")
            if as_json:
                show.note_site(site.config.name)
                ready = {"ready": True, "site": site.config.name, "addresses": addresses}
                if site.peers is not None:
                    ready["peer_addresses"] = site.peers.addresses
                show.as_json(ready)
                sys.stdout.flush()
            for address in addresses:
                say(f"gridfed: site {site.config.name} listens at {address}")
            if site.peers is not None:
                for address in site.peers.addresses:
                    say(f"gridfed: other gateways connect at {address}")
            say("gridfed: ready; press Ctrl-C to stop")
    except* GridError as errors:
        site.failed = True
        for error in _flat(errors):
            say(f"gridfed: {error}")
    return 1 if site.failed else 0


async def _stop_on_signal(
    site: "Site", scope: trio.CancelScope, say: Callable[[str], None]
) -> None:
    """First signal: stop when the running tasks have ended. Second: at once."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            break
    # Only now: the receiver restores the former handlers when it ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    say(
        f"gridfed: stopping; running tasks have {duration_text(STOP_S)} to end; a second signal "
        "stops them at once"
    )
    await site.wind_up(STOP_S)
    scope.cancel()


async def _obey_hangups(
    site: "Site",
    log: LogLines,
    scope: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """At each SIGHUP open the log anew and reload the configuration.

    The kernel also sends it when a terminal is closed: a gateway that ran in that terminal stops.
    """
    had_terminal = sys.stderr.isatty()
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        task_status.started()
        async for _ in hangups:
            if had_terminal and not sys.stderr.isatty():
                await site.wind_up(STOP_S)
                scope.cancel()
                return
            if error := log.reopen():
                log.say(f"gridfed: SIGHUP: {error}; the former file is still used")
            await site.reload_on_hangup()


def _flat(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_flat(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
