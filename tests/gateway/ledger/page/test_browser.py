"""The page in a real browser: it loads without a word, asks for nothing, and its plots are seen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.programs.browser import Browser

pytestmark = [pytest.mark.slow, pytest.mark.real]

_BOXES = """[...document.images].map(each => {
  const box = each.getBoundingClientRect();
  return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height,
          drawn: each.naturalWidth, done: each.complete, alt: each.alt};
})"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "profile") as found:
        yield found


def show(browser: Browser, directory: Path, page: str) -> None:
    file = directory / "page.html"
    file.write_text(page, encoding="utf-8")
    browser.open(file)


def counted(picture: Image.Image) -> list[tuple[int, Any]]:
    """How many points of a picture have each colour."""
    width, height = picture.size
    return picture.getcolors(width * height) or []


def painted(picture: Image.Image) -> int:
    """How many points have a colour that is none of the ground's, the rules' or the letters'."""
    return sum(count for count, colour in counted(picture) if max(colour) - min(colour) > 40)


@pytest.mark.parametrize("dark", [False, True])
def test_every_plot_is_seen(browser: Browser, tmp_path: Path, london_page: str, dark: bool) -> None:
    browser.resize(1100, 900, dark=dark)
    show(browser, tmp_path, london_page)
    boxes = browser.evaluate(_BOXES)
    assert len(boxes) == 13
    for box in boxes:
        assert box["done"]
        assert box["drawn"] > 0
        assert box["width"] > 900
        assert box["height"] > 80
        picture = browser.picture(box["x"], box["y"], box["width"], box["height"])
        assert painted(picture) > 1_000, box["alt"]
        ground = max(counted(picture))[1]
        if dark and "Heat map" not in box["alt"] and "shares" not in box["alt"]:
            assert sum(ground) < 150, "dark, where the user prefers it"
    assert browser.complaints == []
    (asked,) = [each for each in browser.requests if not each.startswith("data:")]
    assert asked.startswith(tmp_path.as_uri())


def test_no_plot_and_no_table_is_wider_than_the_page(
    browser: Browser, tmp_path: Path, hostile_page: str
) -> None:
    for width in (1100, 420):
        browser.resize(width, 900)
        show(browser, tmp_path, hostile_page)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path, hostile_page: str) -> None:
    show(browser, tmp_path, hostile_page)
    assert browser.evaluate("document.title").endswith("to 2026-05-13 00:00 UTC")
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.evaluate("document.images.length") == browser.evaluate(
        "document.querySelectorAll('figure > .picture > img').length"
    )
    assert browser.complaints == []
    assert not any(each.startswith("http") for each in browser.requests)


def test_the_policy_holds_where_escaping_fails(
    browser: Browser, tmp_path: Path, london_page: str
) -> None:
    bad = (
        "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
        "<img src='https://evil.example/a.png'><style>h1{display:none}</style>"
        "<iframe src='https://evil.example/'></iframe>"
    )
    show(browser, tmp_path, london_page.replace("<bdi>london</bdi></h1>", f"{bad}london</h1>"))
    assert browser.evaluate("document.title").startswith("london")
    assert browser.evaluate("getComputedStyle(document.querySelector('h1')).display") == "block"
    assert len(browser.complaints) >= 5
    assert all("Content Security Policy" in each for each in browser.complaints)


_WIDE = """[...document.querySelectorAll('body *')].filter(each =>
  !each.closest('.scroll, .picture, .unseen') && each.getBoundingClientRect().right > innerWidth + 1
).map(each => each.tagName + '.' + each.className)"""
_SIZES = """[...document.images].map(each => each.getBoundingClientRect().width)"""
_FIGURES = """[...document.querySelectorAll('.headline li')].slice(0, 4).map(each =>
  [each.querySelector('.title').textContent, each.getBoundingClientRect().bottom])"""


def test_on_a_telephone_nothing_is_cut_off_and_plots_stay_legible(
    browser: Browser, tmp_path: Path, london_page: str
) -> None:
    browser.resize(390, 844)
    show(browser, tmp_path, london_page)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate(_WIDE) == []
    # A plot is drawn 10 inches wide with letters of 9 points: below 700 px nobody reads them.
    assert min(browser.evaluate(_SIZES)) >= 700
    assert browser.evaluate("getComputedStyle(document.querySelector('td')).fontSize") == "13px"
    figures = browser.evaluate(_FIGURES)
    assert [title for title, _ in figures] == ["Spent", "Open", "Budget left", "Saved"]
    assert all(bottom < 844 for _, bottom in figures), "they are seen without scrolling"
    # The first column stays in sight while the others scroll below it.
    moved = browser.evaluate(
        "(() => { const box = document.querySelector('figure .scroll'); box.scrollLeft = 80;"
        " return box.querySelector('tbody th').getBoundingClientRect().left"
        " - box.getBoundingClientRect().left; })()"
    )
    assert abs(moved) < 2
