"""The facts about their gateway that grids get: its mark, and the address for pilots."""

import hashlib
import shutil
from dataclasses import replace

import pytest
import trio

from federation.errors import GridError
from federation.sessions.task_passes import pass_of_pool
from gateway.config.limits import ListenerLimits
from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig, SiteConfig, check
from gateway.grids.scaling.opening import launch_of, mark_of
from gateway.site import Site
from policies.placement.autoscaling import ScalingRules

POOL = PoolConfig("hpc", "slurm", scale=ScaleConfig(ScalingRules(slots_max=2)))


def test_a_mark_is_the_same_in_each_life_and_another_for_each_pool_and_site(tmp_path):
    site = SiteConfig("london", state=str(tmp_path / "state"))
    mark = mark_of(site, POOL)
    assert mark.startswith("london-hpc-")
    assert mark == mark_of(site, POOL)
    others = mark_of(site, replace(POOL, name="hpc2")), mark_of(replace(site, name="l"), POOL)
    assert len({mark, *others}) == 3


def test_two_hosts_whose_state_has_the_same_path_have_two_marks(tmp_path):
    site = SiteConfig("london", state=str(tmp_path / "state"))
    mark = mark_of(site, POOL)
    shutil.move(tmp_path / "state", tmp_path / "of another host")
    assert mark_of(site, POOL) != mark


def test_the_mark_of_a_pool_that_had_one_before_there_were_numbers_stays(tmp_path):
    site = SiteConfig("london", state=str(tmp_path))
    digest = hashlib.sha256(f"london\0hpc\0{tmp_path}".encode()).hexdigest()[:12]
    new = mark_of(site, POOL)
    (tmp_path / "pools" / f"london-hpc-{digest}").mkdir(parents=True)
    assert mark_of(site, POOL) == f"london-hpc-{digest}" != new


def test_books_on_a_server_are_the_same_from_any_host(tmp_path):
    url = "postgresql+psycopg://{}@db.example/{}"
    site = SiteConfig("london", state=str(tmp_path / "a"), database=url.format("me:one", "books"))
    moved = replace(site, state=str(tmp_path / "b"), database=url.format("you:two", "books"))
    assert mark_of(site, POOL) == mark_of(moved, POOL)
    other = replace(site, database=url.format("me:one", "others"))
    assert mark_of(site, POOL) != mark_of(other, POOL)


def test_books_that_move_to_a_server_leave_pools_their_marks(tmp_path):
    site = SiteConfig("london", state=str(tmp_path))
    mark = mark_of(site, POOL)
    moved = replace(site, database="postgresql+psycopg://me@db.example/books")
    assert mark_of(moved, POOL) != mark, "it has never had a pilot by that"
    (tmp_path / "pools" / mark).mkdir(parents=True)
    assert mark_of(moved, POOL) == mark


def test_a_number_that_is_lost_is_not_replaced_in_silence(tmp_path):
    site = SiteConfig("london", state=str(tmp_path))
    mark_of(site, POOL)
    (tmp_path / "install").write_text("")
    with pytest.raises(GridError, match="install is empty: pilots are found by its content"):
        mark_of(site, POOL)


@pytest.mark.real
async def test_a_site_whose_grid_breaks_when_it_is_opened_does_not_start(tmp_path):
    pool = replace(POOL, kind="processes", grid=None)  # not what its `read` returns
    config = SiteConfig(listen=(f"ipc://{tmp_path}/gw.sock",), state=str(tmp_path), pools=(pool,))
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(Site(check(config, 0.0), lambda line: None).run)
    said = "pool hpc: kind 'processes' of gridfed .* failed while opening the grid: AttributeError"
    assert caught.group_contains(GridError, match=said)


def test_pilots_come_in_by_a_pass_of_their_pool_and_never_get_the_secret(tmp_path):
    site = SiteConfig("london", state=str(tmp_path), pools=(POOL,))
    at = ["tcp://10.0.0.1:7461"]
    sharing = replace(site, rules=ListenerLimits("london", secret="s3cret"))
    launch = launch_of(sharing, POOL, at, print)
    assert launch.environment == {"GRIDFED_TOKEN": str(pass_of_pool("s3cret", "hpc"))}
    assert launch_of(site, POOL, at, print).environment == {}
