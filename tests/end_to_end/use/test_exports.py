"""gridfed export, on the books that a real gateway wrote, while it runs."""

import csv
import io
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.command import quick, run
from support.processes import SiteProcess

pytestmark = pytest.mark.real

NAMES = ("=1+1", "<b>x</b>", "a%%0A", "bo'b; DROP TABLE usage;--", "Zoë")
TASKS = 20


def square(x: int) -> int:
    return x * x


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteProcess]:
    config = '[[pool]]\nname = "local"\nprice = "0.5 EUR"\n'
    site = SiteProcess(tmp_path_factory.mktemp("exports"), 1, config=config)
    with site.client() as client:
        for name in NAMES:
            results = client.options(name=name, project=name).map(square, range(TASKS))
            assert len(list(results)) == TASKS
            client.job(results.job).wait(200)
    yield site
    site.stop()


@pytest.fixture
def export(site: SiteProcess) -> Callable[..., str]:
    def export_(*arguments: str, code: int = 0) -> str:
        database = ("--state", str(site.folder / "state"))
        if arguments[0] == "focus-check":
            database = ()
        return quick("export", *arguments, *database, code=code)

    return export_


def test_focus_is_valid_and_sums_up_to_the_report(site, export, tmp_path: Path):
    text = export("focus")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    with site.client() as client:
        found = client.ask("report", kind="cost", by=[])
    [total] = found["totals"]
    nanos = total[found["columns"].index("cost_nanos")]
    assert sum(Fraction(row["BilledCost"]) for row in rows) * 10**9 == nanos > 0
    assert {row["SubAccountId"] for row in rows} == {"'=1+1", *NAMES[1:]}
    assert sum(int(row["x_Tasks"]) for row in rows) == TASKS * len(NAMES)
    out = tmp_path / "focus.csv"
    assert export("focus", "--out", str(out)) == ""
    assert out.read_bytes().decode() == text
    assert "0 problems" in export("focus-check", str(out))
    out.write_text(text.replace("Compute,", "Compost,"))
    export("focus-check", str(out), code=1)
    out.write_bytes(b"BilledCost\n\xff")
    assert "is not in UTF-8" in export("focus-check", str(out), code=1)


def test_focus_in_parquet(export, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "focus.parquet"
    export("focus", "--parquet", "--out", str(out))
    assert parquet.read_table(out).num_rows >= len(NAMES)
    assert "--parquet needs --out" in export("focus", "--parquet", code=2)


def test_the_encoding_of_a_terminal_changes_nothing(site):
    said = run("export", "focus", "--state", str(site.folder / "state"), PYTHONIOENCODING="ascii")
    assert NAMES[-1] in said


@pytest.mark.parametrize("kind", ["usage-record", "car"])
def test_xml_is_read_by_others(export, kind: str):
    root = ElementTree.fromstring(export(kind))
    space = root.tag.partition("}")[0] + "}"
    names = {each.text for each in root.iter(f"{space}JobName")}
    assert names == {"=1+1", "<b>x</b>", "a%%250A", NAMES[3], "Zoë"}
    ids = [each.get(f"{space}recordId") for each in root.iter(f"{space}RecordIdentity")]
    assert len(ids) == len(set(ids)) == len(root)


def test_apel_counts_what_it_lists(export):
    jobs = export("apel", "--benchmark", "hepspec=10.5")
    assert jobs.startswith("APEL-individual-job-message: v0.3\n")
    assert "ServiceLevel: 10.5\n" in jobs
    counts = {
        kind: sum(
            int(line.split()[1])
            for line in export(kind).splitlines()
            if line.startswith("NumberOfJobs: ")
        )
        for kind in ("apel-summary", "apel-sync")
    }
    assert counts == dict.fromkeys(counts, jobs.count("%%\n"))


def test_a_period_without_anything_is_empty(export):
    assert len(export("focus", "--to", "2020-01-01").splitlines()) == 1
    assert "<urf:UsageRecord>" not in export("car", "--to", "2020-01-01")
    assert export("apel", "--to", "2020-01-01") == "APEL-individual-job-message: v0.3\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("focus", "--from", "2020-01-01T00:30"), "by the hour"),
        (("focus", "--from", "soon"), "write 2026-11-20"),
        (("focus", "--from", "2020-01-02", "--to", "2020-01-01T00:00"), "is not before"),
        (("apel", "--benchmark", "fast"), "use KIND=NUMBER"),
        (("focus", "--out", "/nowhere/at/all.csv"), "can't write"),
    ],
)
def test_what_is_wrong_is_told(export, arguments: tuple[str, ...], complaint: str):
    code = 1 if "--out" in arguments else 2
    assert complaint in export(*arguments, code=code)


def test_no_database_is_told(tmp_path: Path):
    assert "does not exist: check --config" in quick(
        "export", "focus", "--state", str(tmp_path), code=1
    )
