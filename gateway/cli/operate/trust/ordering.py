"""Orders about keys and trust: the options of their commands, and their execution.

The process that holds the folder of keys decides: the gateway while it runs, which is asked by its
own socket, else the command itself. So no change is ever lost, and none needs the gateway to be
stopped.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, Final

import click
import trio

from federation import Client
from federation.address import GATEWAY_VARIABLE, NoToken
from federation.words import read_length
from gateway.base.values import ConfigError, SettingError
from gateway.cli.operate.found import config_folder
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    json_option,
    note_zone,
    reach_options,
    told_by,
)
from gateway.cli.shared.own_gateway import CONFIG_FILE, config_file
from gateway.config.federation import FederationConfig, shown
from gateway.config.site import SiteConfig, load
from gateway.grids.kinds import Installed
from gateway.peering import orders
from gateway.peering.orders import BadOrder
from gateway.trust.identity_store import Registry
from gateway.trust.keys import FolderInUse, hold

# An order changes whom a site trusts: the site does not depend on $GRIDFED_GATEWAY.
_GATEWAY_HELP: Final = (
    "Give the order to that gateway. [default: the site of --config, of $GRIDFED_CONFIG_DIR, or "
    "of ~/.config/gridfed]"
)
_REACH: Final = "gateway.cli.reach"  # the key, in a command's context, of the gateway to ask


def order(config_path: str | None, verb: str, *, alone: bool = True, **details: Any) -> Any:
    """Carry out an order: by the gateway if it runs, else here, if it may be done `alone`.

    `config_path` is the file of the configuration; with --gateway that gateway is asked.

    Raises:
        GridError: it can't be done.
    """
    details = {key: value for key, value in details.items() if value is not None}
    remote = remote_gateway()
    if remote is not None:
        return ask(remote, verb, **details)
    config = configuration(config_path)
    show.note_site(config.name)
    show.note_zone(config.zone)
    try:
        with hold(config.trust_path):
            if not alone:
                raise _needs_gateway(verb)
            return trio.run(_perform_here, config, verb, details)
    except FolderInUse:
        return _ask_gateway(config, verb, details)


def question(config_path: str | None, verb: str, **details: Any) -> Any:
    """Ask what is known about trust, which changes nothing: also the gateway of $GRIDFED_GATEWAY.

    That one is asked where neither --gateway nor a configuration is named.

    Raises:
        GridError: it can't be answered.
    """
    context = click.get_current_context(silent=True)
    reach = None if context is None else context.meta.get(_REACH)
    if (
        isinstance(reach, DialOptions)
        and reach.address is None
        and reach.config is None
        and config_path is None
        and os.environ.get(GATEWAY_VARIABLE, "").strip(" ,")
    ):
        details = {key: value for key, value in details.items() if value is not None}
        return ask(reach, verb, **details)
    return order(config_path, verb, **details)


def consequences(
    config_path: str | None, verb: str, *, alone: bool = True, **details: Any
) -> list[str]:
    """Return what follows from an order, by the gateway that gets it.

    If it does not run nothing is under way; BadOrder where the order is not possible then.
    """
    remote = remote_gateway()
    if remote is not None:
        return told_by(lambda: ask(remote, "consequences", order=verb, details=details))
    config = configuration(config_path)
    try:
        with hold(config.trust_path):
            if not alone:
                raise _needs_gateway(verb)
            return ["the gateway does not run: the order takes effect when it starts"]
    except FolderInUse:
        asked = {"order": verb, "details": details}
        return told_by(lambda: _ask_gateway(config, "consequences", asked))


def configuration(config: str | None) -> SiteConfig:
    """Read the configuration of the site that gets orders; BadOrder if it has no keys."""
    try:
        found = load(config or str(config_folder(None) / CONFIG_FILE), Installed())
    except ConfigError as error:
        raise BadOrder(
            f"{error}: make a site with `gridfed init`, choose its configuration with --config "
            "FILE, or name its gateway with --gateway URL ($GRIDFED_GATEWAY is not used by orders "
            "about trust)"
        ) from None
    if not (found.trust_path / "current.pem").exists():
        raise BadOrder(f"no keys found in {found.trust_path}: make them with `gridfed init`")
    return found


def remote_gateway() -> DialOptions | None:
    """Return the gateway that --gateway names, which is asked in place of the configuration's."""
    context = click.get_current_context(silent=True)
    reach = None if context is None else context.meta.get(_REACH)
    return reach if isinstance(reach, DialOptions) and reach.address is not None else None


def _ask_gateway(config: SiteConfig, verb: str, details: dict[str, Any]) -> Any:
    own = next((each for each in config.addresses if each.startswith("ipc://")), None)
    if own is None:
        raise BadOrder(
            "the gateway is running, but [site] listen has no ipc:// address to reach it: add one"
        )
    # Without a token: on its own socket the gateway knows its operator.
    with Client(own, secret=config.secret, token=NoToken()) as client:
        found = client.ask(verb, **details)
        note_zone(client)
    return found


def _needs_gateway(verb: str) -> BadOrder:
    return BadOrder(
        f"`gridfed {verb}` needs a running gateway, which informs the other sites: start it first"
    )


async def _perform_here(config: SiteConfig, verb: str, details: dict[str, Any]) -> Any:
    settings = config.federation or FederationConfig()
    registry = Registry(
        config.trust_path,
        follow=settings.follow,
        spread_s=settings.rotation_spread_s,
        overlap_s=settings.rotation_overlap_s,
        await_s=settings.rotation_await_s,
    )
    registry.join_address = _join_address(settings)
    return await orders.perform(registry, verb, details)


def _join_address(settings: FederationConfig) -> str:
    """Return the address for invitations, as far as it is known while the gateway does not run."""
    named = (settings.join_advertise,) if settings.join_advertise else ()
    bound = [settings.join_listen] if settings.join_listen else []
    try:
        addresses = shown(named, bound)
    except SettingError:
        return ""
    return next((each for each in addresses if not each.endswith(":0")), "")


def trust_command(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorate a command with the options that all commands of this package share."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def wrapped(*args: Any, reach: DialOptions, **kwargs: Any) -> Any:
            click.get_current_context().meta[_REACH] = reach
            return function(*args, config_path=config_file(reach.config, None), **kwargs)

        made: Callable[..., Any] = reach_options(
            json_option(errors_to_exit_codes(wrapped)), _GATEWAY_HELP
        )
        for option in reversed(options):
            made = option(made)
        return click.command()(functools.wraps(function)(made))

    return decorate


def expiry_option(default: str, what: str) -> Callable[..., Any]:
    """Make the option --expires; its value is read by `validity_s`."""
    return click.option(
        "--expires", default=default, show_default=True, help=f"How long {what} is valid: 30m, 24h."
    )


def parse_span(text: str) -> float:
    """Read a length of time, "90s", "30m", "24h" or "7d", as seconds."""
    try:
        return read_length(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def validity_s(text: str) -> float:
    """Read the value of --expires, in seconds, within the bounds that all gateways have."""
    span_s = parse_span(text)
    if not 0 < span_s <= orders.VALID_MAX_S:
        bound = f"above zero, and at most {orders.VALID_MAX_S / 86400:g}d"
        raise click.BadParameter(f"{text!r}: it must be {bound}", param_hint="--expires")
    return span_s


def tell(found: Any, as_json: bool, line: str) -> None:
    """Print the answer to an order: whole with --json, else a line about it."""
    if as_json:
        show.as_json(found)
    else:
        show.say(line)
