"""The table at the end of a run."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.fuzz.judging import Done, FuzzFacts, measured
from tests.fuzz.tally import Tally

REASONS = 4  # that are named of a role's refusals


def _most(counted: Counter[str]) -> str:
    named = "; ".join(f"{count:,} {name}" for name, count in counted.most_common(REASONS))
    more = len(counted) - REASONS
    return f"{named}{f'; {more} more' if more > 0 else ''}" or "-"


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _messages(tallies: Mapping[str, Tally], lasted_s: float) -> list[str]:
    total = sum(tallies.values(), Tally())
    lines = [
        "| role | messages | heard | sessions | not let in | thrown out | answers |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in [*sorted(tallies.items()), ("all", total)]:
        counts = (each.refused.total(), each.thrown_out.total(), each.answers.total())
        refused, thrown_out, answers = (f"{count:,}" for count in counts)
        row = (name, f"{each.sent:,}", f"{each.heard:,}", f"{each.sessions:,}")
        lines.append(f"| {' | '.join((*row, refused, thrown_out, answers))} |")
    rate = total.sent / max(lasted_s, 0.001)
    lines += ["", f"{total.sent:,} messages in {lasted_s:,.0f} s: {rate:,.0f} a second.", ""]
    for name, each in sorted(tallies.items()):
        lines += [
            f"- {name}, not let in: {_most(each.refused)}",
            f"- {name}, thrown out: {_most(each.thrown_out)}",
            f"- {name}, answers: {_most(each.answers)}",
        ]
    return lines


def _honest(done: Sequence[Done], ways: Sequence[str]) -> list[str]:
    lines = [
        "| honest work | tasks | failed | p50 s | p99 s | slowest s |",
        "|---|---|---|---|---|---|",
    ]
    for way in ways:
        took_s = [each.took_s for each in done if each.way == way]
        failed = sum(bool(each.error) for each in done if each.way == way)
        figures = (_quantile(took_s, 0.5), _quantile(took_s, 0.99), max(took_s, default=0.0))
        shown = " | ".join(f"{each:.3f}" for each in figures)
        lines.append(f"| {way} | {len(took_s):,} | {failed} | {shown} |")
    return lines


def _taken(facts: FuzzFacts) -> list[str]:
    lines = [
        "| gateway | memory MiB, warm / end / most | threads | descriptors | log KiB | files "
        "| books MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for site, samples in facts.samples.items():
        first, last = measured(samples, facts.warm_s) or (samples[0], samples[-1])
        most = max(each.rss_bytes for each in samples)
        memory = " / ".join(
            f"{each / 2**20:.0f}" for each in (first.rss_bytes, last.rss_bytes, most)
        )
        lines.append(
            f"| {site} | {memory} | {first.threads} / {last.threads} "
            f"| {first.descriptors} / {last.descriptors} | {last.log_bytes / 1024:.0f} "
            f"| {first.files} / {last.files} "
            f"| {first.books_bytes / 2**20:.1f} / {last.books_bytes / 2**20:.1f} |"
        )
    return lines


def _minutes(facts: FuzzFacts) -> list[str]:
    """The figures of each gateway at each sample."""
    lines = [
        "| gateway | minute | memory MiB | threads | descriptors | log KiB | books MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for site, samples in facts.samples.items():
        for each in samples:
            lines.append(
                f"| {site} | {(each.at_s - samples[0].at_s) / 60:.1f} "
                f"| {each.rss_bytes / 2**20:.1f} | {each.threads} | {each.descriptors} "
                f"| {each.log_bytes / 1024:.0f} | {each.books_bytes / 2**20:.1f} |"
            )
    return lines


def markdown(
    facts: FuzzFacts, violations: Mapping[str, Sequence[str]], lasted_s: float, about: str
) -> str:
    """All of it."""
    said = _messages(facts.tallies, lasted_s) if facts.tallies else _minutes(facts)
    lines = [about, "", *said, ""]
    lines += [*_honest(facts.done, facts.ways), "", *_taken(facts), ""]
    for name, found in violations.items():
        lines.append(f"{name}: {'yes' if not found else f'NO, {len(found)} violations'}")
        lines += [f"    {each}" for each in found[:20]]
    return "\n".join(lines)
