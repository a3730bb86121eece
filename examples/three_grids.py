"""One job over three grids: a Slurm cluster, rented "instances", and one's own machine.

    london   local, 1 slot, always there         0.20 USD a slot-hour: the client's own gateway
    rhine    a real Slurm cluster of 3 nodes     0.05 USD: no pilot while there is no work
    cloud    EC2, by a stand-in                  0.12 USD: no instance while there is no work

The client knows only london. Its gateway sees that rhine and cloud could start slots, how long that
takes and its cost. It buys from both, and they start pilots: jobs of Slurm, instances. When the
work is done both release the pilots that they started. One client, one job, one bill.

    python examples/three_grids.py               # make demo-grids

The Slurm cluster is a real one, on this host (as root, with Debian's slurmctld, slurmd,
slurm-client, slurmrestd and munge). EC2 is moto, with a stand-in that runs each instance's user
data as a process of this host: nothing here has been tried against the real service.
"""

import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from federated_risk import show_books, show_pools
from local_federation import LocalSite, LocalSitePlan, local_federation

from federation import Client
from federation.money import format_money

TASKS = 160
TASK_S = 0.1  # of processor time, each: the job outlasts the start of pilots even on a fast host
CHECKED = 8  # tasks that are run here as well
GONE_S = 60.0
# The sites are all yours: see ACCEPTED in local_federation.py.
SLURM = """
[[pool]]
name = "hpc"
kind = "slurm"
price = "0.05 USD"
environments = {{ sandbox = "none", accept_risk = "tasks of others can act as this site" }}
[pool.slurm]
conf = "{conf}"
partition = "main"
python = "{python}"
[pool.scale]
max = 6
pilot_slots = 2
start = "2s"
idle = "2s"
look = "1s"
waste = 1.0
"""
EC2 = """
[[pool]]
name = "rented"
kind = "ec2"
price = "0.12 USD"
environments = {{ sandbox = "none", accept_risk = "tasks of others can act as this site" }}
[pool.ec2]
region = "eu-central-1"
endpoint_url = "{url}"
profile = "good"
image = "ami-12345678"
zones = ["eu-central-1a"]
instance_types = {{ "c7i.large" = 2 }}
max_instances = 3
python = "{python}"
interruption_poll = "1s"
[pool.scale]
max = 6
pilot_slots = 2
start = "3s"
idle = "2s"
look = "1s"
waste = 1.0
"""


def price(seed: int, draws: int) -> float:
    """Price a call option by Monte Carlo, the slow way."""
    chance = random.Random(seed)
    total = 0.0
    for _ in range(draws):
        total += max(0.0, 100.0 * (1.0 + 0.2 * chance.gauss(0.0, 1.0)) - 105.0)
    return total / draws


def draws_of(task_s: float, tried: int = 60_000) -> int:
    """Return how many draws take this time on this host."""
    began_s = time.process_time()
    price(0, tried)
    return max(1, round(tried * task_s / (time.process_time() - began_s)))


@contextlib.contextmanager
def grids(folder: Path) -> Iterator[tuple[str, str]]:
    """Start a Slurm cluster and a stand-in of EC2; yield the pools that wrap them, as TOML."""
    # They live with the tests, which use the same.
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from fakes.ec2 import Ec2
    from support.programs.slurm import Cluster, lacking

    missing = lacking()
    if missing:
        sys.exit(f"a Slurm cluster can't be started here: {missing}")
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(contextlib.closing(Cluster("rhine", nodes=3, cpus=2)))
        ec2 = stack.enter_context(contextlib.closing(Ec2(folder)))
        os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(ec2.folder / "credentials")
        yield (
            SLURM.format(conf=cluster.conf, python=sys.executable),
            EC2.format(url=ec2.url, python=sys.executable),
        )


def run_on(near: LocalSite) -> None:
    """Run the job through the near gateway; print where it ran, and its cost."""
    draws = draws_of(TASK_S)
    with Client(near.address) as client:
        show_pools(client.ask("pools"))
        view = client.options(name="monte-carlo", project="demo", objective="fastest", task_s=0.2)
        started_s = time.perf_counter()
        with contextlib.closing(
            view.map(price, range(TASKS), [draws] * TASKS, progress=True)
        ) as results:
            job = results.job
            values = list(results)
        elapsed_s = time.perf_counter() - started_s
        handle = client.job(job)
        handle.wait(30)
        bill = handle.details()
        usage = rows(client.ask("report", kind="usage", by=["pool"]))
        costs = {
            each["pool"]: each for each in rows(client.ask("report", kind="cost", by=["pool"]))
        }
    print(f"\n  {'ran at':<16}{'tasks':>8}{'slot-seconds':>15}{'cost':>22}")
    for row in usage:
        cost = costs[row["pool"]]
        where = row["pool"] if "/" in row["pool"] else f"{near.name}/{row['pool']}"
        told = format_money(cost["cost_nanos"], cost["currency"])
        print(f"  {where:<16}{row['tasks']:>8,}{row['wall_ns'] / 1e9:>15,.2f}{told:>22}")
    print(f"\n  {bill['done']:,} tasks in {elapsed_s:.1f} s, {bill['cost']} in total: one bill")
    idle = {"rhine/hpc", "cloud/rented"} - {row["pool"] for row in usage}
    if idle:
        sys.exit(f"no task ran at {' and '.join(sorted(idle))}: see its gateway's `scale --why`")
    if values[:CHECKED] != [price(seed, draws) for seed in range(CHECKED)]:
        sys.exit("the values differ from those of a plain loop")


def rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a report's rows as maps."""
    return [dict(zip(report["columns"], row, strict=True)) for row in report["rows"]]


def wait_until_gone(sites: list[LocalSite]) -> None:
    """Wait until the grids have released all their pilots: zero slots cost zero."""
    until_s = time.monotonic() + GONE_S
    for site in sites:
        while any(pool["pilots"] for pool in site.ask("scale")["pools"]):
            if time.monotonic() > until_s:
                sys.exit(f"{site.name} still has pilots:\n{site.gridfed('scale', '--why')}")
            time.sleep(0.2)
        print(f"  {site.name} has released all pilots that it started")


def main() -> None:
    """Make the grids and the sites, and run."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    print("starting a Slurm cluster, a stand-in of EC2, and three sites …")
    with (
        tempfile.TemporaryDirectory(prefix="gridfed-grids-") as folder,
        grids(Path(folder) / "ec2") as (slurm, ec2),
    ):
        plans = (
            LocalSitePlan("london", 1, "0.20 USD"),
            LocalSitePlan("rhine", 0, "", pools=slurm),
            LocalSitePlan("cloud", 0, "", pools=ec2),
        )
        with local_federation(plans) as sites:
            run_on(sites[0])
            print()
            wait_until_gone(sites[1:])
            show_books(sites)


if __name__ == "__main__":
    main()
