"""Usage records and CAR: their fields, in order, and that any name can stand there."""

import re
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exports import SITE, correction, run, runs

from gateway.ledger.exports import car, usage_record
from gateway.ledger.exports.benchmark import Benchmark, parse_benchmark

# The elements of a record in the order of the schema of GFD.98: name, and whether it must be there.
UR_ORDER = {
    "RecordIdentity": True,
    "JobIdentity": False,
    "UserIdentity": False,
    "JobName": False,
    "Charge": False,
    "Status": True,
    "Memory": False,
    **dict.fromkeys(("WallDuration", "CpuDuration", "EndTime", "StartTime"), True),
    **dict.fromkeys(("MachineName", "SubmitHost", "Queue", "ProjectName", "Host"), False),
    "Resource": False,
    "ConsumableResource": True,
}
# The same of CAR, as APEL and ARC write it; what must be there is what APEL's own sample has.
CAR_ORDER = {
    "RecordIdentity": True,
    "JobIdentity": True,
    "UserIdentity": True,
    "JobName": False,
    "Charge": False,
    "Status": True,
    "Infrastructure": True,
    "Middleware": False,
    "WallDuration": True,
    "CpuDuration": True,
    "ServiceLevel": True,
    "Memory": False,
    "NodeCount": False,
    "EndTime": True,
    "StartTime": True,
    "MachineName": True,
    "SubmitHost": False,
    "Queue": True,
    "Site": True,
    "Host": False,
}
HOST = r"([a-zA-Z0-9][a-zA-Z0-9'-]*[a-zA-Z0-9]\.)*([a-zA-Z0-9][a-zA-Z0-9'-]*[a-zA-Z0-9])?"
PATTERNS = {
    **dict.fromkeys(("WallDuration", "CpuDuration"), r"PT\d+(\.\d+)?S"),
    **dict.fromkeys(("EndTime", "StartTime"), r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    **dict.fromkeys(("Memory", "NodeCount"), r"[1-9]\d*"),
    "Charge": r"\d+(\.\d+)?",
    "Status": "completed|failed",
}
UR_PATTERNS = PATTERNS | dict.fromkeys(("MachineName", "SubmitHost", "Host"), HOST)


def parsed(module, lines):
    root = ElementTree.fromstring("".join(lines))
    space = f"{{{module.NAMESPACE}}}"
    assert root.tag == f"{space}UsageRecords"
    for each in root.iter():
        assert each.tag.startswith(space)
        assert all(name.startswith(space) for name in each.attrib)
        each.tag = each.tag.removeprefix(space)
        each.attrib = {name.removeprefix(space): text for name, text in each.attrib.items()}
    return list(root)


def usage_records(*found):
    return parsed(usage_record, usage_record.usage_records(SITE, found))


def cars(*found, benchmark=None):
    return parsed(car, car.computing_records(SITE, found, benchmark))


def check_structure(record, order, patterns):
    names = [each.tag for each in record]
    places = [list(order).index(name) for name in names]
    assert places == sorted(places)
    assert {name for name, is_needed in order.items() if is_needed} <= set(names)
    for each in record:
        assert re.fullmatch(patterns.get(each.tag, "(?s).*"), each.text or ""), each.tag


def test_a_usage_record_has_all_that_is_known():
    [record] = usage_records(run(group="desk", window="night", state="repeat"))
    identity = record.find("RecordIdentity").attrib
    assert identity["recordId"] == "urn:gridfed:london:job-1:0:0"
    assert identity["createTime"] == "2023-11-14T22:13:21Z"
    assert record.findtext("JobIdentity/GlobalJobId") == "job-1"
    assert record.findtext("JobIdentity/LocalJobId") == "job-1/0/0"
    assert record.findtext("UserIdentity/LocalUserId") == "ada"
    assert record.findtext("UserIdentity/GlobalUserName") == "ada@london"
    assert record.findtext("WallDuration") == "PT1.500000001S"
    assert record.findtext("CpuDuration") == "PT1.4S"
    assert record.findtext("StartTime") == "2023-11-14T22:13:20Z"
    charge = record.find("Charge")
    assert (charge.text, charge.attrib) == ("0.000016667", {"unit": "USD"})
    assert record.find("Status").attrib == {"description": "repeat"}
    resources = {each.get("description"): each.text for each in record.findall("Resource")}
    assert resources == {
        "group": "desk",
        "price class": "guaranteed",
        "tariff": "1",
        "window": "night",
    }
    assert record.findtext("ConsumableResource") == "10"


def test_a_car_says_whose_site_it_was_and_where_it_came_from():
    [record] = cars(run(origin="tokyo"), benchmark=Benchmark("hepspec", "10.5"))
    assert record.findtext("Site") == "london"
    assert record.findtext("SubmitHost") == "tokyo"
    assert record.findtext("UserIdentity/GlobalUserName") == "ada@tokyo"
    assert record.findtext("UserIdentity/Group") == "risk"
    assert record.find("Infrastructure").attrib == {"type": "grid", "description": "GRIDFED"}
    assert record.find("CpuDuration").attrib == {"usageType": "all"}
    level = record.find("ServiceLevel")
    assert (level.text, level.attrib) == ("10.5", {"type": "hepspec"})


def test_what_has_to_be_there_and_is_not_known_is_unknown():
    [record] = cars(run(user="", pool="", project="", worker=""))
    assert record.findtext("UserIdentity/LocalUserId") == "unknown"
    assert record.findtext("Queue") == "unknown"
    assert record.find("UserIdentity/Group") is None
    assert record.find("ServiceLevel").attrib == {"type": "custom"}


def test_the_fee_for_reserved_time_is_told_from_runs():
    [record] = usage_records(run(tasks=0, wall_ns=0, cpu_ns=0, name="reservation r-1, not used"))
    check_structure(record, UR_ORDER, UR_PATTERNS)
    assert record.find("Status").attrib == {"description": "not used"}
    assert record.findtext("ConsumableResource") == "0"


def test_a_refund_says_what_it_takes_back_and_is_no_run():
    back = correction(amount_nanos=1_500_000_000).refund
    [record], [other] = usage_records(back), cars(back)
    for each, order, patterns in ((record, UR_ORDER, UR_PATTERNS), (other, CAR_ORDER, PATTERNS)):
        check_structure(each, order, patterns | {"Charge": r"-\d+(\.\d+)?"})
        identity = each.find("RecordIdentity").attrib
        assert identity["recordId"] == "urn:gridfed:london:refund:sell%2Ftokyo-1-1%2F1%2F0"
        assert identity["createTime"] == "2023-11-14T22:15:00Z"
        assert each.findtext("JobIdentity/GlobalJobId") == "tokyo:job-1"
        assert each.findtext("JobIdentity/LocalJobId") == "sell/tokyo-1-1/1/0"
        assert each.findtext("Charge") == "-1.5"
        assert each.findtext("Status") == "completed"
        assert each.findtext("WallDuration") == each.findtext("CpuDuration") == "PT0S"
        assert (each.findtext("SubmitHost"), each.findtext("MachineName")) == ("tokyo", SITE)
    assert record.find("Status").attrib == {"description": "refund"}
    assert record.findtext("ConsumableResource") == "0"


def test_a_host_with_a_name_that_no_host_has_keeps_it_beside():
    [record] = usage_records(run(worker="node 1\n"))
    assert record.findtext("Host") == "node-1"
    assert record.find("Host").get("description") == "node 1%0A"


@settings(max_examples=150, deadline=None)
@given(st.lists(runs, max_size=3))
def test_any_name_can_stand_in_a_usage_record(found):
    records = usage_records(*found)
    assert len(records) == len(found)
    for record, each in zip(records, found, strict=True):
        check_structure(record, UR_ORDER, UR_PATTERNS)
        assert unquote(record.findtext("JobIdentity/GlobalJobId")) == each.job
        assert unquote(record.findtext("UserIdentity/LocalUserId", "")) == each.user
        assert unquote(record.findtext("ProjectName", "")) == each.project
        assert unquote(record.findtext("JobName", "")) == each.name


@settings(max_examples=150, deadline=None)
@given(st.lists(runs, max_size=3))
def test_any_name_can_stand_in_a_car(found):
    records = cars(*found)
    assert len(records) == len(found)
    for record, each in zip(records, found, strict=True):
        check_structure(record, CAR_ORDER, PATTERNS)
        assert unquote(record.findtext("UserIdentity/LocalUserId")) == (each.user or "unknown")
        assert unquote(record.findtext("Host", "")) == each.worker


@given(runs, runs)
def test_no_two_runs_have_one_record_id(one, other):
    records = usage_records(one, other)
    ids = {each.find("RecordIdentity").get("recordId") for each in records}
    keys = {(each.site, each.job, each.first, each.attempt) for each in (one, other)}
    assert len(ids) == len(keys)


def test_benchmarks_are_read_and_bad_ones_told():
    assert parse_benchmark("HEPscore23=1e1") == Benchmark("hepscore23", "10")
    for text in ("", "hepspec", "hepspec=x", "hepspec=0", "hepspec=nan", "speed=1", "hepspec=-1"):
        with pytest.raises(ValueError, match="use KIND=NUMBER"):
            parse_benchmark(text)
