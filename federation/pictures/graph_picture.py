"""A picture of a graph: its stages as boxes, by depth, with what is done of each.

A stage is a job: calls of one function with equal options. The picture is SVG written by hand, so
it needs no other program, and it has at most BOXES_MAX boxes: in a graph of more stages those of
one name and depth share a box.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Final

from federation.files import check_format

BOXES_MAX: Final = 60
NAME_CHARS: Final = 26
PICTURES: Final = {".svg": "SVG", ".html": "a page", ".htm": "a page"}
WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 200, 62, 70, 22, 14
COLOURS: Final = {"done": "#2e7d32", "failed": "#c62828", "running": "#1565c0"}


@dataclass(frozen=True, slots=True)
class GraphStage:
    """The calls of one job of a graph, or of several that share a box.

    Attributes:
        id: of the job.
        depth: how many stages are before it, at most; 0: it reads no other.
        total: its calls so far.
        waiting: those that have not begun, for lack of inputs or of a slot.
        reads: for each stage of which it reads results, their number.
        jobs: how many jobs share this box.
    """

    id: str
    name: str
    depth: int
    total: int
    done: int
    failed: int
    running: int
    waiting: int
    reads: Mapping[str, int]
    jobs: int = 1

    @property
    def text(self) -> str:
        """What its calls do, for people."""
        parts = [f"{self.done:,} of {self.total:,} done"]
        parts += [f"{self.running:,} running"] if self.running else []
        parts += [f"{self.failed:,} failed"] if self.failed else []
        return ", ".join(parts)


def stages_of(rows: Iterable[Mapping[str, Any]]) -> list[GraphStage]:
    """Return stages as a gateway has told them in its answer about a job."""
    return [
        GraphStage(
            *(str(row["id"]), str(row["name"]), int(row["depth"]), int(row["total"])),
            *(int(row["done"]), int(row["failed"]), int(row["running"]), int(row["waiting"])),
            {str(source): int(tasks) for source, tasks in row["reads"]},
        )
        for row in rows
    ]


def collapsed(stages: Sequence[GraphStage], boxes_max: int = BOXES_MAX) -> list[GraphStage]:
    """Return stages that fit into so many boxes: those of one name and depth together.

    If that is not enough, those of one depth together.
    """
    found = list(stages)
    for key in (lambda each: (each.depth, each.name), lambda each: (each.depth, "")):
        if len(found) <= boxes_max:
            break
        found = _merged(found, key)
    return found[:boxes_max]


def _merged(stages: Sequence[GraphStage], key: Any) -> list[GraphStage]:
    groups: dict[Any, list[GraphStage]] = {}
    for each in stages:
        groups.setdefault(key(each), []).append(each)
    place = {each.id: members[0].id for members in groups.values() for each in members}
    found = []
    for members in groups.values():
        reads: dict[str, int] = {}
        for each in members:
            for source, tasks in each.reads.items():
                if source in place:
                    reads[place[source]] = reads.get(place[source], 0) + tasks
        first = members[0]
        names = {each.name for each in members}
        figures = {
            name: sum(getattr(each, name) for each in members)
            for name in ("total", "done", "failed", "running", "waiting", "jobs")
        }
        name = first.name if len(names) == 1 else f"{len(names)} functions"
        found.append(replace(first, name=name, reads=reads, **figures))
    return found


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """The stages of a graph; a notebook shows their picture."""

    stages: tuple[GraphStage, ...]

    @property
    def svg(self) -> str:
        """The picture as SVG."""
        return draw(self.stages)

    @property
    def html(self) -> str:
        """The picture as a page of its own."""
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>graph</title>'
            f"</head><body>{self.svg}</body></html>\n"
        )

    def save(self, path: str | Path) -> None:
        """Write it to a file: as a page where its name ends in .html, else as SVG.

        Raises ValueError for a name of another format, as .png.
        """
        path = Path(path)
        check_format(path, PICTURES)
        text = self.html if path.suffix.lower() in (".html", ".htm") else self.svg
        path.write_text(text, encoding="utf-8")

    def _repr_html_(self) -> str:
        return self.svg


def draw(stages: Sequence[GraphStage]) -> str:
    """Return stages as SVG: a column for each depth, an edge for each pair that reads."""
    shown = collapsed(stages)
    columns: dict[int, list[GraphStage]] = {}
    for each in sorted(shown, key=lambda one: one.depth):
        columns.setdefault(each.depth, []).append(each)
    places: dict[str, tuple[int, int]] = {}
    for column, members in enumerate(columns.values()):
        for row, each in enumerate(members):
            x, y = EDGE + column * (WIDTH + GAP_X), EDGE + row * (HEIGHT + GAP_Y)
            places[each.id] = x, y
    width = 2 * EDGE + len(columns) * (WIDTH + GAP_X) - GAP_X
    height = 2 * EDGE + max((len(each) for each in columns.values()), default=0) * (HEIGHT + GAP_Y)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, 2 * EDGE)}" '
        f'height="{height}" font-family="sans-serif" font-size="12">'
    ]
    for each in shown:
        lines += [
            _edge(places[source], places[each.id], tasks)
            for source, tasks in each.reads.items()
            if source in places and source != each.id
        ]
    for each in shown:
        lines.append(_box(each, *places[each.id]))
    return "\n".join([*lines, "</svg>", ""])


def _edge(source: tuple[int, int], target: tuple[int, int], tasks: int) -> str:
    low_x, low_y = source[0] + WIDTH, source[1] + HEIGHT // 2
    high_x, high_y = target[0], target[1] + HEIGHT // 2
    bend = GAP_X // 2
    path = f"M{low_x},{low_y} C{low_x + bend},{low_y} {high_x - bend},{high_y} {high_x},{high_y}"
    return (
        f'<path d="{path}" fill="none" stroke="#90a4ae" stroke-width="1.5">'
        f"<title>{tasks:,} results</title></path>"
    )


def _box(stage: GraphStage, x: int, y: int) -> str:
    name = stage.name
    if len(name) > NAME_CHARS:
        name = name[: NAME_CHARS - 1] + "…"
    more = f" ({stage.jobs:,} jobs)" if stage.jobs > 1 else ""
    chain = " ↻" if stage.id in stage.reads else ""
    bars, at = [], float(x + 8)
    full = WIDTH - 16
    for kind, colour in COLOURS.items():
        part = full * getattr(stage, kind) / max(1, stage.total)
        if part:
            bars.append(
                f'<rect x="{at:.1f}" y="{y + 46}" width="{part:.1f}" height="8" fill="{colour}"/>'
            )
        at += part
    return (
        f"<g><title>{escape(stage.name)}: {escape(stage.text)}, {stage.waiting:,} waiting; job "
        f"{escape(stage.id)}</title>"
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fafafa" '
        f'stroke="#607d8b"/><text x="{x + 8}" y="{y + 18}" font-weight="bold">'
        f'{escape(name + more + chain)}</text><text x="{x + 8}" y="{y + 36}" fill="#455a64">'
        f'{escape(stage.text)}</text><rect x="{x + 8}" y="{y + 46}" width="{full}" height="8" '
        f'fill="#cfd8dc"/>{"".join(bars)}</g>'
    )
