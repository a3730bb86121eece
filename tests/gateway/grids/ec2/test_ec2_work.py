"""Tasks on rented instances, with a real gateway: they run, are interrupted, and run elsewhere."""

import os
import pwd
import sys
import time

import cloudpickle
import pytest
import trio
from support.processes import wait_until

from gateway.grids.contract import Order, PilotState, Shape

pytestmark = pytest.mark.real

# The functions of these tests are not installed where the slots look.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

CLOUD = """
[[pool]]
name = "cloud"
kind = "remote"
"""


def sleep_until(path, number):
    with (path / f"begun-{number}").open("a") as file:
        file.write("x")
    while not (path / "go").exists():
        time.sleep(0.01)
    return number


@pytest.mark.thorough
@pytest.mark.parametrize(
    "user",
    [
        pytest.param(pwd.getpwuid(os.getuid()).pw_name, id="a user"),
        pytest.param("", id="root"),
    ],
)
def test_what_an_interrupted_instance_ran_is_run_elsewhere(
    user, ec2, make_site, make_launch, configure, tmp_path
):
    from gateway.grids.ec2.grid import Ec2Grid

    ec2.spot = {("c7i.large", "eu-central-1a"): "0.031"}
    site = make_site(0, config=CLOUD)
    launch = make_launch(address=site.address, environment={"ODD": "it's"})
    grid = Ec2Grid(configure(market="spot", user=user), launch)
    order = Order("o-1", 2, Shape(slots=1))
    trio.run(grid.start, order)
    with site.client() as client:
        job = client.map(sleep_until, [tmp_path] * 2, range(2))  # which are never tried again
        wait_until(lambda: all((tmp_path / f"begun-{n}").exists() for n in range(2)), "both begin")
        first, second = trio.run(grid.pilots)
        assert {first.state, second.state} == {PilotState.RUNNING}
        assert first.paid_at_s is not None
        ec2.interrupt(first.grid_id, 4.0)

        def is_gone():
            shown = {each.name: each for each in trio.run(grid.pilots)}
            return shown[first.name].state is PilotState.ENDED

        wait_until(is_gone, "the interrupted instance is gone")
        ended = next(each for each in trio.run(grid.pilots) if each.name == first.name)
        assert "worker had ended" in ended.fault or "reclaimed the spot" in ended.fault
        (tmp_path / "go").touch()
        assert list(job) == [0, 1]
    text = ec2.instances[first.grid_id].log
    assert "the cloud will terminate this instance" in text
    begun = sorted((tmp_path / f"begun-{n}").read_text() for n in range(2))
    assert begun == ["x", "xx"], "one of them was interrupted, and only that one ran again"
    trio.run(grid.stop, order.names())
    wait_until(lambda: not ec2.alive("m-1"), "nothing is billed any more")


POOL = """
[[pool]]
name = "cloud"
kind = "ec2"

[pool.ec2]
region = "eu-central-1"
endpoint_url = "{url}"
profile = "good"
image = "ami-12345678"
zones = ["eu-central-1a"]
instance_types = {{ "c7i.large" = 1 }}
max_instances = 3
market = "spot"
max_spend_per_hour = "0.10 USD"
python = "{python}"
interruption_poll = "0.2s"

[pool.scale]
max = 2
start = "2s"
idle = "1s"
look = "1s"
"""


@pytest.mark.slow
def test_a_site_rents_for_its_work_and_lets_go_what_it_does_not_need(ec2, make_site):
    ec2.spot = {("c7i.large", "eu-central-1a"): "0.031"}
    site = make_site(0, config=POOL.format(url=ec2.url, python=sys.executable))
    assert not ec2.alive(), "at rest there is nothing, and it costs nothing"
    with site.client() as client:
        assert list(client.map(pow, range(20), [2] * 20)) == [each * each for each in range(20)]
    assert 1 <= len(ec2.instances) <= 2
    wait_until(lambda: not ec2.alive(), "what is idle is let go")


@pytest.mark.slow
def test_an_instance_ends_itself_when_its_time_is_over(ec2, make_launch, configure, tmp_path):
    from gateway.grids.ec2.grid import Ec2Grid

    head = f"touch {tmp_path}/on; while :; do sleep 1; done"  # which nobody would ever end
    launch = make_launch()
    trio.run(Ec2Grid(configure(user_data_head=head), launch).start, Order("o", 1, Shape(), 1.0))
    [each] = ec2.instances.values()
    wait_until(lambda: not ec2.alive("m-1"), "it is off, though no gateway ever asked for it")
    assert each.reason == "Client.InstanceInitiatedShutdown"
    assert (tmp_path / "on").exists()
