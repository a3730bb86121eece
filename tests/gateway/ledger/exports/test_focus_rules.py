"""The check of FOCUS files finds their errors."""

import csv
import io

import pytest
from support.exports import SITE, hour

from gateway.ledger.exports.focus import charges
from gateway.ledger.exports.focus_columns import EXPORTED
from gateway.ledger.exports.focus_rules import check

HEADER = [column.name for column in EXPORTED]


def problems(header, *rows):
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    text.seek(0)
    return [problem for each in check(text) for problem in each.problems]


def changed(**cells):
    [row] = charges(SITE, [hour()], [])
    return [cells.get(name, value) or "" for name, value in zip(HEADER, row, strict=True)]


def test_a_good_row_has_no_problem():
    assert problems(HEADER, changed()) == []


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        ({"BilledCost": ""}, "BilledCost is null"),
        ({"BilledCost": "1,000"}, "not a decimal number"),
        ({"BilledCost": "+1"}, "not a decimal number"),
        ({"BilledCost": "1E+3"}, "not a decimal number"),
        ({"BilledCost": "NaN"}, "not a decimal number"),
        ({"ListUnitPrice": "-1"}, "must not be negative"),
        ({"BillingCurrency": "usd"}, "not a currency"),
        ({"BillingPeriodStart": "2023-11-01"}, "not a time"),
        ({"BillingPeriodStart": "2023-11-01T00:00:00+00:00"}, "not a time"),
        ({"BillingPeriodStart": "2023-13-01T00:00:00Z"}, "not a time"),
        ({"ChargePeriodEnd": "2023-11-14T22:00:00Z"}, "is not before"),
        ({"BillingPeriodEnd": "2023-11-14T22:00:00Z"}, "is not a correction"),
        ({"ChargeClass": "Correction"}, "has no ChargeClass"),
        ({"ChargeClass": "Corrected"}, "not one of Correction"),
        ({"ChargeCategory": "Use"}, "not one of"),
        ({"ServiceCategory": "Grid"}, "not one of"),
        ({"ChargeCategory": "Purchase"}, "must not be Usage-Based"),
        ({"ChargeCategory": "Purchase"}, "ConsumedQuantity must be null"),
        ({"ChargeCategory": "Tax"}, "PricingQuantity must be null for Tax"),
        (
            {"ChargeCategory": "Credit", "EffectiveCost": "5"},
            "EffectiveCost differs from BilledCost",
        ),
        ({"ProviderName": "  "}, "only spaces"),
        ({"ProviderName": "N/A"}, "a placeholder"),
        ({"PricingUnit": "slot hours"}, "not a unit"),
        ({"PricingUnit": ""}, "null together"),
        ({"RegionName": ""}, "null together"),
        ({"ResourceId": "", "ResourceType": ""}, "ResourceName must be null"),
        ({"ResourceName": "london/local"}, "must differ from ResourceId"),
        ({"SkuPriceId": ""}, "SkuPriceId must not be null for Usage"),
        ({"PricingCategory": ""}, "PricingCategory must not be null"),
        ({"PricingCategory": "Committed"}, "CommitmentDiscountId is null"),
        ({"ConsumedQuantity": "", "ConsumedUnit": ""}, "ConsumedQuantity must not be null"),
        ({"ContractedUnitPrice": "0.05"}, "is not ContractedCost"),
        ({"ListCost": "0.000040001"}, "is not ListCost"),
        ({"CommitmentDiscountName": "x"}, "must be null when CommitmentDiscountId is"),
        ({"Tags": "[1]"}, "not an object"),
        ({"Tags": "{"}, "not JSON"),
        ({"Tags": "[" * 100_000}, "not JSON"),
        ({"Tags": '{"a":NaN}'}, "not JSON"),
        ({"Tags": '{"a":1,"a":2}'}, "appears twice"),
        ({"Tags": '{"a":{}}'}, "an object or a list"),
        ({"SkuPriceDetails": '{"Window":"x"}'}, "does not begin with x_"),
    ],
)
def test_a_broken_rule_is_told(cells, complaint):
    found = problems(HEADER, changed(**cells))
    assert any(complaint in each for each in found), found
    assert all(each.startswith("row 1: ") for each in found)


@pytest.mark.parametrize("name", [c.name for c in EXPORTED if c.level == "mandatory"])
def test_a_mandatory_column_that_is_missing_is_told(name):
    header = [each for each in HEADER if each != name]
    assert problems(header) == [f"the mandatory column {name} is missing"]


def test_names_of_columns_and_their_order_are_checked():
    assert problems([*HEADER, "Extra"]) == [
        "Extra is not a column of FOCUS, and does not begin with x_"
    ]
    assert "is not in Pascal case" in problems([*HEADER, "x_extra_column"])[0]
    assert problems([*HEADER, "Tags"])[0] == "the column Tags appears more than once"
    moved = ["x_Early", *HEADER]
    assert "follows a column that is not part of FOCUS" in problems(moved)[0]


def test_a_row_that_is_too_short_is_told_and_the_next_is_read():
    found = problems(HEADER, ["1"], changed(BilledCost=""))
    assert found == [
        f"row 1: the row has 1 cells, the header {len(HEADER)} columns",
        "row 2: BilledCost is null",
    ]


def test_a_file_that_is_no_csv_is_told():
    found = [each for part in check(["a,b\n", '"x"y,z\n']) for each in part.problems]
    assert any("after row 0" in each for each in found)
    assert [part.rows for part in check([])] == [0]


def test_files_of_others_are_read_too():
    # A row of a cloud's, with fewer columns than ours, and null where null is allowed.
    header = [column.name for column in EXPORTED if column.level == "mandatory"]
    row = [changed()[HEADER.index(name)] for name in header]
    assert problems(header, row) == []
