"""Defaults agree: those of the code, of the template of `gridfed init` and of the documents."""

import dataclasses
import re
from pathlib import Path

import pytest

from federation.messages.environments import FILES_BYTES_MAX, IMAGE_CHARS_MAX
from federation.signed import declarations, envelopes, grants, identity, strict
from gateway.cli.operate import template
from gateway.config import environments, federation
from gateway.config.alerts import AlertPace
from gateway.config.books import BookRules
from gateway.config.carbon import CarbonConfig, ForecastConfig, HttpConfig, SeriesConfig
from gateway.config.contracts import DealRules
from gateway.config.federation import FederationConfig
from gateway.config.limits import LIMITS, ListenerLimits
from gateway.config.pools import PoolConfig
from gateway.config.site import SiteConfig
from gateway.contracts.buying import grant_parts
from gateway.contracts.slices import borrowing, lending
from gateway.peering import peers
from gateway.sessions import half_open
from gateway.trust import hearsay, introduction, keys, token_register
from policies.costs import budgets
from policies.disclosure import Disclosure
from policies.placement import market
from policies.placement.asks import Preferences
from policies.reservations.reservations import ReservationRules
from policies.tariffs import MILLION

DOCS = Path(__file__).parents[1] / "docs"
CLASSES = (
    *(SiteConfig, ListenerLimits, PoolConfig, CarbonConfig, SeriesConfig, HttpConfig),
    *(ForecastConfig, FederationConfig, DealRules, Preferences, BookRules, Disclosure),
    *(AlertPace, ReservationRules),
)
DAY_S = 86_400.0
MILLIONTHS = {"unused_factor", "cancel_factor"}  # kept as integers


def defaults():
    """Key → the defaults that it has, one for each table that has a key of this name."""
    found = {}
    for cls in CLASSES:
        for field in dataclasses.fields(cls):
            found.setdefault(field.name, set())
            if isinstance(field.default, int | float):
                scale = MILLION if field.name in MILLIONTHS else 1
                found[field.name].add(field.default / scale)
    for key, (name, _, _) in LIMITS.items():
        found.setdefault(key, set()).update(found[name])
    return {key: values for key, values in found.items() if values}


DEFAULTS = defaults()


def number(text):
    """The number that a text is, None if it is no number alone."""
    text = text.strip().strip("`").replace("_", "")
    if text in ("true", "false"):
        return float(text == "true")
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def stated(lines, pattern):
    """Key and number of each line that states a default of a key which the code has, too."""
    matches = (re.match(pattern, line) for line in lines)
    pairs = [(match[1], number(match[2])) for match in matches if match]
    return [(key, value) for key, value in pairs if value is not None and key in DEFAULTS]


@pytest.mark.parametrize("page", ["configuration.md", "policies.md"])
def test_defaults_in_documents_are_those_of_the_code(page):
    lines = (DOCS / page).read_text().splitlines()
    pairs = stated(lines, r"\| `(\w+)` \| ([^|]*) \|")
    assert len(pairs) > 5
    assert [(key, value) for key, value in pairs if value not in DEFAULTS[key]] == []


def test_defaults_in_the_template_of_a_site_are_those_of_the_code():
    lines = Path(template.__file__).read_text().splitlines()
    examples = {"carbon_g_per_kwh", "slot_watts"}  # which have no default
    pairs = stated(lines, r"# ?(\w+) = (\S+)")
    assert len(pairs) > 40
    wrong = [(key, value) for key, value in pairs if value not in DEFAULTS[key]]
    assert [pair for pair in wrong if pair[0] not in examples] == []


# Page, a sentence with a figure, and what the code has for it.
FIGURES = [
    ("trust", "holds 32 sites from one member", hearsay.PER_SOURCE_MAX == 32),
    ("trust", "and 1,024 from all members", hearsay.TOLD_MAX == 1_024),
    ("trust", "or have expired in the last 30 days", token_register.KEPT_S == 30 * DAY_S),
    ("trust", "at most 1,000 at a time", declarations.REVOKED_MAX == 1_000),
    ("trust", "published for an hour (`rotation_spread_s`)", federation.SPREAD_S == 3_600),
    ("trust", "up to seven days (`rotation_await_s`)", federation.AWAIT_S == 7 * DAY_S),
    ("trust", "for twenty minutes (`rotation_overlap_s`)", federation.OVERLAP_S == 1_200),
    ("trust", "the last eight are kept in `retired/`", keys.RETIRED_MAX == 8),
    ("trust", "read in slices of 5 ms", peers.SLICE_S == 0.005),
    ("trust", "written to disk once a second", peers.WRITE_EVERY_S == 1),
    ("trust", "do not authenticate within 10 s are closed", half_open.GREETING_MAX_S == 10),
    ("trust", "`issued_s` may be 30 s ahead", identity.CLOCK_AHEAD_MAX_S == 30),
    ("trust", "older than 900 s", envelopes.EnvelopeLimits().age_max_s == 900),
    ("trust", "more than 1,024 behind the highest", envelopes.WINDOW == 1_024),
    ("trust", "an array of 1 to 4 blocks", grants.BLOCKS_MAX == 4),
    ("trust", "at most 16 deep", strict.DEPTH_MAX == 16),
    ("trust", "arrays of at most 10,000, maps of at most 1,000", strict.ITEMS_MAX == 10_000),
    ("trust", "maps of at most 1,000", strict.KEYS_MAX == 1_000),
    ("budgets", "its time limit and 1 s", budgets.KILL_S == 1),
    ("budgets", "`factor` (2) times its average duration", budgets.FACTOR == 2),
    ("budgets", "`unknown_s` (60)", budgets.UNKNOWN_S == 60),
    ("budgets", "has not used for 10 s", borrowing.IDLE_S == 10),
    ("budgets", "silent for twice `slice_s`", lending.SILENT_FACTOR == 2),
    ("budgets", "had a slot in the last ten minutes", market.EMPTY_S == 600),
    ("budgets", "up to ten times the expected cost of each part", grant_parts.SHARE_FACTOR == 10),
    ("budgets", "`[contracts] idle_s`, 10 s after its last task", DealRules().idle_s == 10),
    ("environments", "at most 16; `*` matches", environments.IMAGES_MAX == 16),
    ("environments", "0.05 to 1024; of a sandbox too", environments.CPUS_MIN == 0.05),
    ("environments", "in up to 150 characters", IMAGE_CHARS_MAX == 150),
    ("environments", "limited to 1 MiB", FILES_BYTES_MAX == 1 << 20),
    ("protocol", "A pipe that has not greeted within 10 s", half_open.GREETING_MAX_S == 10),
]


@pytest.mark.parametrize(("page", "sentence", "is_so"), FIGURES, ids=[each[1] for each in FIGURES])
def test_figures_of_pages_are_those_of_the_code(page, sentence, is_so):
    text = " ".join((DOCS / f"{page}.md").read_text().split())
    assert sentence in text
    assert is_so


def test_the_defaults_of_environments_are_as_documented():
    text = (DOCS / "environments.md").read_text()
    lines = text.partition("| in `[pool.environments]` |")[2].partition("\n\n")[0].splitlines()
    matches = (re.match(r"\| `(\w+)` \| ([^|]+) \|", line) for line in lines)
    rows = dict(match.groups() for match in matches if match)
    rules = environments.EnvironmentRules()
    for key in ("cpus", "pids_max", "tmp_bytes", "packages", "wheels_only", "build_s", "kept_max"):
        assert number(rows[key]) == float(getattr(rules, key)), key
    for key in ("pull", "network", "image_python"):
        assert rows[key].strip('` "') == getattr(rules, key), key


def test_the_log_codes_of_the_trust_page_are_those_of_the_code():
    text = (DOCS / "trust.md").read_text()
    listed = text.partition("## Refusal codes in the log")[2].partition("\n## ")[0]
    known = {str(each) for each in identity.TrustRefusal} | {introduction.NOT_APPROVED}
    assert set(re.findall(r"`([a-z-]+)`", listed)) == known
