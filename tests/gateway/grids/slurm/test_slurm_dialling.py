"""Pilots of Slurm run on other hosts, which must be able to dial the gateway."""

from dataclasses import replace

import pytest
from support.processes import InnerSite, wait_until

from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig
from gateway.grids.kinds import find_kind
from policies.placement.autoscaling import ScalingRules

POOL = PoolConfig("hpc", "slurm", scale=ScaleConfig(ScalingRules(slots_max=2)))


@pytest.mark.real
@pytest.mark.parametrize(("dial", "is_warned"), [("", True), ("tls+tcp://gw.example:7461", False)])
def test_a_gateway_that_pilots_can_not_reach_says_so(tmp_path, dial, is_warned):
    kind = find_kind("slurm")
    settings = kind.read({"partition": "p", "python": "/p", "conf": str(tmp_path / "none.conf")})
    pool = replace(POOL, scale=replace(POOL.scale, dial=dial, dry_run=True), grid=settings)
    site = InnerSite(tmp_path, pools=(pool,))
    try:
        # What the grid says of itself comes after all that is said when it is opened.
        wait_until(lambda: any("`check`" in line for line in site.said), "it was asked")
        found = [line for line in site.said if "only this host can" in line]
    finally:
        site.stop()
    assert len(found) == is_warned
    for line in found:
        assert f"pool hpc: its pilots will dial {site.address}, which only this host can" in line
        assert "add an address for other hosts to listen in [site]" in line
