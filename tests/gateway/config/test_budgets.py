"""The tables [[budget]] and [credit]: the accepted keys, and the errors for others."""

import tomllib
from zoneinfo import ZoneInfo

import pytest

from gateway.base.values import SettingError
from gateway.config.budgets import (
    BUDGETS_MAX,
    check_budgets,
    read_amount,
    read_budgets,
    read_credit,
)
from gateway.config.federation import FederationConfig
from gateway.config.site import ConfigError, SiteConfig, check, load
from policies.calendar.periods import PeriodLength
from policies.costs.budgets import SLOT_TIME, Budget, Running, Waiting
from policies.parties import OURS, Party, PartyKind

UNIT = 10**9


def read(text):
    return read_budgets(tomllib.loads(f"[[budget]]\n{text}")["budget"], {})


def test_a_budget_has_defaults_for_all_but_its_name_and_its_amount():
    (found,) = read('name = "b"\namount = "10 USD"')
    assert found == Budget("b", OURS, "USD", 10 * UNIT)
    assert (found.span, found.zone.key, found.is_hard) == (PeriodLength.MONTH, "UTC", True)
    assert (found.running, found.waiting) == (Running.FINISH, Waiting.WAIT)
    assert (found.factor, found.unknown_s, found.slice_s, found.owner) == (2.0, 60.0, 300.0, "")


def test_every_key_is_read():
    (found,) = read(
        """
        name = "b"
        who = "user:ada"
        amount = "1.5 slot-h"
        period = "ever"
        zone = "Europe/London"
        running = "stop"
        waiting = "end"
        factor = 3
        unknown_s = 5
        sites = ["paris", "lyon"]
        slice_s = 20
        """
    )
    assert found == Budget(
        "b", Party(PartyKind.USER, "ada"), SLOT_TIME, 5_400 * UNIT, None, ZoneInfo("Europe/London"),
        True, Running.STOP, Waiting.END, 3, 5, "", frozenset({"paris", "lyon"}), 20,
    )  # fmt: skip


def test_a_slice_of_anothers_budget_has_a_size_in_place_of_an_amount():
    (found,) = read('name = "b"\nowner = "london"\nslice = "5 USD"\nperiod = "year"')
    assert (found.owner, found.amount_nanos, found.unit) == ("london", 5 * UNIT, "USD")


@pytest.mark.parametrize(
    ("text", "nanos", "unit"),
    [
        ("1000 USD", 1_000 * UNIT, "USD"),
        ("0.000000001 EUR", 1, "EUR"),
        ("7 slot-s", 7 * UNIT, SLOT_TIME),
        ("0.5 slot-h", 1_800 * UNIT, SLOT_TIME),
    ],
)
def test_an_amount_is_money_or_time_of_slots(text, nanos, unit):
    assert read_amount(text) == (nanos, unit)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('amount = "1 USD"', "needs a name of 1 to 60"),
        ('name = ""\namount = "1 USD"', "needs a name"),
        (f'name = "{"x" * 61}"\namount = "1 USD"', "needs a name"),
        ('name = "a\\u0007"\namount = "1 USD"', "needs a name"),
        ('name = "b"', "b: amount: '' is not an amount of money"),
        ('name = "b"\namount = 5', "b: amount:"),
        ('name = "b"\namount = "5"', "is not an amount of money"),
        ('name = "b"\namount = "-5 USD"', "is negative"),
        ('name = "b"\namount = "0 USD"', "b: amount must be above zero"),
        ('name = "b"\namount = "5 slot-d"', "is not a currency"),
        ('name = "b"\namount = "x slot-h"', 'write "1000 USD", "36000 slot-s"'),
        ('name = "b"\namount = "2562048 slot-h"', "it is too large"),
        ('name = "b"\namount = "1 USD"\nlimit = 3', "unknown key 'limit'; known keys: amount,"),
        ('name = "b"\namount = "1 USD"\nwho = "ada"', "who: 'ada' is not a party"),
        ('name = "b"\namount = "1 USD"\nwho = 3', "who: '3' is not a party"),
        ('name = "b"\namount = "1 USD"\nperiod = "fortnight"', "period is 'fortnight'"),
        ('name = "b"\namount = "1 USD"\nzone = "Mars"', "zone: 'Mars' is not a time zone"),
        ('name = "b"\namount = "1 USD"\nzone = 3', "zone: '3' is not a time zone"),
        ('name = "b"\namount = "1 USD"\nhard = "yes"', "hard must be true or false"),
        ('name = "b"\namount = "1 USD"\nrunning = "kill"', "it must be finish or stop"),
        ('name = "b"\namount = "1 USD"\nwaiting = 1', "it must be wait or end"),
        ('name = "b"\namount = "1 USD"\nfactor = 0.5', "factor is 0.5: it must be 1 to 1000"),
        ('name = "b"\namount = "1 USD"\nunknown_s = 0', "unknown_s is 0: it must be 0.001"),
        ('name = "b"\namount = "1 USD"\nslice_s = 0', "slice_s is 0: it must be 1s to 1d"),
        ('name = "b"\namount = "1 USD"\nsites = "paris"', "sites must be a list"),
        ('name = "b"\namount = "1 USD"\nsites = ["P"]', "each value of sites is 'P', which is not"),
        (
            'name = "b"\namount = "1 USD"\nhard = false\nsites = ["paris"]',
            "a soft budget can't be shared",
        ),
        ('name = "b"\namount = "1 USD"\nslice = "1 USD"', "slice is not allowed"),
        ('name = "b"\nowner = "london"', "b: slice: '' is not an amount"),
        ('name = "b"\nowner = "L"\nslice = "1 USD"', "owner is 'L', which is not a site name"),
        ('name = "b"\nowner = 3\nslice = "1 USD"', "owner is 3"),
        ('name = "b"\namount = "1 USD"\nowner = []', "owner is []"),
        (
            'name = "b"\nowner = "london"\nslice = "1 USD"\namount = "1 USD"',
            "amount is not allowed",
        ),
        (
            'name = "b"\nowner = "london"\nslice = "1 USD"\nsites = []',
            "sites is not allowed",
        ),
        ('name = "b"\nowner = "london"\nslice = "1 USD"\nhard = false', "a soft budget"),
        (
            'name = "b"\namount = "1 USD"\n[[budget]]\nname = "b"\namount = "2 USD"',
            "the name is used twice",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_table_and_key(text, said):
    with pytest.raises(SettingError) as wrong:
        read(text)
    assert str(wrong.value).startswith("[[budget]]")
    assert said in str(wrong.value)


@pytest.mark.parametrize("tables", [{"name": "b"}, ["b"], "b", [{}] * (BUDGETS_MAX + 1)])
def test_budgets_are_tables_in_an_array_and_not_too_many(tables):
    with pytest.raises(SettingError, match=r"\[\[budget\]\]"):
        read_budgets(tables, {})


@pytest.mark.parametrize(
    ("text", "is_federated", "said"),
    [
        ('name = "b"\nowner = "london"\nslice = "1 USD"', True, "owner is 'london', which is this"),
        ('name = "b"\namount = "1 USD"\nsites = ["london"]', True, "'london' is this site"),
        ('name = "b"\nowner = "paris"\nslice = "1 USD"', False, "has no \\[federation\\]"),
        ('name = "b"\namount = "1 USD"\nsites = ["paris"]', False, "shared with other sites"),
    ],
)
def test_what_is_shared_needs_others(text, is_federated, said):
    with pytest.raises(SettingError, match=said):
        check_budgets(read(text), "london", {}, is_federated=is_federated)


def test_a_budget_that_is_ours_needs_nobody():
    check_budgets(read('name = "b"\namount = "1 USD"'), "london", {}, is_federated=False)


def test_credit_is_an_amount_for_each_site_or_several():
    found = read_credit({"paris": "5 USD", "lyon": ["5 USD", "6 EUR"], "*": "0 USD"}, {})
    assert found == {
        "paris": ((5 * UNIT, "USD"),),
        "lyon": ((5 * UNIT, "USD"), (6 * UNIT, "EUR")),
        "*": ((0, "USD"),),
    }


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"Paris": "5 USD"}, "'Paris': it is 'Paris', which is not a site name"),
        ({"paris": 5}, "'paris': '5' is not an amount of money"),
        ({"paris": []}, "'paris': needs an amount"),
        ({"paris": ["5 USD", "6 USD"]}, "'paris': needs an amount, or a list"),
        ({"paris": "5 slot-h"}, "is not a currency"),
    ],
)
def test_credit_that_can_not_be_is_refused(table, said):
    with pytest.raises(SettingError, match=said):
        read_credit(table, {})


def test_a_file_says_where_it_is_wrong(tmp_path):
    path = tmp_path / "site.toml"
    for text, said in (
        ('[[budget]]\nname = "b"\namount = "x USD"', "line 3: [[budget]] b: amount: 'x'"),
        ("[[budget]]\nname = 3", "line 1: [[budget]]: needs a name of"),
        ("[budget]\nname = 'b'", "[[budget]] must be an array of tables"),
        ("[credit]\nparis = 3", "line 2: [credit] 'paris': '3' is not an amount"),
        ("credit = 3", "line 1: [credit] must be a table"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as wrong:
            load(str(path))
        assert str(wrong.value).startswith(f"{path}: {said}"), wrong.value


def test_a_configuration_is_checked_as_a_whole():
    budgets = read('name = "b"\nowner = "local"\nslice = "1 USD"')
    with pytest.raises(ConfigError, match="which is this site"):
        check(SiteConfig(budgets=budgets, federation=FederationConfig()), 0.0)
