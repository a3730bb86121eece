"""Pictures of a year, drawn from its figures; the same figures give the same files."""

from itertools import accumulate
from pathlib import Path
from typing import Any

from simulations.year.figures import Figures

WEEK_DAYS = 7


def draw(found: Figures, folder: Path) -> list[str]:
    """Draw them; return the names of the files, none without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        return []
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "year"
    from matplotlib import pyplot as plt

    names = []
    for name, painter in (("use", _use), ("waits", _waits), ("spend_carbon", _sums)):
        figure = painter(plt, found)
        figure.suptitle(found["command"], fontsize=8)
        figure.tight_layout()
        names.append(f"year_{name}.svg")
        figure.savefig(folder / names[-1], metadata={"Date": None})
        plt.close(figure)
    return names


def _use(plt: Any, found: Figures) -> Any:
    """Draw the utilisation of each site's own slots, week by week."""
    sites = list(found["alone"]["use_by_day"])
    figure, axes = plt.subplots(1, len(sites), figsize=(10, 2.8), sharey=True, squeeze=False)
    for axis, site in zip(axes[0], sites, strict=True):
        for how, colour in (("alone", "tab:gray"), ("federated", "tab:orange")):
            days = found[how]["use_by_day"][site]
            weeks = [days[at : at + WEEK_DAYS] for at in range(0, len(days), WEEK_DAYS)]
            means = [100 * sum(week) / len(week) for week in weeks]
            axis.step(range(len(means)), means, where="post", color=colour, label=how)
        axis.set_title(f"{site}: slots in use, %", fontsize=9)
        axis.set_xlabel("week", fontsize=8)
        axis.set_ylim(0, 100)
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    return figure


def _waits(plt: Any, found: Figures) -> Any:
    """Draw the share of jobs that waited no longer than so many minutes."""
    owners = list(found["alone"]["waits_s"])
    figure, axes = plt.subplots(1, len(owners), figsize=(8, 2.8), sharey=True, squeeze=False)
    for axis, owner in zip(axes[0], owners, strict=True):
        for how, colour in (("alone", "tab:gray"), ("federated", "tab:orange")):
            minutes = [max(each, 0.6) / 60 for each in found[how]["waits_s"][owner]]
            axis.plot(minutes, range(1, len(minutes) + 1), color=colour, label=how)
        axis.set_xscale("log")
        axis.set_title(f"{owner}: % of jobs that waited no longer", fontsize=9)
        axis.set_xlabel("minutes", fontsize=8)
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    return figure


def _sums(plt: Any, found: Figures) -> Any:
    """Draw the cumulative spend and carbon of all sites together, day by day."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.8))
    for axis, key, title in (
        (axes[0], "spend_usd", "spent, USD, since the beginning"),
        (axes[1], "carbon_kg", "emitted, kg CO2e, since the beginning"),
    ):
        for how, colour in (("alone", "tab:gray"), ("federated", "tab:orange")):
            sums = list(accumulate(found[how]["spent_by_day"][key]))
            axis.plot(range(1, len(sums) + 1), sums, color=colour, label=how)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("day", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    return figure
