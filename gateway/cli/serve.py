"""Running: gateway, up, worker."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import trio

from federation.address import TOKEN_VARIABLE, check_bearer, resolve
from federation.errors import GridError
from federation.transport import TlsSettings
from gateway.child import collect_seldom
from gateway.cli import show
from gateway.cli.common import parse_size, parse_tags
from gateway.config import ConfigError, PoolConfig, SiteConfig, check, load
from gateway.no_pickle import forbid_unpickling
from gateway.site import Site
from gateway.worker.agent import AgentSettings, run_agent

INTERRUPTED: Final = 130
POOLS_READY_S: Final = 20.0


@click.command()
@click.option("--config", "path", metavar="FILE", help="A TOML file; see docs/configuration.md.")
@click.option("--listen", multiple=True, metavar="URL", help="Where to listen; may be repeated.")
@click.option("--state", metavar="DIR", help="The folder of the database.")
@click.option("--json", "as_json", is_flag=True, help="Say on stdout when it is ready, as JSON.")
def gateway(path: str | None, listen: tuple[str, ...], state: str | None, as_json: bool) -> None:
    """Run a gateway. Workers join it with `gridfed worker`, or it has local pools by its config."""
    _serve(_configured(path, listen, state), as_json)


@click.command()
@click.option("--slots", type=click.IntRange(min=1), help="Slots. [default: one per core]")
@click.option("--price", help='Price per slot-hour, as in "0.04 USD".')
@click.option("--memory", default="0", help="Memory limit per slot, as in 2G. [default: none]")
@click.option("--tags", default="", help="What the slots carry, as in linux,gpu=2.")
@click.option("--config", "path", metavar="FILE", help="A TOML file; see docs/configuration.md.")
@click.option("--listen", multiple=True, metavar="URL", help="Where to listen; may be repeated.")
@click.option("--state", metavar="DIR", help="The folder of the database.")
@click.option("--json", "as_json", is_flag=True, help="Say on stdout when it is ready, as JSON.")
def up(
    slots: int | None,
    price: str | None,
    memory: str,
    tags: str,
    path: str | None,
    listen: tuple[str, ...],
    state: str | None,
    as_json: bool,
) -> None:
    """Run a gateway with a local pool for all cores: a grid of your own, in one command."""
    config = _configured(path, listen, state)
    pool = PoolConfig("local", "local", slots or 0, parse_size(memory), tags=parse_tags(tags))
    pool = replace(pool, price=price) if price else pool
    others = tuple(each for each in config.pools if each.name != pool.name)
    _serve(replace(config, pools=(pool, *others)), as_json)


def _configured(path: str | None, listen: tuple[str, ...], state: str | None) -> SiteConfig:
    try:
        config = load(path)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    if listen:
        config = replace(config, listen=listen)
    return replace(config, state=state) if state else config


def _serve(config: SiteConfig, as_json: bool) -> None:
    try:
        config = check(config)
        for pool in config.pools:
            _ = pool.tariff
    except (ConfigError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    # The store's writer shares the interpreter with the loop: a turn of 5 ms is an age to both.
    sys.setswitchinterval(0.0005)
    collect_seldom()
    forbid_unpickling(_say)
    site = Site(config, _say)
    code = trio.run(_run_site, site, as_json)
    sys.exit(code)


def _say(line: str) -> None:
    click.echo(show.clean(line), err=True)


async def _run_site(site: Site, as_json: bool) -> int:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, nursery.cancel_scope, _say)
            addresses = await nursery.start(site.run)
            await site.wait_for_local_pools(POOLS_READY_S)
            if as_json:
                ready = {"ready": True, "site": site.config.name, "addresses": addresses}
                if site.peers is not None:
                    ready["peer_addresses"] = site.peers.addresses
                show.as_json(ready)
                sys.stdout.flush()
            for address in addresses:
                _say(f"gridfed: site {site.config.name} listens at {address}")
            if site.peers is not None:
                for address in site.peers.addresses:
                    _say(f"gridfed: other gateways come in at {address}")
            _say("gridfed: ready; Ctrl-C stops it")
    except* GridError as errors:
        site.failed = True
        for error in _flat(errors):
            _say(f"gridfed: {error}")
    return 1 if site.failed else 0


async def _stop_on_signal(scope: trio.CancelScope, say: Callable[[str], None]) -> None:
    """First signal: stop cleanly. Second: at once."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            break
    # Only now: the receiver puts the former handlers back when it ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    say("gridfed: stopping; once more to stop at once")
    scope.cancel()


def _flat(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_flat(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


@click.command()
@click.option("--gateway", "address", metavar="URL", help="The gateway to work for.")
@click.option("--slots", type=click.IntRange(min=1), help="Slots. [default: one per core]")
@click.option("--tags", default="", help="What the slots carry, as in linux,gpu=2.")
@click.option("--pool", default="workers", show_default=True, help="The gateway's pool to join.")
@click.option("--name", help="What to be called. [default: host and process]")
@click.option("--memory", default="0", help="Memory limit per slot, as in 2G. [default: none]")
@click.option("--secret-file", help="A file with the gateway's secret. [default: $GRIDFED_SECRET]")
@click.option("--token-file", help="A file with a token of scope work. [default: $GRIDFED_TOKEN]")
@click.option("--tls-ca-file", help="For tls+tcp://: the gateway's certificate, or its CA's.")
@click.option("--tls-server-name", help="For tls+tcp://: the name in the gateway's certificate.")
def worker(  # noqa: PLR0913 - each is an option of the command
    address: str | None,
    slots: int | None,
    tags: str,
    pool: str,
    name: str | None,
    memory: str,
    secret_file: str | None,
    token_file: str | None,
    tls_ca_file: str | None,
    tls_server_name: str | None,
) -> None:
    """Add this host's cores to a gateway's pool."""
    (dialled, *_), _ = resolve(address)  # a worker has one gateway: the first that is named
    config = SiteConfig(secret_file=secret_file or "")
    try:
        secret = config.secret
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    token = _read_token(token_file)
    try:
        if token:
            check_bearer(dialled)
    except GridError as error:
        raise click.ClickException(str(error)) from None
    settings = AgentSettings(
        address=dialled,
        secret=secret,
        token=token,
        tls=TlsSettings(ca_file=tls_ca_file, server_name=tls_server_name),
        name=name or f"{socket.gethostname()}-{os.getpid()}",
        slots=slots or len(os.sched_getaffinity(0)),
        tags=parse_tags(tags),
        pool=pool,
        memory_bytes=parse_size(memory),
    )
    sys.exit(trio.run(run_agent, settings))


def _read_token(path: str | None) -> str:
    """The worker's token, from its file or the environment; empty when there is none."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE, "")
    try:
        return Path(path).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"--token-file {path}: {error}") from None
