"""APEL's messages, read back as its loader reads them."""

from urllib.parse import unquote

from hypothesis import given, settings
from hypothesis import strategies as st
from support.exports import HOUR, SITE, hour, hours, run, runs

from gateway.ledger.exports import apel
from gateway.ledger.exports.benchmark import Benchmark

# What each message must have, and what is a whole number in it; apel/db/records.
JOB = {"Site", "LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime"}
SUMMARY = {"Site", "Month", "Year", "WallDuration", "CpuDuration", "NumberOfJobs"}
SYNC = {"Site", "NumberOfJobs", "Month", "Year"}
NUMBERS = {"WallDuration", "CpuDuration", "NodeCount", "MemoryReal", "Month", "Year"}
NUMBERS |= {"NumberOfJobs", "StartTime", "EndTime", "EarliestEndTime", "LatestEndTime"}


def read(text, header, needed):
    """As APEL's record factory does it."""
    first, *lines = text.strip().splitlines()
    assert first == header
    found = []
    for part in "\n".join(lines).split("%%"):
        if not part.strip():
            continue
        fields = {}
        for line in part.strip().splitlines():
            name, value = (each.strip() for each in line.split(":", 1))
            assert value.lower() not in ("", "none", "null")
            assert name not in fields
            fields[name] = int(value) if name in NUMBERS else unquote(value)
        assert needed <= set(fields)
        found.append(fields)
    return found


def jobs(*found, benchmark=None):
    return read("".join(apel.job_messages(SITE, found, benchmark)), apel.JOB_HEADER, JOB)


def summaries(*found, benchmark=None):
    text = "".join(apel.summary_messages(SITE, found, benchmark))
    return read(text, apel.SUMMARY_HEADER, SUMMARY)


def syncs(*found):
    return read("".join(apel.sync_messages(SITE, found)), apel.SYNC_HEADER, SYNC)


def test_a_job_message_has_all_that_is_known():
    assert jobs(run(group="desk"), benchmark=Benchmark("hepspec", "10.5")) == [
        {
            "Site": "london",
            "SubmitHost": "london",
            "MachineName": "london",
            "Queue": "local",
            "LocalJobId": "job-1/0/0",
            "LocalUserId": "ada",
            "GlobalUserName": "ada@london",
            "VO": "risk",
            "VOGroup": "desk",
            "WallDuration": 2,
            "CpuDuration": 1,
            "NodeCount": 1,
            "StartTime": 1_700_000_000,
            "EndTime": 1_700_000_001,
            "InfrastructureDescription": "GRIDFED",
            "InfrastructureType": "local",
            "MemoryReal": 1024,
            "ServiceLevelType": "hepspec",
            "ServiceLevel": "10.5",
        }
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(runs, max_size=4))
def test_any_name_can_stand_in_a_job_message(found):
    read_back = jobs(*found)
    assert len(read_back) == len(found)
    for fields, each in zip(read_back, found, strict=True):
        assert fields.get("LocalUserId", "") == each.user
        assert fields.get("VO", "") == each.project
        assert fields["LocalJobId"] == f"{each.job}/{each.first}/{each.attempt}"
        assert fields["EndTime"] >= fields["StartTime"]


def test_a_summary_is_of_a_month_a_user_and_a_project():
    november, december = HOUR, HOUR + 24 * 20
    found = summaries(
        hour(hour=november, pool="a", wall_ns=400_000_000),
        hour(hour=november + 2, pool="b", wall_ns=400_000_000),
        hour(hour=november + 2, pool="b", user="bob", origin="tokyo"),
        hour(hour=december),
    )
    short = [
        tuple(each[name] for name in ("Year", "Month", "GlobalUserName", "NumberOfJobs"))
        for each in found
    ]
    assert short == [
        (2023, 11, "ada@london", 4),
        (2023, 11, "bob@tokyo", 2),
        (2023, 12, "ada@london", 2),
    ]
    # Summed up, then rounded: not twice nothing.
    assert found[0]["WallDuration"] == 1
    assert found[0]["EarliestEndTime"] == november * 3600
    assert found[0]["LatestEndTime"] == (november + 3) * 3600 - 1
    assert [each["InfrastructureType"] for each in found] == ["local", "grid", "local"]


@settings(max_examples=100, deadline=None)
@given(st.lists(hours, max_size=6))
def test_summaries_and_syncs_count_every_run_once(found):
    found.sort(key=lambda each: each.hour)
    records = sum(each.records for each in found)
    assert sum(each["NumberOfJobs"] for each in summaries(*found)) == records
    assert sum(each["NumberOfJobs"] for each in syncs(*found)) == records
    keys = [
        tuple(each.get(name) for name in ("Site", "Year", "Month", "SubmitHost"))
        for each in syncs(*found)
    ]
    assert len(keys) == len(set(keys))
