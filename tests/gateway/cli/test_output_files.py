"""A name that promises another format than a command writes is refused, before anything else."""

import pytest
from click.testing import CliRunner

from federation.files import FORMATS, check_format
from federation.pictures.graph_picture import GraphPicture
from gateway.cli.main import cli

NOWHERE = ("--gateway", "tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (("job", "01abc", *NOWHERE, "--graph", "g.png"), ".svg (SVG) or .html (a page)"),
        (("job", "01abc", *NOWHERE, "--graph", "g.PDF"), ".svg (SVG)"),
        (("report", "page", *NOWHERE, "page.pdf"), ".html (a page)"),
        (("report", "cost", *NOWHERE, "--parquet", "cost.csv"), ".parquet (Parquet)"),
        (("export", "focus", "--out", "focus.xlsx"), ".csv (CSV) or .parquet (Parquet)"),
        (("export", "car", "--out", "car.json"), ".xml (XML)"),
        (("export", "usage-record", "--out", "runs.csv"), ".xml (XML)"),
        (("export", "apel", "--out", "runs.xml"), ".txt (text)"),
        (("export", "apel-summary", "--out", "runs.csv"), ".txt (text)"),
        (("export", "apel-sync", "--out", "runs.csv"), ".txt (text)"),
        (("db", "backup", "books.sql"), ".db (SQLite)"),
        (("db", "backup", "books.db.gz"), ".sqlite (SQLite)"),
    ],
)
def test_a_file_of_another_format_is_refused(arguments, right, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 2, result.output
    assert "can be written here" in result.output
    assert right in " ".join(result.output.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--out", "f.parquet"), "f.parquet would be CSV: give --parquet, too, or name it .csv"),
        (("--parquet", "--out", "f.csv"), "its name may end in .parquet (Parquet)"),
    ],
)
def test_an_export_has_the_format_of_its_name(arguments, text, tmp_path):
    result = CliRunner().invoke(cli, ["export", "focus", *arguments, "--state", str(tmp_path)])
    assert result.exit_code == 2, result.output
    assert text in " ".join(result.output.split())


def test_other_endings_promise_nothing(tmp_path):
    for name in ("graph", "graph.svg", "GRAPH.SVG", "graph.2026-11", "graph.old"):
        GraphPicture(()).save(tmp_path / name)
    with pytest.raises(ValueError, match=r"g\.png: no \.png file can be written here"):
        GraphPicture(()).save("g.png")
    for ending in FORMATS:
        check_format(tmp_path / f"x{ending}", {ending: "this"})
