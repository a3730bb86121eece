"""Lines of tables and keys."""

import tomllib

import pytest

from gateway.base.toml_lines import check_depth, find_key, find_places

TEXT = '''\
# a site
[site]
name = "london"

[calendar."bank holidays"]
dates = ["2026-12-25"]

[[pool]]
name = "fast"
note = """
[site]
name = "not a key"
"""
tags = { gpu = 2 }

[pool.tariff]
zone = "UTC"

[[pool.window]]
name = "a"
from = "17:00"

[[pool.window]]  # another
name = "b"

[[pool]]
name = "slow"
[[pool.window]]
  from="18:00"
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("site",), 2),
        (("site", "name"), 3),
        (("calendar", "bank holidays"), 5),
        (("calendar", "bank holidays", "dates"), 6),
        (("pool", 0), 8),
        (("pool", 0, "note"), 10),
        (("pool", 0, "tags"), 14),
        (("pool", 0, "tariff", "zone"), 17),
        (("pool", 0, "window", 0), 19),
        (("pool", 0, "window", 0, "from"), 21),
        (("pool", 0, "window", 1), 23),
        (("pool", 1), 26),
        (("pool", 1, "window", 0, "from"), 29),
    ],
)
def test_tables_and_keys_have_their_lines(path, line):
    assert find_places(TEXT)[path] == line


def test_every_place_is_in_the_document():
    document = tomllib.loads(TEXT)
    for path in find_places(TEXT):
        found = document
        for step in path:
            found = found[step]


def test_lines_are_those_of_toml():
    """TOML knows no other line ends than these; texts and comments may hold others of Unicode."""
    text = "# one\u2028two\x85three\r\n[site]\r\nname = 1\r\n"
    assert find_places(text) == {("site",): 2, ("site", "name"): 3}


def test_a_line_of_spaces_takes_no_time():
    """It took seconds for thousands of them, and years for a million."""
    text = f"a = [\n[{' ' * 1_000_000}\n1]]\n"
    assert find_places(text) == {("a",): 1}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max is 4: it must be at least the 8 slots of a pilot (pilot_slots)", ("max",)),
        ("unknown key 'idel'; known keys: idle, max", ("idel",)),
        ("pilot_slots is 0", ("pilot_slots",)),
        ("http: keep_s is less than fresh_s", ("http", "keep_s")),
        ("http must be a table", ("http",)),
        ("tags.gpu must be a table", ("tags", "gpu")),
        ("maximum is missing", ()),
        ("", ()),
    ],
)
def test_the_first_key_that_a_message_names_is_meant(text, found):
    table = {"pilot_slots": 8, "max": 4, "idel": 1, "": 0}
    table |= {"http": {"fresh_s": 1, "keep_s": 0}, "tags": {"gpu": 3}}
    assert find_key(table, text) == found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (".".join(["a"] * 100_000) + " = 1", 1),
        ("x = 1\n[" + " . ".join(['"a"'] * 100_000) + "]", 2),
        ('y = """a\n\nb"""\nx = {' + ".".join(["a", "'b.c'"] * 50_000) + " = 1}", 4),
    ],
)
def test_a_key_of_very_many_parts_is_refused_at_once(text, line):
    with pytest.raises(ValueError, match=f"line {line}: a key of over 100 parts"):
        check_depth(text)


@pytest.mark.parametrize(
    "text",
    [
        'x = "' + "a." * 500 + '"',
        "# " + "a." * 500,
        "x = '''" + "a.\n" * 500 + "'''",
        "a.b.c = 1.5",
    ],
)
def test_dots_in_texts_and_comments_are_no_parts_of_keys(text):
    check_depth(text)


@pytest.mark.parametrize("text", ["f" * 4_000_000, "a." + "f" * 4_000_000 + " = 1"])
def test_a_long_word_is_looked_at_once(text):
    """Looked at anew from each of its characters it takes hours."""
    check_depth(text)
