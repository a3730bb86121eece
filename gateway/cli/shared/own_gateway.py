"""The gateway of a configuration: its file, and the address at which its operator reaches it."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from federation.address import GATEWAY_VARIABLE

CONFIG_FILE: Final = "gateway.toml"
CONFIG_DIR_VARIABLE: Final = "GRIDFED_CONFIG_DIR"  # the folder with that file


class OwnGateway(NamedTuple):
    """A gateway as its own configuration has it."""

    address: str
    secret: str  # empty: none


def config_file(path: str | None, folder: str | None, *, by_environment: bool = True) -> str | None:
    """Return the configuration file that options name, else that of $GRIDFED_CONFIG_DIR, if set.

    Raises click.UsageError where both options are given.
    """
    if path and folder:
        raise click.UsageError("give only one of --config FILE and --config-dir DIR")
    if path:
        return path
    if by_environment:
        folder = folder or os.environ.get(CONFIG_DIR_VARIABLE)
    return str(Path(folder).expanduser() / CONFIG_FILE) if folder else None


def of_files(about: str, *, by_environment: bool = True, name: str = "path") -> Callable[..., Any]:
    """Return a decorator that adds --config and --config-dir, and passes the file by that name."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapped(
            *args: Any, config_path: str | None, config_folder: str | None, **kwargs: Any
        ) -> Any:
            found = config_file(config_path, config_folder, by_environment=by_environment)
            return command(*args, **{name: found}, **kwargs)

        default = f" [default: {CONFIG_FILE} of ${CONFIG_DIR_VARIABLE}, if set]"
        wrapped = click.option(
            "--config-dir",
            "config_folder",
            metavar="DIR",
            help=f"The folder with {CONFIG_FILE}, in place of --config.",
        )(wrapped)
        return click.option(
            "--config",
            "config_path",
            metavar="FILE",
            help=about + (default if by_environment else ""),
        )(wrapped)

    return decorate


def own_gateway(config: str | None) -> OwnGateway | None:
    """Return the gateway of a configuration; None: the client finds one by itself.

    Args:
        config: the file; None: that of $GRIDFED_CONFIG_DIR, if the file exists and $GRIDFED_GATEWAY
            names no gateway.

    Raises click.UsageError for a mistake in the file, and where it has no address of this host.
    """
    if config is None:
        if os.environ.get(GATEWAY_VARIABLE):
            return None
        config = config_file(None, None)
        if config is None or not Path(config).exists():
            return None
    from gateway.base.values import ConfigError  # most commands read no configuration
    from gateway.config.site import load
    from gateway.grids.kinds import Installed

    try:
        read = load(config, Installed())
        secret = read.secret
    except ConfigError as error:
        raise click.UsageError(f"{error}; or name the gateway with --gateway URL") from None
    own = [each for each in read.addresses if each.startswith("ipc://")]
    if not own:
        raise click.UsageError(
            f"{config}: [site] listen has no ipc:// address, which the site's own commands need: "
            "add one, or name the gateway with --gateway URL"
        )
    return OwnGateway(own[0], secret)
