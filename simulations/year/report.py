"""The report of a year, as people read it. Every figure in it is from the reported run."""

from collections.abc import Sequence

from simulations.tables import table
from simulations.year.facts import log
from simulations.year.figures import PROMISES, Figures
from simulations.year.scenario import YearScenario

WAYS = ("alone", "federated")


def report(found: Figures, scenario: YearScenario, pictures: Sequence[str]) -> str:
    """Format the report in Markdown."""
    parts = [
        "# Three sites, alone and federated",
        _head(found, scenario),
        "## The gain of the federation",
        _promises(found),
        "## The cost for the owner of the production grid",
        _owner(found, scenario),
        "## The sites",
        _sites(found),
        "## The departments",
        _departments(found),
        *(f"![{name}]({name})" for name in pictures),
        "Assumptions, real data and simulated parts: simulations/year/README.md.",
    ]
    return "\n\n".join(parts) + "\n"


def _head(found: Figures, scenario: YearScenario) -> str:
    departments = [site for site in scenario.sites if site.department]
    logs = "; ".join(
        f"`{each.department}` at {each.name} ({log(each.department).weeks} weeks, repeated in step "
        "with the days of the week)"
        for each in departments
    )
    return (
        f"`{found['command']}`\n\n{scenario.days} days of 2023 from day {scenario.begin_day + 1} "
        f"on, seed {scenario.seed}. Work: {logs}; and a market-risk run at "
        f"{scenario.production.site} on business days at 17:00."
    )


def _promises(found: Figures) -> str:
    rows = []
    for name in PROMISES:
        each = found["better"][name]
        rows.append(
            (
                name,
                _shown(name, each["alone"]),
                _shown(name, each["federated"]),
                f"{100 * each['better_by']:.1f} %",
                "yes" if each["is_better"] else "**no**",
            )
        )
    total = found["federated"]["total"]
    text = (
        f"Preempted work: {total['preempted_tasks']:,} tasks were stopped, and "
        f"{total['lost_slot_h']:,.0f} of their slot-hours were lost, "
        f"{100 * total['lost_share']:.2f} % of all use of the sites' own slots. Unfinished "
        f"jobs: {total['unfinished']} ({found['alone']['total']['unfinished']} alone)."
    )
    return table(("", "alone", "federated", "better by", "better"), rows) + "\n\n" + text


def _shown(name: str, value: float) -> str:
    if name == "utilisation":
        return f"{100 * value:.1f} %"
    if name == "spend":
        return f"{value:,.0f} USD"
    if name == "carbon":
        return f"{value:,.0f} kg"
    return f"{value:,.1f} s"


def _owner(found: Figures, scenario: YearScenario) -> str:
    owner, runs = found["owner"], found["federated"]["production"]
    rows = [
        ("runs", f"{runs['runs']:,}"),
        (
            f"late starts: not on all slots within {scenario.late_s:g} s",
            f"{owner['late_starts']:,}",
        ),
        ("the latest start on all slots", f"{owner['latest_s']:.2f} s"),
        ("a run takes longer than alone by", f"{60 * owner['took_longer_h']:.2f} min"),
        ("slot-hours lent and completed", f"{owner['lent_slot_h']:,.0f}"),
        ("slot-hours lost when work was stopped", f"{owner['lost_slot_h']:,.0f}"),
        ("earned", f"{owner['earned_usd']:,.0f} USD"),
        ("electricity, in addition to that alone", f"{owner['power_usd']:,.0f} USD"),
        ("net gain", f"{owner['net_usd']:,.0f} USD"),
        ("carbon on its premises, in addition to that alone", f"{owner['carbon_kg']:,.0f} kg"),
    ]
    return table((scenario.production.site, ""), rows)


def _sites(found: Figures) -> str:
    head = ("", "slots", "in use", "cloud, slot-h", "cloud, USD", "electricity, USD", "paid, USD",
            "earned, USD", "net, USD", "carbon, kg", "stopped tasks", "lost slot-h")  # fmt: skip
    rows = []
    for name in found["alone"]["sites"]:
        for how in WAYS:
            each = found[how]["sites"][name]
            rows.append(
                (
                    f"{name}, {how}",
                    str(each["slots"]),
                    f"{100 * each['utilisation']:.1f} %",
                    *(
                        f"{each[key]:,.0f}"
                        for key in ("cloud_slot_h", "cloud_usd", "power_usd", "paid_usd",
                                    "earned_usd", "net_usd", "carbon_kg", "preempted_tasks",
                                    "lost_slot_h")
                    ),
                )
            )  # fmt: skip
    for how in WAYS:
        each = found[how]["total"]
        slots = sum(site["slots"] for site in found[how]["sites"].values())
        rows.append(
            (
                f"**all, {how}**",
                str(slots),
                f"{100 * each['utilisation']:.1f} %",
                f"{each['cloud_slot_h']:,.0f}",
                f"{each['cloud_usd']:,.0f}",
                f"{each['power_usd']:,.0f}",
                "",
                "",
                f"{each['spend_usd']:,.0f}",
                f"{each['carbon_kg']:,.0f}",
                f"{each['preempted_tasks']:,}",
                f"{each['lost_slot_h']:,.0f}",
            )
        )
    return table(head, rows)


def _departments(found: Figures) -> str:
    head = ("", "jobs", "tasks", "slot-h", "wait, median", "p95", "mean", "to its first task, "
            "median", "p95", "tasks in the cloud")  # fmt: skip
    rows = []
    for name in found["alone"]["departments"]:
        for how in WAYS:
            each = found[how]["departments"][name]
            rows.append(
                (
                    f"{name}, {how}",
                    f"{each['jobs']:,}",
                    f"{each['tasks']:,}",
                    f"{each['slot_h']:,.0f}",
                    *(
                        f"{each[key]:,.1f} s"
                        for key in ("wait_median_s", "wait_p95_s", "wait_mean_s",
                                    "begin_median_s", "begin_p95_s")
                    ),
                    f"{each['cloud_tasks']:,}",
                )
            )  # fmt: skip
    return table(head, rows)
