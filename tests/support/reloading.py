"""A configuration that reads its file again."""

from dataclasses import replace

from gateway.api.reload import Change, compare
from gateway.config.site import SiteConfig, check, load, with_local
from gateway.grids.kinds import Installed


def read_again(config: SiteConfig, utc_s: float) -> Change:
    """The changes from a configuration to that of its file as it is now."""
    read = load(config.source, Installed())
    if config.given:
        read = replace(read, pools=with_local(read.pools, config.given))
    return compare(config, check(read, utc_s), utc_s)
