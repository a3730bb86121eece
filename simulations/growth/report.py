"""The report of growing and shrinking, as people read it: all figures are of the reported run."""

from typing import Any

from simulations.tables import table

Figures = dict[str, Any]


def report(found: Figures) -> str:
    """Format the report in Markdown."""
    parts = [
        "# A pool that grows and shrinks",
        f"`{found['command']}`\n\nAll promises are "
        f"{'kept' if found['is_kept'] else '**not** kept'}. Real parts, assumptions and the "
        "method of the optimum: simulations/growth/README.md.",
        "## Up and down",
        _climbs(found),
        "## The cost for the gateway",
        _costs(found),
    ]
    if found["days"]:
        parts += ["## Days", _days(found)]
    return "\n\n".join(parts) + "\n"


def _climbs(found: Figures) -> str:
    climbs = [found["climb"], found["small"]]
    rows = [
        (
            "from submission until all slots work",
            *(f"{each['working_s']:,.1f} s" for each in climbs),
        ),
        (
            "the launches alone, all ordered at once",
            *(f"{each['needed_s']:,.1f} s" for each in climbs),
        ),
        (f"ratio (promised: {found['promised']})", *(f"{each['ratio']:.3f}" for each in climbs)),
        ("instances that were launched", *(f"{each['launched']:,}" for each in climbs)),
        (
            "from the end of the last task until no instance is left",
            *(f"{each['gone_s']:,.1f} s" for each in climbs),
        ),
        (
            "of that: idle time as long as a start, then the cloud's own rate",
            *(f"{each['let_go_s']:,.1f} s" for each in climbs),
        ),
        (
            "tasks: submitted, done, billed",
            *(f"{each['tasks']:,}, {each['done']:,}, {each['booked']:,}" for each in climbs),
        ),
        ("instances that are left", *(f"{each['left']}" for each in climbs)),
    ]
    return table(("", *(f"{each['slots']:,} slots" for each in climbs)), rows)


def _costs(found: Figures) -> str:
    """Format the CPU times of one run, and their growth: absolute ones depend on the machine."""
    big, small = found["climb"], found["small"]
    rows = []
    for name, what in (("spent", "of the whole run"), ("at_work", "while all slots work")):
        for part, words in (
            ("round_ms", "a round of the pool controller"),
            ("batch_ms", "the broker's"),
        ):
            one, other = big[name][part], small[name][part]
            ratio = f"{one / other:.1f}" if other else ""
            rows.append((f"{words}, {what}", f"{one:.1f} ms", f"{other:.1f} ms", ratio))
    head = ("CPU time", f"{big['slots']:,} slots", f"{small['slots']:,} slots", "ratio")
    text = (
        "The broker's figure is for one batch of events. A long round is followed by a "
        "pause of nineteen times its length, so that rounds take at most a twentieth of "
        "the gateway's time."
    )
    return table(head, rows) + "\n\n" + text


def _days(found: Figures) -> str:
    rows = [
        (
            f"{each['log']}, day {each['day']}, seed {each['seed']}, {_billing(each['step_s'])}",
            f"{each['tasks']:,}",
            f"{each['paid_s'] / 3600:,.0f} h",
            f"**{each['ratio']:.3f}**",
            f"{each['ratio_to_work']:.3f}",
            f"{each['paid_s'] / each['at_once_s']:.3f}",
            f"{each['wait_s']:,.0f} s",
            f"{each['late_s']:,.0f} s",
            f"{each['run_s']:,.0f} s",
            f"{each['starts']:,}",
        )
        for each in found["days"]
    ]
    head = (
        *("day", "tasks", "paid", "to the bound", "to the work alone", "to no waiting at all"),
        *("wait", "later", "a job's run", "starts"),
    )
    text = (
        "*To the bound*: a lower bound on the cost of any scheduler that knows all work in "
        "advance and runs each task at the time at which it ran here. The ratio to the "
        "optimum is at most this one, and this one is promised where time is billed by the "
        "second, as on EC2. It is not promised where time is billed by the hour: the bound "
        "is then far below any real cost, as running tasks may change slots to avoid another "
        "paid hour (see the README). *To the work alone*: a lower bound on the cost of any "
        "scheduler, however long tasks wait. *To no waiting at all*: the bound with a slot "
        "ready for every task. *Wait* is the mean time until the first task of a job "
        "starts, *later* the mean delay of the end of a job compared with an immediate "
        "start."
    )
    return table(head, rows) + "\n\n" + text


def _billing(step_s: float) -> str:
    return f"by {step_s / 3600:g} h" if step_s else "by the second"
