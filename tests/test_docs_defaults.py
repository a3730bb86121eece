"""Defaults agree: those of the code, of the template of `gridfed init` and of the documents."""

import dataclasses
import re
from pathlib import Path

import pytest

from gateway.cli.operate import template
from gateway.config.alerts import AlertPace
from gateway.config.books import BookRules
from gateway.config.carbon import CarbonConfig, ForecastConfig, HttpConfig, SeriesConfig
from gateway.config.contracts import DealRules
from gateway.config.federation import FederationConfig
from gateway.config.limits import LIMITS, ListenerLimits
from gateway.config.pools import PoolConfig
from gateway.config.site import SiteConfig
from policies.disclosure import Disclosure
from policies.placement.asks import Preferences
from policies.reservations.reservations import ReservationRules
from policies.tariffs import MILLION

DOCS = Path(__file__).parents[1] / "docs"
CLASSES = (
    *(SiteConfig, ListenerLimits, PoolConfig, CarbonConfig, SeriesConfig, HttpConfig),
    *(ForecastConfig, FederationConfig, DealRules, Preferences, BookRules, Disclosure),
    *(AlertPace, ReservationRules),
)
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
