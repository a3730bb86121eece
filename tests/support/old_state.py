"""Makes the state of two sites as an older version leaves it, for tests that open it.

Run it in a checkout of that version, with that version's environment:

    PYTHONPATH=.:tests .venv/bin/python /path/to/this/old_state.py /path/to/OUT.tar.xz

London, small and dear, buys from Paris. Their state has usage and deliveries, a budget that both
spend from, a reservation, a token, a finished job, and two jobs in the middle of their tasks: one
under an open contract with Paris, one at home. Then both gateways are killed. `facts.json` has the
figures to compare, `whole.toml` every setting of that version's template with its default.
"""

import json
import re
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from support import members
from support.members import federate, run, settled
from support.processes import wait_until

from gateway.trust.certificates import make_leaf

Member: Any = vars(members).get("MemberSite", vars(members).get("Member"))  # by the version
BOUGHT, DONE, LONG = 500, 20, 16  # tasks
FOLDER = "@FOLDER@"  # stands for the folder of a site in its files
KEPT = "[books]\ndetail_days = 0\n"
TOKEN_LIFE = "366d"  # the longest
LEAF_LIFE_S = 80 * 365 * 86_400.0
LONDON = """
[groups]
desk = ["ann"]

[credit]
paris = "500 USD"

[reservations]
slots = "100%"

[fair_share]
half_life = "7d"
[[fair_share.share]]
name = "risk"
who = "project:risk"
shares = 3

[[budget]]
name = "risk"
who = "project:risk"
amount = "1000 USD"
period = "ever"
sites = ["paris"]

[[entitlement]]
allow = "all"

[[alert]]
name = "desk"
kind = "budget"
amount = "1000 USD"
project = "risk"
command = ["true"]
"""
PARIS = """
[reservations]
slots = "100%"

[[budget]]
name = "risk"
who = "project:risk"
period = "ever"
owner = "london"
slice = "5 USD"
"""
TARIFF = """
[pool.tariff]
minimum = "0.00001 USD"
preemptible = 0.4
bands = [{ name = "night", from = "22:00", to = "06:00", factor = 0.5 }]
"""


def square(number: int) -> int:
    """Done at once."""
    return number * number


def slow_square(number: int) -> int:
    """Takes long enough to be interrupted."""
    time.sleep(0.4)
    return number * number


def configure(member: Member, tables: str) -> None:
    """Add tables to a site's configuration; results and details are kept for ever."""
    text = member.config.read_text()
    text = text.replace("[limits]\n", "[limits]\nresults_s = 0\n").replace("[books]\n", KEPT)
    at = text.index("\n[[pool]]")
    member.config.write_text(f"{text[:at]}{tables}{text[at:]}{TARIFF}")


def whole(text: str) -> str:
    """The template with every setting as if it had been written; without the examples."""
    lines: dict[str, str] = {}  # by table and key: what this member was given comes first, and goes
    table, is_example = "", False
    for line in text.splitlines():
        if re.match(r"# \[(\[[\w.]+\]|groups|credit|fair_share|reservations)\]", line):
            is_example = True
        elif re.match(r"\[\w+\]$", line):
            table, is_example = line, False
            lines[table] = line
        elif (key := re.match(r"(?:# )?(\w+) = ", line)) and not is_example:
            lines[table + key[1]] = line.removeprefix("# ")
    return "\n".join(lines.values()) + "\n"


def work(london: Member, paris: Member) -> dict[str, Any]:
    """Have all of it done; return the facts, with two jobs under way."""
    with paris.client() as client:
        assert sum(client.options(project="risk").map(square, range(DONE))) > 0
    start = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time() + 86_400))
    where = ("--gateway", london.address)
    reserved = ("--slots", "1", "--from", start, "--for", "1h", "--site", "paris")
    run("reserve", *reserved, "--project", "risk", *where)
    token = run(
        *("token", "--user", "ann", "--projects", "risk", "--scopes", "submit,report"),
        *("--expires", TOKEN_LIFE, *london.where),
    ).splitlines()[-1]
    with london.client() as client:
        view = client.options(project="risk", sites=["paris"])
        assert sum(view.map(square, range(BOUGHT))) > 0
        done = view.submit_job(square, range(DONE))
        wait_until(lambda: done.progress().done == DONE, "the finished job")
        wait_until(lambda: settled(london, paris), "the books to be settled")
        run("reconcile", "paris", *where)
        far = view.submit_job(slow_square, range(LONG))
        near = client.options(project="risk", sites=["london"]).submit_job(slow_square, range(LONG))
        for job in (far, near):
            wait_until(lambda job=job: 2 <= job.progress().done < LONG // 2, "its first tasks")
        return {
            "token": token,
            "made_s": time.time(),
            "jobs": {"done": done.id, "far": far.id, "near": near.id},
            "cost_nanos": done.cost().nanos,
            "reserved": json.loads(run("reservations", "--all", "--json", *where)),
        }


def main(out: Path) -> None:
    """Make the state in a new folder, and pack it."""
    folder = Path(tempfile.mkdtemp(prefix="old-state-"))
    make_leaf.__defaults__ = (LEAF_LIFE_S,)  # the tests outlive two years
    london = Member(folder, "london", 1, "4 USD", start=False)
    written = whole(london.config.read_text())
    configure(london, LONDON)
    paris = Member(folder, "paris", 2, "0.04 USD", start=False)
    configure(paris, PARIS)
    try:
        for member in (london, paris):
            member.start()
        federate(london, paris)
        facts = work(london, paris)
        for member in (london, paris):
            member.gateway.kill()
    finally:
        for member in (london, paris):
            member.gateway.stop()
    pack(folder, out, {"facts.json": json.dumps(facts, indent=1), "whole.toml": written})
    shutil.rmtree(folder)


def pack(folder: Path, out: Path, beside: dict[str, str]) -> None:
    """Pack both sites' files, without sockets and logs, and with FOLDER for the folder's name."""
    for name, text in beside.items():
        (folder / name).write_text(text)
    for path in folder.rglob("*"):
        if path.suffix == ".log" or path.is_socket() or path.suffix == ".sock":
            path.unlink()
        elif path.suffix == ".toml":
            path.write_text(path.read_text().replace(str(folder), FOLDER))
    with tarfile.open(out, "w:xz", preset=9) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
