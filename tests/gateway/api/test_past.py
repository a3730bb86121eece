"""Why an ended job ran where it ran, by the rules as they were then."""

import pytest

from gateway.api.past import PastJob, claim_text, explain_past
from gateway.config.site import check, load
from gateway.ledger.db.contracts.records import ContractRow
from gateway.ledger.db.usage.records import JobPlace
from policies.access.claims import REST
from policies.parties import Owner

MONDAY_S = 1_795_447_800.0  # 2026-11-23 15:30 UTC
EVENING_S = MONDAY_S + 3 * 3600.0
ANN = PastJob(
    "j", "done", "", Owner("ann", "quants", "risk", more_groups=frozenset({"prod"})), 1.0,
    frozenset(),
)  # fmt: skip
FILE = """\
[site]
name = "london"

[groups]
quants = ["ann"]
prod = ["ann"]

[[entitlement]]
allow = "group:prod"
priority_max = 5

[[residency]]
who = "project:risk"
jurisdictions = ["UK"]

[[residency]]
who = "ours"
data = ["personal"]
home = true

[[pool]]
name = "hpc"
price = "0.04 USD"
claims = [ { who = "project:fx", guaranteed = 2 } ]

[[pool.window]]
name = "eod"
days = "mon"
from = "18:00"
to = "20:00"
claims = [ { who = "group:prod", guaranteed = "80%", lends = 0, borrows = "10%" } ]

[[pool]]
name = "cloud"
price = "0.09 USD"

[[pool]]
name = "euro"
price = "0.01 EUR"
"""


def ran(pool="hpc", at_s=MONDAY_S, **more):
    terms = {"window": "", "tariff": "hpc@1", "price_class": "guaranteed", "price_nanos": 4 * 10**7}
    terms |= {"list_price_nanos": 4 * 10**7, "currency": "USD", "group": "quants", "rules": 7}
    sums = {"tasks": 3, "wall_ns": 10**9, "cost_nanos": 10**6}
    return JobPlace(pool, **terms | sums | more, first_at_s=at_s, last_at_s=at_s + 60.0)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(FILE)
    return check(load(str(path)), MONDAY_S)


def why(config, place, job=ANN):
    [row] = explain_past(job, [place], [], {7: config})["past"]
    return row["why"]


def test_the_rules_of_the_time_are_told(config):
    window, entitlement, *others = why(config, ran(at_s=EVENING_S))
    assert window == (
        "window 'eod' was open: it was under the claim of group:prod: guaranteed 80%, of which it "
        "lends 0, borrows at most 10%"
    )
    assert entitlement.startswith("an [[entitlement]] was about it: allows group:prod")
    assert others == [
        "a [[residency]] bound it: project:risk; jurisdictions UK",
        "a slot-hour of hpc cost 0.04 USD, tariff hpc@1",
        "list prices of this site's other pools then: cloud 0.09 USD",
    ]


def test_outside_of_windows_the_claims_of_the_pool_are_told(config):
    assert why(config, ran())[0] == f"no window was open: {claim_text(REST)}"
    fx = ANN._replace(whose=Owner("bob", "", "fx"))
    assert why(config, ran(), fx)[0] == (
        "no window was open: it was under the claim of project:fx: guaranteed 2"
    )


def test_a_residency_of_data_is_told_if_the_job_has_such_data(config):
    texts = why(config, ran(), ANN._replace(data=frozenset({"personal"})))
    assert "a [[residency]] bound it: ours; data personal; sites london" in texts


def test_what_was_bought_is_told_with_its_price_and_contract(config):
    contract = ContractRow("london-1-1", "buy", "paris", "j", "fast", 2, 10**7, "USD", 30.0, 5.0)
    place = ran("paris/fast", tariff="fast@9", price_nanos=10**7, list_price_nanos=10**7)
    found = explain_past(ANN, [place], [contract], {7: config})
    [row] = found["past"]
    assert (row["site"], row["pool"]) == ("paris", "fast")
    assert "it was bought there for 0.01 USD per slot-hour, tariff fast@9" in row["why"]
    assert row["why"][-1] == (
        "list prices of this site's other pools then: hpc 0.04 USD, cloud 0.09 USD"
    )
    assert [each["contract"] for each in found["contracts"]] == ["london-1-1"]


def test_a_discount_and_the_window_of_a_tariff_are_told(config):
    place = ran(window="night", price_nanos=2 * 10**7)
    assert (
        "a slot-hour of hpc cost 0.02 USD, tariff hpc@1, its window 'night'; the list price then "
        "was 0.04 USD"
    ) in why(config, place)


def test_what_is_not_known_is_said(config):
    assert why(config, ran("gone")) == [
        "pool gone is not in the present configuration: its rules are not shown"
    ]
    [row] = explain_past(ANN, [ran(rules=0)], [], {})["past"]
    assert row["why"] == []
    assert "can't be applied" in row["rules_unknown"]
    found = explain_past(ANN._replace(state="cancelled", reason="by ann"), [], [], {})
    assert found["text"] == (
        "job j has ended (cancelled: by ann): the books record no run of its tasks"
    )


def test_a_job_whose_tasks_failed_is_not_told_as_done():
    failed = ANN._replace(state="partly failed", done=3, failed=1, first_error="ValueError: no vol")
    found = explain_past(failed, [], [], {})
    assert found["text"] == (
        "job j has ended (partly failed: 1 of 4 tasks failed, the first with ValueError: no vol): "
        "the books record no run of its tasks"
    )
    assert found["state"] == "partly failed"
    assert failed._replace(failed=1, first_error="").end == "partly failed: 1 of 4 tasks failed"
    assert ANN._replace(state="cancelled", reason="on request").end == "cancelled: on request"
    by_root = "cancelled by root, the operator"
    assert ANN._replace(state="cancelled", reason=by_root).end == by_root
