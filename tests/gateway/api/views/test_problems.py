"""The problems of a site are told in sentences, each with a code and with a remedy."""

from dataclasses import replace

import pytest
from support.desk import counter_of

from gateway.api.problems_desk import find_problems
from gateway.api.views import problems
from gateway.checking.kept import KeptFindings
from gateway.config.pools import PoolConfig
from gateway.ledger.db.contracts.records import UnsettledDeliveries
from gateway.scheduler.model import events
from policies.placement.brokering import BackoffEnd
from policies.tariffs import Tariff

FINE = {"pool": "hpc", "trouble": "", "barred": "", "failures": 0, "failed": ""}


def told(found):
    return [(each.code, each.subject, each.text) for each in found]


def test_nothing_is_told_where_nothing_is_wrong():
    assert told(problems.of_database("")) == []
    assert told(problems.of_growing_pool(FINE)) == []
    assert told(problems.of_own_pools({"local": "local", "far": "remote"}, {"local": 1}, {})) == []
    assert told(problems.of_partners({"paris": "up"}, ["paris"], {}, 0.0, {"paris": "over"})) == []
    assert told(problems.of_books([], [])) == []
    assert told(problems.of_keys("none", [])) == []


async def test_a_site_and_a_pool_that_an_operator_has_drained_are_told(tmp_path):
    async with counter_of(tmp_path) as counter:
        site = counter.site
        pool = "local"
        site.broker.tariffs[pool] = Tariff(40_000_000, "USD", "1")
        for handle in (71, 72):
            site.broker.handle(events.WorkerJoined(handle, f"w{handle}", pool, 1, {}, "3.11"), 0.0)

        async def found():
            rows = await find_problems(site, KeptFindings(), is_for_all=False)
            return {each.code: each.text for each in rows if "drained" in each.code}

        site.broker.handle(events.DrainAsked(71, True), 0.0)
        assert await found() == {}  # the other one works
        site.broker.handle(events.DrainAsked(72, True), 0.0)
        [(code, text)] = (await found()).items()
        assert code == "pool-drained"
        assert text.startswith(f"pool {pool} takes nothing new, as all its 2 workers drain by ")
        site.broker.handle(events.DrainAsked(0, True), 0.0)
        assert "`gridfed drain --all --resume` ends it" in (await found())["site-drained"]


def test_the_only_worker_is_named_with_the_command_that_resumes_it():
    [(_, subject, text)] = told(problems.of_drains({"risk": ["risk-1"]}, is_whole_site=False))
    assert subject == "pool risk"
    assert text.startswith("pool risk takes nothing new, as its only worker, risk-1, drains by")
    assert "`gridfed drain risk-1 --resume` ends it" in text


def test_database_trouble_is_told():
    [(code, _, text)] = told(problems.of_database("disk full"))
    assert code == "database"
    assert text.startswith("the database can't be written: disk full; ")


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"trouble": "slurmctld is down"}, "grid-unreachable",
         "the grid of pool hpc can't be asked: slurmctld is down; check that it runs, "
         "with `gridfed pool test hpc`"),
        ({"barred": "no partition", "failures": 3}, "starts-refused",
         "the grid refuses the pilots of pool hpc, so none is started: no partition; fix the"),
        ({"failures": 3, "failed": "timed out"}, "starts-fail",
         "3 starts in a row failed in pool hpc, the last: timed out; try again "
         "with `gridfed pool test hpc`"),
    ],
)  # fmt: skip
def test_the_troubles_of_a_growing_pool_are_told(change, code, text):
    [(found, subject, said)] = told(problems.of_growing_pool(FINE | change))
    assert (found, subject) == (code, "pool hpc")
    assert said.startswith(text)


def test_a_partner_that_has_expelled_us_is_told_as_that():
    [(code, subject, text)] = told(
        problems.of_partners({"paris": "gone"}, ["paris"], {}, 0.0, {}, {"paris": "too loud"})
    )
    assert (code, subject) == ("partner-unreachable", "paris")
    assert text.startswith("this site is expelled by paris (too loud): paris takes no work of ours")
    assert "does not answer" not in text


def test_a_partner_that_was_never_met_may_not_have_approved_us():
    found = problems.of_partners({"rome": "gone"}, ["paris", "rome"], {}, 0.0, {}, us="london")
    [(code, subject, text), (_, _, gone)] = told(found)
    assert (code, subject) == ("partner-unreachable", "paris")
    assert text.startswith(
        "paris has not connected yet: it may not have approved this site (`gridfed approve "
        "london FINGERPRINT` there), or its gateway does not run"
    )
    assert gone.startswith("rome is gone: its gateway does not answer; ")


def test_a_partner_is_told_that_is_gone_or_in_back_off():
    states = {"paris": "suspect", "rome": "up", "oslo": "up"}
    site_backoff = {
        "paris": BackoffEnd(50.0, "can't be reached"),
        "rome": BackoffEnd(50.0, "declined (credit-limit: owes too much)"),
        "oslo": BackoffEnd(5.0, "declined"),
        "lyon": BackoffEnd(50.0, "declined"),  # no partner any more
    }
    partners = ["rome", "paris", "oslo", "new", "old"]
    keys = {"old": "old shows a TLS leaf that is not on its card"}
    found = told(problems.of_partners(states, partners, site_backoff, 10.5, keys))
    assert found[1] == ("partner-keys", "old", keys["old"])
    assert [each[:2] for each in found if each[0] != "partner-keys"] == [
        ("partner-unreachable", "new"),
        ("partner-unreachable", "paris"),
        ("partner-back-off", "rome"),
    ]
    assert found[3][2].startswith(
        "rome declined (credit-limit: owes too much): in back-off for 40 s more; "
    )


def waiting(side, site, records):
    return UnsettledDeliveries(site, side, records)


def test_deliveries_without_a_verdict_are_told_by_partner():
    rows = [waiting("sell", "paris", 5), waiting("buy", "paris", 1)]
    found = told(problems.of_books(["rome has newer books: restore"], rows))
    assert found[0] == ("books-older", "rome", "rome has newer books: restore")
    assert [each[2].partition(" had ")[0] for each in found[1:]] == [
        "1 delivery from paris",
        "5 deliveries to paris",
    ]


def test_what_is_not_counted_to_the_end_says_so():
    rows = [waiting("buy", "paris", problems.UNSETTLED_MAX - 1), waiting("buy", "rome", 1)]
    [paris, rome] = told(problems.of_books([], rows))
    assert paris[2].startswith("at least 9,999 deliveries from paris had no verdict")
    assert rome[2].startswith("at least 1 delivery from rome had no verdict")


def test_keys_in_rotation_are_told_with_the_sites_that_are_awaited():
    [(code, _, text)] = told(problems.of_keys("spreading", ["paris", "rome"]))
    assert code == "keys-rotating"
    assert "are in rotation (spreading), waiting for paris, rome:" in text


async def test_the_status_of_a_site_lists_its_problems(tmp_path):
    async with counter_of(tmp_path) as counter:
        assert (await counter.ask("status", home=True)).value["problems"] == []
        counter.site.config = replace(
            counter.site.config,
            pools=(PoolConfig("here", "local", 2),),
            tls_certificate_file=str(tmp_path / "gone.pem"),
        )
        counter.site.broker.trouble = "disk full"
        found = (await counter.ask("status", home=True)).value["problems"]
        assert [(each["code"], each["subject"]) for each in found] == [
            ("database", "database"),
            ("no-worker", "pool here"),
            ("tls-file", "[site] tls_certificate_file"),
        ]
        of_users = await find_problems(counter.site, KeptFindings(), is_for_all=False)
        assert [each.code for each in of_users] == ["database", "no-worker"]
