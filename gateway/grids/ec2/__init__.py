"""Instances of Amazon EC2 as pilots: rented while there is work, and terminated after it.

The SDK is imported only when such a pool is opened.
"""

from typing import Final

from gateway.grids.contract import GridKind, Launch, Provisioning
from gateway.grids.ec2.settings import Ec2Config, read

__all__ = ["KIND"]


def _open(config: Ec2Config, launch: Launch) -> Provisioning:
    from gateway.grids.ec2.grid import Ec2Grid

    return Ec2Grid(config, launch)


KIND: Final = GridKind("ec2", read, _open, needs="aws")
