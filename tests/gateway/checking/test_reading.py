"""All mistakes of a file are told in one run, and nothing that only follows from them."""

import random

import pytest
from click.testing import CliRunner

from gateway.checking.reading import FileReading, read_whole
from gateway.checking.users import is_one_off
from gateway.cli.main import cli
from gateway.grids.kinds import Installed

MANY = """\
[site]
name = "london"
zone = "Europe/Lundon"
token_requird = true

[limits]
grace_s = "ten"
heartbeat_s = -1

[contracts]
lease_s = 15

[groups]
quants = ["ann", "bob"]
desk = "carl"

[calendar.london]
dates = ["2099-13-25"]

[[entitlement]]
allow = "group:quanst"
pools = ["hpc"]

[[entitlement]]
allow = ["user:amn", "group:desk"]
slots_max = "many"

[[budget]]
name = "risk"
who = "user:bop"
amoun = "1000 GBP"

[[budget]]
name = "second"
amount = "1000"

[[pool]]
name = "hpc"
kind = "slrum"
price = "0.04"

[pool.slrum]
partition = "x"

[pool.scale]
max = 0

[[pool.window]]
name = "production"
calendar = "london"
from = "25:00"
"""
# The mistakes, by line; the misspelt key demands tokens, of a site without keys. Not told: that a
# lease of 15 s is too short for the usual grace, that group desk, calendar london and the kind's
# table are not there, and that nothing has a price in GBP.
ERRORS_OF_MANY = [3, 4, 4, 7, 8, 15, 18, 21, 26, 31, 35, 39, 40, 46, 51]


def told(place, text):
    place.path.write_text(text)
    return place.check("--offline", code=1)["findings"]


def test_all_mistakes_of_a_file_are_told_and_none_that_follows(place):
    found = told(place, MANY)
    errors = [each["line"] for each in found if each["level"] == "error"]
    assert errors == ERRORS_OF_MANY, found
    warnings = [(each["line"], each["text"]) for each in found if each["level"] == "warning"]
    assert warnings == [
        (25, "user 'amn' is in no group of [groups] (did you mean 'ann'?)"),
        (30, "user 'bop' is in no group of [groups] (did you mean 'bob'?)"),
    ]


SEVERAL = """\
[site]
listen = ["tcp:/127.0.0.1:1", "ipc:///tmp/gw.sock", "bar://x", "foo"]

[[budget]]
name = "risk"
who = "desk"
amount = "5 F"
period = "yearly"
zone = "Europe/Lundon"

[[budget]]
name = "none"
who = "desk:b"

[[budget]]
name = "far"
who = "desk:c"
owner = "paris"
slice = 5

[[pool]]
name = "hpc"
claims = [
  { who = "desk", borrows = 0 }, { who = "user:ann", borrow = 0, guaranteed = "x" },
  { who = "user:bob", lends = "y" }, 7, { borrows = "z" },
]

[[pool.window]]
name = "night"
from = "18:00"
to = "06:00"
claims = [{ who = "a", lends = "x" }, { who = "b" }, { who = "group:c", borrows = "-1%" }]
"""


def test_all_mistakes_of_one_table_and_of_one_list_are_told(place):
    found = told(place, SEVERAL)
    assert {each["level"] for each in found} == {"error"}, found
    told_in_turn = sorted((each["line"], each["text"]) for each in found)
    lines = dict.fromkeys(line for line, _ in told_in_turn)
    begins = {line: [text for at, text in told_in_turn if at == line] for line in lines}
    assert {line: len(texts) for line, texts in begins.items()} == {
        2: 3,
        6: 1,
        7: 1,
        8: 1,
        9: 1,  # the addresses, and the budgets
        11: 1,
        13: 1,
        17: 1,
        18: 1,
        19: 1,
        23: 7,
        32: 5,  # claims
    }, found
    assert [text.partition(" ")[0] for text in begins[23]] == [
        "claims[1].who:",
        "claims[2].guaranteed:",
        "claims[2]:",
        "claims[3].lends:",
        "claims[4]",
        "claims[5].borrows:",
        "claims[5].who:",
    ]


RISK = 'sandbox = "none", accept_risk = "tasks of others can act as this site"'
WHOLE = f"""\
[[pool]]
name = "hpc"
kind = "local"
slots = 2
user = "none"
environments = {{ {RISK} }}

[[pool.window]]
name = "night"
from = "18:00"
to = "06:00"

[groups]
quants = ["ann"]

[[entitlement]]
allow = "group:quants"
pools = ["hpc"]
windows = ["night"]

[fair_share]

[[fair_share.share]]
name = "quants"
who = "group:quants"
"""


@pytest.mark.parametrize(
    ("right", "wrong", "cause"),
    [
        ('name = "hpc"', "name = 7", "needs a name"),
        ('name = "hpc"', "", "needs a name"),
        ('name = "hpc"', 'nam = "hpc"', "needs a name"),
        ('kind = "local"', 'kind = "locl"', "kind is 'locl'"),
        ('kind = "local"', "kind = 7", "kind must be a string"),
        ('kind = "local"', "", 'slots is only for local pools (kind = "local")'),
        ('name = "night"', "", "needs a name"),
        ('name = "night"', "name = []", "needs a name"),
        ('name = "quants"', "", "needs a name"),
        ('who = "group:quants"', 'who = "x"', "'x' is not a party"),
        ('who = "group:quants"', "", "who is missing"),
    ],
)
def test_one_mistake_is_one_error(tmp_path, right, wrong, cause):
    path = tmp_path / "gateway.toml"
    path.write_text(WHOLE)
    assert read_whole(str(path), Installed(), 0.0).mistakes == ()
    path.write_text(WHOLE.replace(right, wrong, 1))
    [mistake] = read_whole(str(path), Installed(), 0.0).mistakes
    assert cause in mistake.text


def test_a_name_that_is_nowhere_is_still_told_beside_another_mistake(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text(WHOLE.replace('["hpc"]', '["hcp"]').replace('kind = "local"', "kind = 7"))
    texts = [each.text for each in read_whole(str(path), Installed(), 0.0).mistakes]
    assert len(texts) == 2
    assert "pool 'hcp' not found here" in texts[1]


def test_a_mistake_of_the_readers_hides_no_file_that_is_missing(place):
    place.change("grace_s = 10", 'grace_s = "soon"')
    place.change("{folder}/gw.pem", "{folder}/gone.pem")
    lines = [each["line"] for each in place.check("--offline", code=1)["findings"]]
    assert lines == [place.line_of('"soon"'), place.line_of("gone.pem")]


def test_the_same_wrong_name_is_told_at_each_place(place):
    place.change('"group:quants", "project', '"group:quant", "project')
    place.change('who = "group:quants"', 'who = "group:quant"')
    lines = sorted(each["line"] for each in place.check("--offline", code=1)["findings"])
    assert lines == sorted([place.line_of('who = "group:quant"'), place.line_of('["group:quant"')])


def test_a_misspelt_key_is_read_as_what_is_meant(place):
    place.change('amount = "1000 GBP"', 'amoun = "1000"')
    found = place.check("--offline", code=1)["findings"]
    assert [each["line"] for each in found] == [place.line_of("amoun")] * 2
    assert "did you mean 'amount'?" in found[0]["text"]
    assert "'1000' is not an amount of money" in found[1]["text"]


def test_a_mistake_of_toml_is_told_with_its_line(place):
    place.change("grace_s = 10", "grace_s = = 10")
    [found] = place.check("--offline", code=1)["findings"]
    assert found["line"] == place.line_of("grace_s")


def test_a_file_has_one_name_in_all_findings(place, monkeypatch):
    place.change("grace_s = 10", 'grace_s = "soon"')
    place.change("{folder}/gw.pem", "{folder}/gone.pem")
    place.change("2099-12-25", "2019-12-25")
    monkeypatch.chdir(place.folder)
    done = CliRunner().invoke(cli, ["check", "gateway.toml", "--offline"])
    lines = done.output.splitlines()
    assert len(lines) == 4
    for each in lines[:-1]:
        assert each.split(": ")[1] == "gateway.toml", each
    assert lines[-1] == "gateway.toml: 2 errors, 1 warning"


@pytest.mark.parametrize("seed", range(40))
def test_a_broken_file_is_read_to_its_end(place, seed):
    """For any text: the reading ends, and raises nothing."""
    chance = random.Random(seed)
    lines = place.path.read_text().splitlines()
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(chance.randrange(len(lines)), lines[at])
            case 2:
                lines[at] = lines[at].partition("=")[0] + "= [{ a = 1 }, 7]"
            case _:
                lines[at] = lines[at].replace("a", "x")
    place.path.write_text("\n".join(lines))
    assert isinstance(read_whole(str(place.path), Installed(), 1.8e9), FileReading)


# --- users ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ('allow = ["group:quants",', 'allow = ["user:ane", "group:quants",', "user:ane"),
        ('allow = ["group:quants",', 'allow = ["user:an", "group:quants",', "user:an"),
        ('who = "project:risk"\namount', 'who = "user:anna"\namount', "user:anna"),
        ('project = "risk"', 'user = "bbo"', "bbo"),
        ('who = "site:paris"', 'who = "user:bobb"', "user:bobb"),
        ('prod = ["svc"]', 'prod = ["svc", "svc-risk"]\nnight = ["svc-risk"]\nold = ["svc-rsk"]',
         "svc-rsk"),
    ],
)  # fmt: skip
def test_a_user_who_is_one_letter_off_a_known_one_is_a_warning(place, old, new, at):
    place.change(old, new)
    [found] = place.check("--offline")["findings"]
    assert (found["code"], found["line"]) == ("unknown-user", place.line_of(at))
    assert "did you mean" in found["text"]


@pytest.mark.parametrize("user", ["carl", "root", "ann2", "bz"])
def test_other_users_are_no_finding(place, user):
    place.change('prod = ["svc"]', 'prod = ["svc", "ann1", "rot"]')
    place.change('who = "project:risk"\namount', f'who = "user:{user}"\namount')
    assert place.check("--offline")["findings"] == []


@pytest.mark.parametrize(
    ("one", "other", "is_off"),
    [
        ("ann", "ann", False),
        ("ann", "anne", True),
        ("anne", "ann", True),
        ("nan", "ann", True),
        ("ann", "amn", True),
        ("ann", "bob", False),
        ("ann", "annie", False),
        ("trader1", "trader2", False),
        ("trader1", "trader12", False),
        ("trader12", "trader21", False),
        ("abcd", "badc", False),
    ],
)
def test_names_are_one_letter_off(one, other, is_off):
    assert is_one_off(one, other) is is_off


def test_of_users_of_two_letters_only_one_that_lost_a_letter_is_a_warning(place):
    place.change('quants = ["ann", "bob"]', 'quants = ["ann", "bob", "cy"]')
    place.change('allow = ["group:quants",', 'allow = ["user:by", "group:quants",')
    assert place.check("--offline")["findings"] == []
