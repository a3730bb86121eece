"""The mistakes that people make in a configuration: each is found, with its line, by `check`."""

import itertools

import pytest


def test_a_right_configuration_has_no_findings(place):
    found = place.check("--offline")
    assert found["findings"] == []


# What is written in place of what, the line that is named, and what is said of it.
ERRORS = [
    ("secret_file", "secret_fil", "secret_fil =", "did you mean 'secret_file'?"),
    ('name = "london"', 'name = "london"\ntoken_requird = true', "token_requird",
     "unknown key 'token_requird' (did you mean 'token_required'?)"),
    ('[[pool]]\nname = "cloud"', '[[pools]]\nname = "cloud"', "[[pools]]",
     "unknown key 'pools' (did you mean 'pool'?)"),
    ("[groups]", "[group]", "[group]", "unknown key 'group' (did you mean 'groups'?)"),
    ("[groups]", "[[window]]\nname = 'x'\n[groups]", "[[window]]",
     "unknown key 'window': windows and claims belong to a pool: write [[pool.window]]"),
    ("[groups]", "[[windows]]\nname = 'x'\n[groups]", "[[windows]]", "write [[pool.window]]"),
    ('from = "18:00"', 'from = "25:00"', '"25:00"', "from is '25:00': it is not a time of day"),
    ('from = "18:00"', 'form = "18:00"', "form", "unknown key 'form' (did you mean 'from'?)"),
    ("Europe/London", "London", 'zone = "London"', "'London' is not a time zone"),
    ('days = "business"', 'days = "weekdays"', '"weekdays"', "days: 'weekdays'"),
    ('calendar = "london"', 'calendar = "londn"', '"londn"', "calendar 'londn' not found"),
    ('price = "0.04 GBP"', "price = 0.05", "price = 0.05", "write an amount"),
    ('price = "0.04 GBP"', 'price = "£0.05"', "£0.05", "price"),
    ('price = "0.04 GBP"', 'price = "0,05 GBP"', "0,05", "price"),
    ('price = "0.04 GBP"', 'price = "0.04 gbp"', "gbp", "price"),
    ('price = "0.04 GBP"', 'price = "-0.05 GBP"', "-0.05", "price"),
    ("preemptible = 0.5", 'preemptible = "half"', "preemptible =", "preemptible"),
    ('walltime = "04:00:00"', "walltime = 4", "walltime", "walltime: 4 has no unit: write 4s"),
    ('walltime = "04:00:00"', 'walltime = "04:00"', "walltime", "or 04:00:00"),
    ('who = "site:paris"', 'who = "paris"', '"paris"', "claims[1].who: 'paris' is not a party"),
    ('who = "site:paris"', 'who = "site:paris guaranteed=1"', '"site:paris guaranteed=1"',
     "claims[1].who: 'site:paris guaranteed=1' is not a party: its name contains '='"),
    ('"group:quants", "project', '"group:quant", "project', "group:quant\"",
     "group 'quant' not found in [groups]"),
    ('name = "cloud"', 'name = "hpc"  # again', "# again", "another pool has the same name"),
    ('guaranteed = "80%"', 'guaranteed = "180%"', "180%", "claims[1].guaranteed: '180%'"),
    ("grace_s = 10", 'grace_s = "soon"', "grace_s", "grace_s"),
    ('period = "month"', 'period = "monthly"', "monthly", "period is 'monthly': it must be day"),
    ('"tls+tcp://0.0.0.0:7461"', '"tls://0.0.0.0:7461"', "tls://", "listen: "),
    ('pools = ["hpc", "elsewhere"]', 'pools = ["hcp"]', '"hcp"', "pool 'hcp' not found here"),
    ('zone = "Europe/London"', 'zone = "Europe/London"\n[[pool.window]]\nname = "b"\n#',
     "[[pool.window]]\nname = \"b\"", "raise the priority"),
    ('memory_bytes = "1 GiB"', "memory_bytes = 4096", "memory_bytes", "or at least 64 MiB"),
    ('memory_bytes = "1 GiB"', 'memory_bytes = "4 GX"', "memory_bytes", "is not a size"),
    ('kind = "processes"', 'kind = "slrum"', "slrum", "kind is 'slrum': must be one of"),
    ("https://alerts", "alerts", "webhook", "webhook must begin with https://"),
    ('dates = ["2099-12-25"]', 'holidays = "none.txt"', "none.txt", "it can't be read"),
    ('secret_file = "{folder}/secret"\n', "", "listen", "is reachable from other hosts"),
    # These passed a reload before.
    ("{folder}/gw.pem", "{folder}/gone.pem", "gone.pem", "No such file or directory"),
    ("{folder}/token", "{folder}/gone", "{folder}/gone", "No such file or directory"),
    ("{folder}/secret", "{folder}/gone", "{folder}/gone", "No such file or directory"),
    ('state = "', 'database = "postgres://gridfed@db/books"\nstate = "', "postgres://",
     "use postgresql+psycopg://"),
    ('[[budget]]\nname = "risk"\nwho = "project:risk"',
     '[[budget]]\nname = "risk"\nwho = "group:nope"', "group:nope",
     "group 'nope' not found in [groups]; known groups: prod, quants"),
    ('who = "group:quants"', 'who = "group:quant"', 'who = "group:quant"',
     "group 'quant' not found in [groups] (did you mean 'quants'?)"),
]  # fmt: skip

WARNINGS = [
    ("site:paris", "site:pariss", "site:pariss", "unknown-site", "is not known here"),
    ('project = "risk"', 'project = "rsk"', '"rsk"', "unknown-project",
     "is named nowhere else (did you mean 'risk'?)"),
    ('jurisdiction = "UK"', 'jurisdiction = "United Kingdom, or so"', "or so",
     "odd-jurisdiction", "is not a code such as EU, UK or US-NY"),
    ('amount = "1000 GBP"', 'amount = "1000 JPY"', "JPY", "unknown-currency",
     "no pool here charges in it: they charge GBP"),
    ('calendar = "london"', 'calendar = "london"\nvalid_until = "2020-01-01"', "valid_until",
     "window-expires", "has expired on 2020-01-01: remove it"),
    ('price = "0.05 GBP"', 'price = "0.05 EUR"', "EUR", "no-rate",
     "[placement] has no exchange rate to GBP, so none of our own work runs here"),
    ("2099-12-25", "2019-12-25", "calendar =", "calendar-over", "was 2019-12-25"),
]  # fmt: skip


def test_there_are_as_many_mistakes_as_people_have_made():
    assert len(ERRORS) + len(WARNINGS) >= 44


@pytest.mark.parametrize(("old", "new", "at", "text"), ERRORS)
def test_an_error_is_told_with_its_line(place, old, new, at, text):
    place.change(old, new)
    found = place.check("--offline", code=1)
    errors = [each for each in found["findings"] if each["level"] == "error"]
    assert len(errors) == 1, errors
    assert text in f"{errors[0]['subject']}: {errors[0]['text']}"
    assert errors[0]["file"] == str(place.path)
    assert errors[0]["line"] == place.line_of(at)


@pytest.mark.parametrize(("old", "new", "at", "code", "text"), WARNINGS)
def test_a_warning_is_told_with_its_line_and_is_no_failure(place, old, new, at, code, text):
    if code == "unknown-site":
        place.know("paris")
    place.change(old, new)
    found = place.check("--offline")
    assert (found["errors"], found["warnings"]) == (0, 1), found["findings"]
    [each] = found["findings"]
    assert (each["code"], each["line"]) == (code, place.line_of(at))
    assert text in each["text"]


def _independent():
    """Two mistakes of different tables: each of ERRORS with the two that follow it there."""
    # A second pool of a name, a misspelt [[pools]] and a missing secret change the meaning of more.
    alone = ("[[pools]]", "# again", 'name = "b"', "{folder}/gone", "token_requird")
    rows = [each for each in ERRORS if each[1] and not any(part in each[1] for part in alone)]
    for first, second in itertools.combinations(rows, 2):
        if rows.index(second) - rows.index(first) <= 8 and first[0] != second[0]:
            yield first, second


@pytest.mark.parametrize(("first", "second"), list(_independent()))
def test_a_mistake_hides_no_other(place, first, second):
    try:
        place.change(first[0], first[1])
        place.change(second[0], second[1])
    except AssertionError:
        pytest.skip("both change the same part")
    found = place.check("--offline", code=1)["findings"]
    texts = [f"{each['subject']}: {each['text']}" for each in found]
    if {"group 'quant' not found in [groups]", "pool 'hcp' not found here"} == {
        first[3],
        second[3],
    }:
        assert len(texts) == 1  # of one row, which is nothing without its party
        return
    assert len(texts) == 2, texts
    for each in (first, second):
        assert any(each[3] in text for text in texts), texts
