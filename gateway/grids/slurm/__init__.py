"""The grid `slurm`: pilots in a Slurm cluster, by its commands or by slurmrestd."""

from gateway.grids.contract import GridKind
from gateway.grids.slurm.grid import SlurmGrid
from gateway.grids.slurm.settings import SlurmSettings, read_settings

__all__ = ["KIND", "SlurmGrid", "SlurmSettings"]

KIND = GridKind("slurm", read_settings, SlurmGrid)
