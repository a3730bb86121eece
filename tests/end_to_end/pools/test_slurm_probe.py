"""A probe of a pool on Slurm reports the refusals of Slurm."""

import pytest
from support.command import quick
from support.processes import InnerSite

from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig
from gateway.grids.kinds import find_kind
from policies.placement.autoscaling import ScalingRules

pytestmark = [pytest.mark.slow, pytest.mark.real]


def test_a_probe_says_that_slurm_is_not_to_be_reached(tmp_path):
    wrong = {"partition": "p", "python": "/p", "conf": f"{tmp_path}/none.conf"}
    scale = ScaleConfig(ScalingRules(slots_max=3), look_s=1.0, dial_for_s=1.0)
    hpc = PoolConfig("hpc", "slurm", scale=scale, grid=find_kind("slurm").read(wrong))
    site = InnerSite(tmp_path, pools=(hpc,))
    try:
        assert "Error: check: " in quick("pool", "test", "hpc", "--gateway", site.address, code=1)
    finally:
        site.stop()
