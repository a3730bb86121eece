"""The configuration for commands that read a gateway's files: of the one that others would ask."""

import os
from collections.abc import Iterator

import click

from federation.address import GATEWAY_VARIABLE, resolve
from gateway.base.values import ConfigError
from gateway.cli.operate.found import config_folder
from gateway.cli.operate.serve import configured
from gateway.cli.shared.own_gateway import CONFIG_FILE
from gateway.config.site import SiteConfig, load
from gateway.grids.kinds import Installed


def configuration_here(path: str | None, state: str | None) -> tuple[SiteConfig, bool]:
    """Return the configuration of the gateway whose files are meant, and whether anything named it.

    That of --config, --config-dir or $GRIDFED_CONFIG_DIR; else, where $GRIDFED_GATEWAY names a
    gateway, the one with that address: of ~/.config/gridfed, or the default. Only where nothing is
    named is the default taken as it is.

    Args:
        path: the file, as from `of_files`.
        state: the folder of the database, which names a gateway, too.

    Raises click.UsageError for a mistake in the file, and where no configuration here has the
    address: such a command would show or change the books of another gateway.
    """
    if path or state or not os.environ.get(GATEWAY_VARIABLE):
        return configured(path, (), state), bool(path or state)
    wanted, _ = resolve(None)
    for each in _usual_files():
        try:
            addresses = load(each, Installed()).addresses
        except ConfigError:
            continue  # its own commands tell the mistake
        if not set(wanted).isdisjoint(addresses):
            return configured(each, (), None), True
    shown = ", ".join(wanted)
    raise click.UsageError(
        f"${GATEWAY_VARIABLE} names {shown}, and this command reads the gateway's files: name its "
        "configuration with --config FILE, or unset the variable for the default"
    )


def _usual_files() -> Iterator[str | None]:
    """Yield the files where a gateway of this user has its configuration; None: the defaults."""
    usual = config_folder(None) / CONFIG_FILE
    if usual.exists():
        yield str(usual)
    yield None
