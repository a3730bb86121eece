"""Links of documents lead somewhere; the index names every command; pages lead to the glossary."""

import re
from pathlib import Path

import click
import pytest

from gateway.api import problems_desk
from gateway.cli.main import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *(path for path in ROOT.glob("*.md")),
        *(
            path
            for root in ("federation", "gateway", "policies", "simulations", "benchmarks", "tests")
            for path in (ROOT / root).rglob("README.md")
        ),
    ]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(path):
    """The anchors of a page's headings, as GitHub and most renderers make them."""
    text = FENCED.sub("", path.read_text())
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each).lower() for each in headings)
    return {re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_names_every_command():
    text = (DOCS / "README.md").read_text()
    quoted = " ".join(re.findall(r"`([^`]+)`", text))
    names = set(re.findall(r"[\w-]+", quoted))
    assert set(cli.list_commands(click.Context(cli))) <= names


@pytest.mark.parametrize(
    "page", sorted([*DOCS.glob("*.md"), *(DOCS / "tutorials").glob("*.md")]), ids=lambda p: p.stem
)
def test_each_page_leads_to_the_glossary(page):
    links = {link.partition("#")[0].rpartition("/")[2] for link in LINK.findall(page.read_text())}
    assert page.name == "glossary.md" or "glossary.md" in links


def quoted_commands(page):
    """The words of each `gridfed …` that a page quotes, in a text or as a line to type."""
    text = page.read_text().replace("\\\n", " ")
    yield from (each.split()[1:] for each in re.findall(r"`(gridfed [^`]+)`", text))
    for line in text.splitlines():
        yield from (
            each.split()[1:]
            for each in re.findall(r"(?:^|\$\(|; |\$ )\s*(gridfed [^#;)|`]*)", line)
        )


def called(words):
    """The command that the words call, or None if they are prose."""
    command = cli
    for word in (each for each in words if not each.startswith("-")):
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        if found is None:
            break
        command = found
    return None if command is cli else command


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_option_that_a_page_quotes_is_one_of_its_command(page):
    if page.name == "CHANGELOG.md":  # it quotes commands of before
        return
    for words in quoted_commands(page):
        command = called(words)
        options = [each for word in words for each in re.findall(r"^--[a-z][a-z-]*", word)]
        if command is None or not options:
            continue
        known = {"--help"}
        known |= {each for one in command.params for each in (*one.opts, *one.secondary_opts)}
        assert set(options) <= known, " ".join(words)


def test_the_modules_that_formulae_name_exist():
    text = (DOCS / "policies.md").read_text().partition("## Settings")[0]
    named = set(re.findall(r"\*[^*]+\* \(`(\w+)`", text)) | set(re.findall(r"\(`(\w+)`\)", text))
    there = {path.stem for path in (ROOT / "policies").rglob("*.py")}
    assert len(named) > 10
    assert named <= there


def test_the_operators_page_has_the_code_of_every_problem():
    views = (ROOT / "gateway" / "api" / "views" / "problems.py").read_text()
    codes = set(re.findall(r'Problem\("([\w-]+)"', views)) | set(problems_desk._OF_FILES)
    text = (
        (DOCS / "operating.md").read_text().partition("## Problems")[2].partition("## Signals")[0]
    )
    first_cells = " ".join(re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE))
    assert len(codes) > 10
    assert set(re.findall(r"`([\w-]+)`", first_cells)) == codes
