"""The page of a site that runs, opened in a real browser."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.command import quick
from support.programs.browser import Browser

pytestmark = pytest.mark.real

NAME = "<b onclick='x'>risk & co</b>"


def page(site, *arguments: str, code: int = 0) -> str:
    return quick("report", "page", *arguments, "--gateway", site.address, code=code)


@pytest.fixture
def written(shared_site, tmp_path: Path) -> Path:
    with shared_site.client() as client:
        results = client.options(project=NAME).map(len, ["abc"] * 100)
        assert sum(results) == 300
        client.job(results.job).wait(200)
    file = tmp_path / "page.html"
    assert f"wrote {file}" in page(shared_site, str(file))
    return file


def test_the_work_of_a_site_on_its_page(written: Path, tmp_path: Path) -> None:
    with Browser(tmp_path / "profile") as browser:
        browser.open(written)
        names = browser.evaluate("[...document.querySelectorAll('bdi')].map(e => e.textContent)")
        assert NAME in names
        drawn = browser.evaluate("[...document.images].map(each => each.naturalWidth)")
        assert len(drawn) >= 4
        assert all(drawn)
        assert browser.evaluate("document.querySelectorAll('[onclick]').length") == 0
        assert browser.complaints == []


@pytest.mark.thorough
def test_it_is_written_whole_or_not_at_all(shared_site, written: Path, tmp_path: Path) -> None:
    before = written.read_bytes()
    missing = tmp_path / "nowhere" / "page.html"
    assert "can't write" in page(shared_site, str(missing), code=1)
    assert "at most 366 days" in page(shared_site, str(written), "--from", "2001-01-01", code=1)
    assert "2026-11-20" in page(shared_site, str(written), "--from", "yesterday", code=2)
    assert written.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_period_without_work(shared_site, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    page(shared_site, str(file), "--from", "2001-01-01", "--to", "2001-01-31")
    assert "Nothing was recorded in this period" in file.read_text()


def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['matplotlib'] = None; from gateway.cli.main import run; run()"
    command = [sys.executable, "-c", hidden, "report", "page", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "install gridfed[html]" in done.stderr
    assert not list(tmp_path.iterdir())
