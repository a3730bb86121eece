"""Budgets of real gateways: concurrent spending, kills, credit, and the texts that people see."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from click.testing import CliRunner
from support.answers import answer
from support.command import quick
from support.members import MemberSite, federate
from support.processes import wait_until

from federation.errors import CostLimitReached, JobRefused, TaskTimeout
from gateway.cli.main import cli

pytestmark = pytest.mark.real

# A slot-second costs a unit.
PRICE = "3600 USD"
UNIT = 10**9
TASK_S, LIMIT_S = 0.02, 0.5
# What is held for a task: its time limit, and a second that stopping it may take.
BOUND = 1.5 * UNIT


def work(seconds):
    time.sleep(seconds)
    return seconds


def gridfed(site, *arguments, code=0):
    return quick(*arguments, "--gateway", site.address, code=code)


def budget_of(site):
    (found,) = answer(gridfed(site, "budgets", "--json"))
    return found


def spent(site):
    """The cost of the work of a site's own users, by its books."""
    report = answer(gridfed(site, "report", "cost", "--by", "user", "--json"))
    return sum(int(row["cost_nanos"]) for row in report["rows"])


def spend(site, tasks, **options):
    """Submit so many tasks at once: how many were not refused.

    Some of these may have been too slow for their limit: the host may be busy.
    """
    with site.client() as client:
        view = client.options(project="risk", timeout_s=LIMIT_S, **options)
        futures = [view.submit(work, TASK_S) for _ in range(tasks)]
        wait(futures, timeout=300)
        errors = [each.exception(0) for each in futures]
    failed = {type(each) for each in errors if each is not None}
    assert failed <= {CostLimitReached, JobRefused, TaskTimeout}, errors
    return sum(each is None or isinstance(each, TaskTimeout) for each in errors)


COMMON = """
[[budget]]
name = "risk"
who = "project:risk"
period = "year"
zone = "Europe/London"
waiting = "end"
"""


def own(amount, *sites):
    return f'{COMMON}amount = "{amount} USD"\nsites = {json.dumps(sites)}\nslice_s = 2.0\n'


SLICE = f'{COMMON}owner = "london"\nslice = "4 USD"\n'


def test_what_is_beyond_a_budget_is_refused_with_the_figure_also_after_a_kill(make_site):
    pool = f'[[pool]]\nname = "local"\nprice = "{PRICE}"\n'
    budget = COMMON + 'amount = "4 USD"\n'
    site = make_site(2, config=budget + pool)
    table = gridfed(site, "budgets")
    assert "project:risk" in table
    assert "4.00 USD" in table
    done = spend(site, 400)
    assert 5 < done < 400
    found = budget_of(site)
    assert found["spent_nanos"] == spent(site) <= 4 * UNIT
    assert found["held_nanos"] == 0
    assert found["left_nanos"] < BOUND, "as much as no further task may need"
    with site.client() as client:
        said = r"\(project:risk\) has too little left for a task: .* USD of 4 USD is spent in 20"
        with pytest.raises(JobRefused, match=said) as refused:
            client.options(project="risk", timeout_s=LIMIT_S).submit(work, TASK_S).result(200)
        assert refused.value.code == "budget-exhausted"
        assert "the next period begins" in str(refused.value)
        assert client.options(project="other").submit(work, TASK_S).result(200) == TASK_S
    text = gridfed(site, "explain", "--project", "risk", "--tasks", "9")
    assert "it would be refused: the budget 'risk'" in text
    site.kill()
    site.start()
    assert budget_of(site)["spent_nanos"] == found["spent_nanos"]


@pytest.mark.slow
def test_a_job_that_waits_for_its_budget_says_so_and_is_stopped_by_it(make_site):
    pool = f'[[pool]]\nname = "local"\nprice = "{PRICE}"\n'
    rules = 'amount = "2.5 USD"\nrunning = "stop"\nunknown_s = 1.5\n'
    site = make_site(4, config=COMMON.replace('"end"', '"wait"') + rules + pool)
    with site.client() as client:
        view = client.options(project="risk")
        job = view.submit_job(work, [60.0, 60.0])

        def why():
            return client.ask("job", job=job.id).get("why_waiting", [])

        # Of 1.5 USD at first; more is held for what runs longer.
        said = re.compile("[1-9][0-9.]* USD is held for running work")
        wait_until(lambda: any(said.search(each["text"]) for each in why()), "the reason")
        assert "paid from risk (project:risk): the budget" in gridfed(site, "explain", job.id)
        wait_until(lambda: client.ask("job", job=job.id)["failed"] == 1, "that it is stopped")
        wait_until(lambda: budget_of(site)["held_nanos"] == 0, "that nothing runs")
        gridfed(site, "cancel", job.id)
    assert UNIT < spent(site) < 8 * UNIT, "as much as it takes to notice"
    said = "budget: the budget 'risk' (project:risk) is exhausted"
    wait_until(lambda: said in site.gateway.text(), "that the log says so")


@pytest.fixture
def members(tmp_path):
    made = []

    def make(**configs):
        for name, (slots, extra) in configs.items():
            made.append(MemberSite(tmp_path, name, slots, PRICE, extra))
        federate(*made)
        return made

    yield make
    for each in made:
        each.gateway.stop()


@pytest.mark.thorough
def test_two_gateways_spend_one_budget_at_once_and_never_more(members):
    london, paris = members(london=(2, own(18, "paris")), paris=(2, SLICE))
    assert spend(paris, 5) == 5, "it has a slice before all is spent"
    with ThreadPoolExecutor(2) as both:
        counts = list(both.map(lambda site: spend(site, 900), (london, paris)))
    costs = [spent(london), spent(paris)]
    assert all(count > 20 for count in counts), counts
    assert sum(costs) <= 18 * UNIT, costs
    assert sum(costs) > 12 * UNIT, "most of it was spent"
    ours, theirs = budget_of(london), budget_of(paris)
    assert (ours["kind"], theirs["kind"]) == ("budget", "slice")
    assert ours["spent_nanos"] == costs[0]
    assert theirs["spent_nanos"] == costs[1]
    [row] = ours["sites"]
    assert row["site"] == "paris"
    assert row["spent_nanos"] + row["unspent_nanos"] + costs[0] <= 18 * UNIT
    assert "slice from london" in gridfed(paris, "budgets")
    assert "paris holds" in gridfed(london, "budgets")
    # What a site does not use any more comes back.
    wait_until(lambda: budget_of(london)["leased_nanos"] == 0, "that the slice came back")
    assert budget_of(london)["spent_elsewhere_nanos"] == costs[1]


@pytest.mark.thorough
def test_a_site_that_is_killed_with_a_slice_keeps_it_until_it_is_back(members):
    extras = {"paris": (1, SLICE), "lyon": (1, SLICE)}
    london, paris, lyon = members(london=(1, own(11, "paris", "lyon")), **extras)
    assert spend(lyon, 5) == 5
    before = budget_of(lyon)
    assert before["amount_nanos"] > before["spent_nanos"], "it holds more than it has spent"
    lyon.gateway.kill()
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda site: spend(site, 900), (london, paris)))
    of_lyon = {row["site"]: row for row in budget_of(london)["sites"]}["lyon"]
    assert of_lyon["unspent_nanos"] > 0
    assert spent(london) + spent(paris) + before["amount_nanos"] <= 11 * UNIT
    # It takes its operator's word, or its own, to free that.
    lyon.start()
    assert budget_of(lyon)["spent_nanos"] == before["spent_nanos"]

    def is_free():
        rows = {row["site"]: row for row in budget_of(london)["sites"]}
        return rows["lyon"]["unspent_nanos"] == 0

    wait_until(is_free, "that it gave back what it has not spent")
    rows = {row["site"]: row for row in budget_of(london)["sites"]}
    assert rows["lyon"]["spent_nanos"] == before["spent_nanos"]
    paris.gateway.kill()
    wait_until(lambda: _is_written_off(london), "that it was silent for long enough")
    assert budget_of(london)["leased_nanos"] == 0


def _is_written_off(london):
    """Try, as an operator would; whether there is nothing of Paris' any more."""
    rows = {row["site"]: row for row in budget_of(london)["sites"]}
    if not rows["paris"]["unspent_nanos"]:
        return True
    result = CliRunner().invoke(
        cli, ["budgets", "write-off", "risk", "paris", "--yes", "--gateway", london.address]
    )
    assert result.exit_code == 0 or "was heard" in result.stderr
    return result.exit_code == 0


@pytest.mark.thorough
def test_a_site_that_owes_all_that_it_may_gets_no_more_until_it_has_paid(members):
    # London has no slots of its own to speak of, and Paris gives it little credit.
    london, paris = members(london=(1, ""), paris=(2, '\n[credit]\nlondon = "6 USD"\n'))
    with london.client() as client:
        view = client.options(project="risk", timeout_s=LIMIT_S, sites=["paris"])
        futures = [view.submit(work, TASK_S) for _ in range(900)]

        def owed():
            listed = answer(gridfed(paris, "budgets", "--json"))
            return sum(each["spent_nanos"] for each in listed)  # none before the first purchase

        wait_until(lambda: owed() > 6 * UNIT - BOUND, "that its credit is used up")
        assert owed() <= 6 * UNIT
        found = budget_of(paris)
        assert (found["kind"], found["whose"], found["amount"]) == (
            "credit",
            "site:london",
            "6 USD",
        )
        done = sum(each.done() for each in futures)
        assert 0 < done < 900

        def is_declined():
            return "london owes" in str(client.ask("explain", project="risk")["refused"])

        wait_until(is_declined, "that explain says why")
        unsure = CliRunner().invoke(
            cli,
            [
                "settle",
                "london",
                "--received",
                "4 USD",
                "--reference=r1",
                "--gateway",
                paris.address,
            ],
        )
        assert (unsure.exit_code, "now london owes us" in unsure.stderr) == (2, True)
        gridfed(paris, "settle", "london", "--yes", "--received", "4 USD", "--reference", "r1")
        wait_until(lambda: sum(each.done() for each in futures) > done, "that it goes on")
        for each in futures:
            each.cancel()
    assert owed() <= 6 * UNIT
