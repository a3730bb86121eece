"""FOCUS: every rule of the specification, and every nano-unit of the books."""

import csv
import io
import json
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exports import HOUR, SITE, correction, corrections, hour, hours

import gateway
from federation.money import format_amount
from gateway.ledger.exports.focus import charges
from gateway.ledger.exports.focus_columns import EXPORTED, FOCUS
from gateway.ledger.exports.focus_files import csv_lines, write_parquet
from gateway.ledger.exports.focus_rules import check
from gateway.ledger.output.formulas import uncell


def exported(*found: Any) -> str:
    usage = [each for each in found if hasattr(each, "records")]
    taken_back = [each for each in found if not hasattr(each, "records")]
    return "".join(csv_lines(charges(SITE, usage, taken_back)))


def rows(*found: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(exported(*found), newline="")))


def problems(text: str) -> list[str]:
    lines = io.StringIO(text, newline="")
    return [problem for each in check(lines) for problem in each.problems]


def test_the_specification_has_57_columns_of_which_21_are_mandatory():
    assert len(FOCUS) == 57
    mandatory = {column.name for column in FOCUS.values() if column.level == "mandatory"}
    assert len(mandatory) == 21
    assert mandatory <= {column.name for column in EXPORTED}


def test_every_column_is_in_the_document():
    text = (Path(gateway.__file__).parents[1] / "docs" / "exports.md").read_text()
    named = {name for line in text.splitlines() for name in re.findall(r"`(\w+)`", line[:300])}
    assert {column.name for column in EXPORTED} <= named


def test_the_fee_for_reserved_time_is_no_run():
    fee = {"tasks": 0, "wall_ns": 0, "cpu_ns": 0, "records": 2}
    found = exported(hour(name="reservation r-1, not used", **fee))
    [row] = csv.DictReader(io.StringIO(found, newline=""))
    described = "Fee for reserved slots: reservation r-1, not used, in local"
    assert (row["ChargeDescription"], row["x_Runs"]) == (described, "0")
    assert (row["PricingUnit"], row["PricingQuantity"]) == ("Reservations", "2")
    assert not problems(found)


@pytest.mark.parametrize(("byte_s", "unit"), [(3_600 * 10**12, "GB-Months"), (5, "Objects")])
@pytest.mark.parametrize("price", [None, 30_000_000])
def test_held_bytes_are_storage(byte_s: int, unit: str, price: int | None):
    none = {"tasks": 0, "wall_ns": 0, "cpu_ns": 0}
    prices = {"price_nanos": price, "list_price_nanos": price}
    cost = {"cost_nanos": 41_095_890, "list_cost_nanos": 41_095_890}
    found = exported(
        hour(kind="held", held_byte_s=byte_s, pool="objects", **none, **prices, **cost)
    )
    assert not problems(found)
    [row] = csv.DictReader(io.StringIO(found, newline=""))
    assert (row["ServiceCategory"], row["SkuMeter"]) == ("Storage", "Bytes Held")
    assert (row["ConsumedUnit"], row["x_Runs"], row["BilledCost"]) == (
        "GB-Hours",
        "0",
        "0.04109589",
    )
    if price is None:
        assert row["PricingUnit"] == unit
    elif byte_s > 5:
        assert (row["PricingUnit"], row["ListUnitPrice"]) == ("GB-Months", "0.03")
        assert row["ConsumedQuantity"] == "1000"


def test_moved_bytes_are_networking():
    none = {"tasks": 0, "wall_ns": 0, "cpu_ns": 0}
    found = exported(hour(kind="moved", moved_bytes=25 * 10**8, **none))
    assert not problems(found)
    [row] = csv.DictReader(io.StringIO(found, newline=""))
    assert (row["ServiceCategory"], row["PricingUnit"]) == ("Networking", "GB")
    assert row["ConsumedQuantity"] == "2.5"


def test_moves_that_cost_something_have_the_price_of_a_gb_and_are_taken_back_as_such():
    none = {"tasks": 0, "wall_ns": 0, "cpu_ns": 0, "kind": "moved", "moved_bytes": 5 * 10**8}
    paid = {"cost_nanos": 45_000_000, "list_cost_nanos": 45_000_000, "price_nanos": 90_000_000}
    bought = {"site": "paris", "pool": "paris/local"}
    void = correction(kind="moved", amount_nanos=45_000_000)
    found = exported(hour(**none, **paid, **bought), void)
    assert not problems(found)
    charge, back = csv.DictReader(io.StringIO(found, newline=""))
    assert (charge["BilledCost"], charge["ListUnitPrice"]) == ("0.045", "0.09")
    assert (charge["PublisherName"], charge["ServiceCategory"]) == ("paris", "Networking")
    assert (back["BilledCost"], back["ServiceCategory"]) == ("-0.045", "Networking")


def test_a_row_says_who_what_when_and_how_much():
    emitted = {"energy_uj": 3_600_000_000, "footprint": "carbon"}
    [row] = rows(hour(group="desk", tags="gpu=2,linux", window="night", **emitted))
    assert {name: row[name] for name in row if not name.startswith("CommitmentDiscount")} == {
        "BilledCost": "0.000033334",
        "BillingAccountId": "london",
        "BillingAccountName": "london",
        "BillingCurrency": "USD",
        "BillingPeriodEnd": "2023-12-01T00:00:00Z",
        "BillingPeriodStart": "2023-11-01T00:00:00Z",
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "ChargeDescription": "Runs of var in local",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": "2023-11-14T23:00:00Z",
        "ChargePeriodStart": "2023-11-14T22:00:00Z",
        "ConsumedQuantity": "3",
        "ConsumedUnit": "Slot-Seconds",
        "ContractedCost": "0.000033334",
        "ContractedUnitPrice": "0.0400008",
        "EffectiveCost": "0.000033334",
        "InvoiceId": "",
        "InvoiceIssuerName": "london",
        "ListCost": "0.00004",
        "ListUnitPrice": "0.048",
        "PricingCategory": "Standard",
        "PricingCurrency": "USD",
        "PricingCurrencyContractedUnitPrice": "0.0400008",
        "PricingCurrencyEffectiveCost": "0.000033334",
        "PricingCurrencyListUnitPrice": "0.048",
        "PricingQuantity": "0.000833333333333333",
        "PricingUnit": "Slot-Hours",
        "ProviderName": "london",
        "PublisherName": "london",
        "RegionId": "london",
        "RegionName": "london",
        "ResourceId": "london/local",
        "ResourceName": "local",
        "ResourceType": "Pool",
        "ServiceCategory": "Compute",
        "ServiceName": "Grid Compute",
        "ServiceSubcategory": "Other (Compute)",
        "SkuId": "london/local",
        "SkuMeter": "Slot Time",
        "SkuPriceDetails": '{"x_PriceClass":"guaranteed","x_TariffVersion":"1","x_Window":"night"}',
        "SkuPriceId": "london/local/guaranteed/1/night",
        "SubAccountId": "risk",
        "SubAccountName": "risk",
        "Tags": '{"gpu":2,"linux":true}',
        "x_CarbonEmbodiedG": "0",
        "x_CarbonOperationalG": "0",
        "x_Corrects": "",
        "x_CpuSeconds": "2.8",
        "x_EnergyKwh": "0.001",
        "x_ExecSite": "london",
        "x_GridIntensityGPerKwh": "0",
        "x_Group": "desk",
        "x_JobName": "var",
        "x_OriginSite": "london",
        "x_PeakMemoryBytes": "1048576",
        "x_PriceClass": "guaranteed",
        "x_Runs": "2",
        "x_State": "ok",
        "x_TariffVersion": "1",
        "x_Tasks": "20",
        "x_User": "ada",
        "x_Window": "night",
    }


def test_what_others_ran_for_us_is_bought_and_what_we_ran_for_others_is_billed_to_them():
    [bought] = rows(hour(site="paris", pool="paris/gpu"))
    assert (bought["BillingAccountId"], bought["InvoiceIssuerName"]) == ("london", "london")
    assert (bought["ProviderName"], bought["PublisherName"]) == ("london", "paris")
    assert (bought["ResourceId"], bought["RegionId"]) == ("paris/gpu", "paris")
    [sold] = rows(hour(origin="tokyo", price_class="preemptible"))
    assert (sold["BillingAccountId"], sold["PublisherName"]) == ("tokyo", "london")
    assert sold["PricingCategory"] == "Dynamic"


def test_what_is_not_known_is_null():
    [row] = rows(hour(user="", project=" ", name="", tariff="", tags=""))
    for name in ("x_User", "SubAccountId", "SubAccountName", "Tags", "x_EnergyKwh", "InvoiceId"):
        assert row[name] == ""


def test_carbon_is_by_the_hour():
    figures = {"energy_uj": 7_200_000_000, "carbon_ng": 600_000_000, "embodied_ng": 1}
    [row] = rows(hour(**figures, footprint="carbon"))
    assert row["x_EnergyKwh"] == "0.002"
    assert row["x_CarbonOperationalG"] == "0.6"
    assert row["x_CarbonEmbodiedG"] == "0.000000001"
    assert row["x_GridIntensityGPerKwh"] == "300"
    [clean] = rows(hour(energy_uj=7_200_000_000, footprint="carbon"))
    assert (clean["x_CarbonOperationalG"], clean["x_GridIntensityGPerKwh"]) == ("0", "0")
    [no_factor] = rows(hour(energy_uj=7_200_000_000, embodied_ng=1, footprint="energy"))
    assert (no_factor["x_EnergyKwh"], no_factor["x_CarbonEmbodiedG"]) == ("0.002", "0.000000001")
    assert no_factor["x_CarbonOperationalG"] == no_factor["x_GridIntensityGPerKwh"] == ""


def test_slot_time_that_is_too_short_for_a_price_an_hour_is_priced_by_the_run():
    [row] = rows(hour(wall_ns=0, cost_nanos=10, records=4))
    assert (row["PricingUnit"], row["PricingQuantity"]) == ("Runs", "4")
    assert row["ContractedUnitPrice"] == "0.0000000025"


@pytest.mark.parametrize(
    ("wall_ns", "cost_nanos", "quantity"),
    [
        (3_000_000_000, 33_333, "0.000833325"),  # rounded down, in two runs
        (3_000_000_000, 33_334, "0.00083335"),
        (10**6, 246_914, "0.00617285"),  # a minimum, of each of two tasks
    ],
)
def test_the_price_of_an_hour_is_that_of_the_tariff(wall_ns, cost_nanos, quantity):
    found = hour(
        wall_ns=wall_ns,
        cost_nanos=cost_nanos,
        list_cost_nanos=cost_nanos,
        price_nanos=40_000_000,
    )
    [row] = rows(found)
    assert row["ListUnitPrice"] == row["ContractedUnitPrice"] == "0.04"
    assert row["PricingCurrencyListUnitPrice"] == "0.04"
    assert (row["PricingQuantity"], row["PricingUnit"]) == (quantity, "Slot-Hours")
    assert problems(exported(found)) == []


def test_who_has_a_contract_is_told_the_list_price_as_it_is():
    """Two rounded costs have no quantity in common: the paid price is for the list one's."""
    prices = {"price_nanos": 32_000_000, "list_price_nanos": 40_000_000}
    found = hour(cost_nanos=26_667, list_cost_nanos=33_333, **prices)
    [row] = rows(found)
    assert row["ListUnitPrice"] == "0.04"
    assert abs(Decimal(row["ContractedUnitPrice"]) - Decimal("0.032")) < Decimal("0.000001")
    assert problems(exported(found)) == []
    even = hour(cost_nanos=32_000, list_cost_nanos=40_000, **prices)
    assert [row["ContractedUnitPrice"] for row in rows(even)] == ["0.032"]
    assert problems(exported(even)) == []


def test_what_cost_nothing_has_the_price_of_nothing():
    found = hour(state="repeat", cost_nanos=0, list_cost_nanos=0, price_nanos=40_000_000)
    [row] = rows(found)
    assert (row["ContractedUnitPrice"], row["PricingQuantity"]) == ("0", "0.000833333333333333")
    assert problems(exported(found)) == []


def test_what_is_taken_back_in_its_month_is_a_negative_charge():
    [row] = rows(correction())
    assert row["BilledCost"] == row["EffectiveCost"] == row["ListCost"] == "-0.000016667"
    assert row["ChargeClass"] == ""  # FOCUS: null for a correction within its billing period
    assert row["PricingQuantity"].startswith("-")
    assert row["x_Corrects"] == "sell/tokyo-1-1/1/0"
    assert (row["x_Runs"], row["ConsumedQuantity"]) == ("0", "0")
    assert problems(exported(correction())) == []


def test_what_is_taken_back_later_is_a_correction():
    later = correction(at_s=1_702_000_000.0, amount_nanos=5_000)
    [row] = rows(later)
    assert row["ChargeClass"] == "Correction"
    assert row["BillingPeriodStart"] == "2023-12-01T00:00:00Z"
    assert row["ChargePeriodStart"] == "2023-11-14T22:00:00Z"
    assert (row["BilledCost"], row["ListCost"]) == ("-0.000005", "-0.000005")
    assert problems(exported(later)) == []


def test_what_is_taken_back_says_between_which_sites():
    [row] = rows(correction(site="paris", pool="paris/fast", origin=""))
    assert (row["BillingAccountId"], row["PublisherName"]) == ("london", "paris")
    assert (row["BilledCost"], row["PricingUnit"]) == ("-0.000016667", "Runs")
    [row] = rows(correction())
    assert (row["BillingAccountId"], row["PublisherName"]) == ("tokyo", "london")


def test_a_formula_is_none_and_a_number_below_zero_stays_one():
    [row] = rows(correction(origin="=1+1"))
    assert row["BillingAccountId"] == "'=1+1"
    assert row["BilledCost"].startswith("-")


@settings(max_examples=200, deadline=None)
@given(st.lists(hours, max_size=4), st.lists(corrections, max_size=3))
def test_no_rule_is_broken_and_no_nano_unit_is_lost(usage, taken_back):
    text = exported(*usage, *taken_back)
    assert problems(text) == []
    found = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(found) == len(usage) + len(taken_back)
    for currency in ("USD", "EUR"):
        billed = sum(
            Fraction(row["BilledCost"]) for row in found if row["BillingCurrency"] == currency
        )
        booked = sum(each.cost_nanos for each in usage if each.currency == currency)
        booked -= sum(each.amount_nanos for each in taken_back if each.currency == currency)
        assert billed * 10**9 == booked
    for row, each in zip(found, usage, strict=False):
        for name, value in (("x_User", each.user), ("SubAccountId", each.project)):
            assert uncell(row[name]) == (value if value.strip() else "")
        if row["Tags"]:
            assert isinstance(json.loads(row["Tags"]), dict)


def test_no_rows_are_a_header():
    assert exported().splitlines() == [",".join(column.name for column in EXPORTED)]


def test_parquet_holds_the_same(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    usage = [hour(hour=HOUR + n, cost_nanos=10**17 + n, user="=1") for n in range(3)]
    write_parquet(charges(SITE, usage, [correction()]), tmp_path / "focus.parquet")
    table = parquet.read_table(tmp_path / "focus.parquet")
    assert table.schema.names == [column.name for column in EXPORTED]
    assert table.schema.metadata[b"FocusVersion"] == b"1.2"
    billed = sum(table["BilledCost"].to_pylist())
    assert billed == Decimal(format_amount(3 * 10**17 + 3 - 16_667))
    assert table["x_User"].to_pylist() == ["=1", "=1", "=1", None]
    texts = {row["ChargePeriodStart"] for row in rows(*usage)}
    assert {
        f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in table["ChargePeriodStart"].to_pylist()
    } == texts


def test_parquet_of_nothing_is_a_file(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_parquet([], tmp_path / "focus.parquet")
    assert parquet.read_table(tmp_path / "focus.parquet").num_rows == 0
