"""The page as text: no name becomes markup, nothing is loaded, no amount is left out."""

import base64
import re
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.money import format_amount
from gateway.ledger.page import costs, finality, usage, writing
from gateway.ledger.page.charts import Stacks
from gateway.ledger.page.facts import PageFacts, UnsettledCost, facts_from, total
from gateway.ledger.page.figures import palette
from gateway.ledger.page.rendering import render
from tests.gateway.ledger.page.conftest import usage_of

DASH = "\N{EN DASH}"
SVG = "{http://www.w3.org/2000/svg}"
# All that a page is made of; a name that became markup would bring something else.
ELEMENTS = {
    *("html", "head", "meta", "title", "link", "style", "body", "header", "main", "footer"),
    *("section", "figure", "figcaption", "img", "div", "p", "h1", "h2", "h3", "dl", "dt", "dd"),
    *("strong", "code", "bdi", "data", "ul", "li", "span", "small"),
    *("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "rel", "href", "id", "class"),
    *("aria-labelledby", "aria-label", "role", "tabindex", "alt", "src", "scope", "value"),
}
DRAWN = {"svg", "style", "defs", "g", "path", "use", "text", "tspan", "clipPath", "rect"}
DRAWN_ATTRIBUTES = {
    *("id", "d", "style", "transform", "x", "y", "width", "height", "viewBox", "version", "type"),
    *("clip-path", "{http://www.w3.org/1999/xlink}href"),
}


class Reader(HTMLParser):
    """Takes a page apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.names: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "link", "img"):
            self._open.append(tag)
        if tag == "bdi":
            self.names.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "bdi":
            self.names[-1] += data

    @property
    def pictures(self) -> list[str]:
        """The SVG documents in it."""
        start = "data:image/svg+xml;base64,"
        found = [value for _, name, value in self.attributes if name == "src"]
        assert all(each.startswith(start) for each in found)
        return [base64.b64decode(each.removeprefix(start)).decode() for each in found]


def test_no_element_and_no_attribute_comes_from_a_name(hostile_page: str, london_page: str) -> None:
    read, tame = Reader(hostile_page), Reader(london_page)
    for each in (read, tame):
        assert set(each.elements) <= ELEMENTS
        assert {name for _, name, _ in each.attributes} <= ATTRIBUTES
    for once in ("html", "style", "title", "h1", "main", "link"):
        assert read.elements[once] == 1
    # Whatever stands in an attribute was written by us, or is an exact number.
    for tag, name, value in read.attributes:
        if (tag, name) == ("data", "value"):
            assert re.fullmatch(r"-?[0-9.]+( ns| bytes| byte-seconds)?", value)
        else:
            assert "<" not in value
            assert "evil" not in value


def test_hostile_names_are_shown_as_what_they_are(hostile_page: str) -> None:
    shown = Reader(hostile_page).names
    for name in ("<script>document.title='owned'</script>", r"$\frac{1}{0}$", "{{ 7*7 }}{% raw %}"):
        assert name in shown
    assert '\'=HYPERLINK("https://evil.example")' in shown  # no formula, where it is pasted
    assert "\\u202eexe.fdp \\u2066open" in shown
    assert not any(character in name for name in shown for character in "\u202e\u2066\x00\x1b")
    assert all(len(name) <= writing.NAME_MAX for name in shown)


def test_pictures_are_drawings_and_nothing_else(hostile_page: str, london_page: str) -> None:
    words: list[str] = []
    for page in (hostile_page, london_page):
        for svg in Reader(page).pictures:
            tree = ElementTree.fromstring(svg)
            for each in tree.iter():
                assert each.tag.removeprefix(SVG) in DRAWN
                assert set(each.attrib) <= DRAWN_ATTRIBUTES
                for name, value in each.attrib.items():
                    if name.endswith("href"):
                        assert value.startswith("#")
                    assert "url(http" not in value
                if each.tag in (f"{SVG}text", f"{SVG}tspan"):
                    words.append(each.text or "")
                else:
                    assert each.tag == f"{SVG}style" or not (each.text or "").strip()
    assert "<script>document.title=…" in words
    assert "stroke: #1f2a36;" in words


def test_nothing_is_loaded_and_nothing_may_be(hostile_page: str) -> None:
    read = Reader(hostile_page)
    assert {name for _, name, _ in read.attributes if name in ("href", "src")} == {"href", "src"}
    assert all(v.startswith("data:") for _, name, v in read.attributes if name in ("href", "src"))
    policy = next(v for tag, name, v in read.attributes if v.startswith("default-src 'none'"))
    assert "unsafe" not in policy
    assert "script-src" not in policy


def test_the_same_facts_give_the_same_page(london: PageFacts) -> None:
    assert render(london) == render(london)


def test_every_picture_has_words_and_every_figure_its_table(london_page: str) -> None:
    read = Reader(london_page)
    words = [value for tag, name, value in read.attributes if (tag, name) == ("img", "alt")]
    assert len(words) == len(set(words)) == len(read.pictures) == 13
    assert read.elements["figure"] == 13
    # And the key figures, how final they are, and what stands between sites.
    assert read.elements["table"] == 13 + 3


def test_exact_amounts_are_in_the_page(london: PageFacts, london_page: str) -> None:
    read = Reader(london_page)
    exact = {value for tag, name, value in read.attributes if (tag, name) == ("data", "value")}
    for sums in (london.days, london.projects, london.flows):
        assert {format_amount(each.cost_nanos) for each in sums} <= exact
        for currency in ("USD", "EUR"):
            of_it = total(each for each in sums if each.currency == currency)
            assert format_amount(of_it.cost_nanos) in exact
    assert {"1234.567890123", "23.400000001"} <= exact


def test_settled_held_and_estimated_are_told_apart(london: PageFacts, london_page: str) -> None:
    spent = {
        currency: total(each for each in london.days if each.currency == currency).cost_nanos
        for currency in ("USD", "EUR")
    }
    euros = (spent["EUR"], spent["EUR"] - 23_400_000_001, 23_400_000_001, 0, 0)
    dollars = (spent["USD"], spent["USD"] - 5 * 10**9, 5 * 10**9, 31_500_000_000, 250_000_000)
    shown = [
        tuple(each.exact for each in row[1:])
        for row in finality.finality(london, ["USD", "EUR"]).rows
    ]
    assert shown == [tuple(map(format_amount, each)) for each in (dollars, euros)]
    figure = finality.standing(london, "USD", palette(london))
    assert figure.table is not None
    by_site = {row[0].text: [each.exact for each in row[3:]] for row in figure.table.rows}
    assert by_site["london"] == ["0", "31.5", "0"]
    assert by_site["virginia"] == ["5", "0", "0.25"]
    assert [each.exact for each in figure.table.foot[1:]] == [*map(format_amount, dollars)]
    assert isinstance(figure.chart, Stacks)
    assert [series.name for series in figure.chart.series] == [
        *("settled", "held", "running now, estimated"),
    ]
    for words in ("As of 2026-11-22 05:10 UTC: booked = settled + held", "How final the cost is"):
        assert words in london_page
    assert figure.lead.startswith("As of 2026-11-22 05:10 UTC: ")
    assert figure.lead in london_page


def test_carbon_that_nobody_knows_is_a_dash_and_said() -> None:
    hour_ns = 3600 * 10**9
    rows = [
        usage_of((494_040, "", "", "xva", "ok"), 3 * hour_ns, 1, carbon_ng=10**12),
        usage_of((494_040, "", "", "xva", "ok"), hour_ns, 1, carbon_ng=0, footprint="energy"),
        usage_of((494_041, "", "", "xva", "ok"), hour_ns, 1, carbon_ng=0, footprint="energy"),
        usage_of(
            (494_042, "", "", "xva", "ok"),
            *(hour_ns, 1),
            **dict.fromkeys(("energy_uj", "carbon_ng", "embodied_ng"), 0),
            footprint="",
        ),
    ]
    figure = usage.carbon(facts_from("london", (0.0, 86_400.0), 100.0, rows, []))
    assert figure.table is not None
    cells = [[each.text for each in row[1:]] for row in figure.table.rows]
    both, no_factor, nothing = cells[0], cells[1], cells[2]
    assert both[0] == "30,303"  # a kilogram for 0.033 kWh: without the energy of no known carbon
    assert both[-1] == "75.0 %"
    assert (no_factor[0], no_factor[2], no_factor[4], no_factor[5]) == (*[DASH] * 3, "0.0 %")
    assert no_factor[1] != DASH
    assert nothing == [DASH] * 5 + ["0.0 %"]
    assert [each.text for each in figure.table.foot[1:]][-1] == "50.0 %"
    assert "The energy of 16.7 % of the slot time is unknown" in figure.lead
    assert "The carbon of the electricity of 50.0 % of the slot time is unknown" in figure.lead


def test_what_is_owed_comes_first_and_what_nothing_is_in_is_left_out(london: PageFacts) -> None:
    table = costs.deals(london)
    assert table is not None
    assert [each.text for each in table.head] == [
        *("Site", "Currency", "Balance", "Held of sold", "Held of bought", "Opening", "Sold"),
        *("Refunded", "Bought", "Credited", "Paid", "Received"),
    ]
    assert [each.exact for each in table.rows[0][2:5]] == ["-1238.567890116", "0", "23.400000001"]
    table = costs.deals(replace(london, deals=london.deals[:1]))
    assert table is not None
    assert [each.text for each in table.head[5:]] == ["Opening", "Bought", "Credited", "Paid"]


def test_what_sites_owe_and_how_final_it_is_are_shown_to_the_last_digit(london: PageFacts) -> None:
    for table in (costs.deals(london), finality.finality(london, ["USD", "EUR"])):
        assert table is not None
        cells = [each for row in table.rows for each in row if each.exact and each.text != DASH]
        assert cells
        assert [Decimal(each.text.replace(",", "")) for each in cells] == [
            Decimal(each.exact) for each in cells
        ]


@pytest.mark.parametrize(
    ("amounts", "places"),
    [((), 2), ((0, 10**9), 2), ((10**12, 1_500_000), 4), ((-1, 10**15), 9)],
)
def test_no_more_decimals_than_it_takes(amounts: tuple[int, ...], places: int) -> None:
    assert writing.exact_decimals(amounts) == places


def test_a_balance_that_is_not_certain_says_so_beside_itself(london: PageFacts) -> None:
    doubtful = replace(london.deals[0], unconfirmed_nanos=7, to_confirm_nanos=-5, void_sold_nanos=3)
    table = costs.deals(replace(london, deals=(doubtful,)))
    assert table is not None
    heads = [each.text for each in table.head]
    assert heads[2:7] == [
        *("Balance", "Held of sold", "Held of bought", "Unconfirmed", "To confirm")
    ]
    assert [each.exact for each in table.rows[0][5:7]] == ["0.000000007", "-0.000000005"]
    assert "Void of sold" in heads
    assert "Void of bought" not in heads
    page = render(replace(london, deals=(doubtful,)))
    assert '<data value="-0.000000005">' in page


def test_what_runs_for_the_first_time_is_an_estimate_on_the_page() -> None:
    running = [UnsettledCost("", "CHF", 0, 0, 7 * 10**9)]
    page = render(facts_from("london", (0.0, 86_400.0), 100.0, [], [], (), running))
    assert "Settled, held and estimated cost by site, CHF" in page
    assert '<data value="7">' in page


def test_a_site_without_books_says_so() -> None:
    page = render(facts_from("london", (0.0, 86_400.0), 100.0, [], []))
    assert Reader(page).pictures == []
    for words in (
        "Nothing was recorded in this period",
        "Nothing was bought from another site",
        "our own pools had no slots",
        "the energy of our users",
    ):
        assert words in page


def test_only_the_largest_currencies_get_charts() -> None:
    rows = [
        usage_of((494_040, "", "", "xva", "ok"), 10**12 * at, 10**9, currency=currency)
        for at, currency in enumerate(("AUD", "CHF", "EUR", "GBP", "JPY"), start=1)
    ]
    page = render(facts_from("london", (0.0, 86_400.0), 100.0, rows, []))
    titles = re.findall(r"<h2[^>]*>Cost in (...)</h2>", page)
    assert titles == ["JPY", "GBP", "EUR"]
    assert "Currencies with key figures only: CHF, AUD." in page


@given(st.text(max_size=200))
def test_a_name_is_written_with_what_can_be_seen(name: str) -> None:
    seen = writing.name(name)
    assert seen.strip()
    assert len(seen) <= writing.NAME_MAX
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]", seen)
    assert not seen.lstrip().startswith(("=", "+", "-", "@"))
    seen.encode()


@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=12))
def test_labels_differ(names: list[str | None]) -> None:
    found = writing.labels(names)
    assert len(set(found)) == len(names)
    assert all(len(each) <= writing.LABEL_MAX + 1 for each in found)


@pytest.mark.parametrize(
    ("nanos", "places", "shown"),
    [
        (0, 2, "0.00"),
        (1_234_567_890_123_456_789, 2, "1,234,567,890.12"),
        (5_000_000, 2, "0.00"),  # half to even
        (15_000_000, 2, "0.02"),
        (1, 9, "0.000000001"),
        (-2_500_000_000, 2, "-2.50"),
        (10**40, 0, f"{10**31:,}"),
    ],
)
def test_amounts(nanos: int, places: int, shown: str) -> None:
    assert writing.amount(nanos, places) == shown
