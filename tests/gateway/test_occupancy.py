"""Whose work may have how much of a pool: of many people, who are of few kinds."""

from gateway import occupancy
from gateway.occupancy import Pool
from policies.claims import NOTHING, Amount, Claim, Claims
from policies.hours import Hours
from policies.parties import OTHERS, Whose, read_party
from policies.windows import Plan, Window, closings, rules_at

NOON = 12 * 3600.0
NIGHT = Claims((Claim(read_party("project:risk")), Claim(OTHERS, borrows=NOTHING)))
PLAN = Plan(
    (Window("night", Hours(17 * 3600, 23 * 3600), NIGHT),),
    Claims((Claim(OTHERS, borrows=Amount(3)),)),
)


def counted(monkeypatch):
    asked = []

    def closings_(*details):
        asked.append(details)
        return closings(*details)

    monkeypatch.setattr(occupancy, "closings", closings_)
    return asked


def test_however_many_users_another_site_makes_up_is_looked_at_once(monkeypatch):
    """Ten thousand of them took ten seconds, each time that a worker came or went."""
    asked = counted(monkeypatch)
    pool = Pool(rules_at(PLAN, NOON))
    users = [Whose(f"u{at}@paris", "", ("fx", "risk")[at % 2], "paris") for at in range(20_000)]
    for total in (10, 11):
        pool.size(total)
        for whose in users:
            assert pool.claim(whose) == 0
            assert (pool.closing(whose, 0) is None) == (whose.project == "risk")
    assert len(asked) == 2 * 2
    assert len(pool.examples) == 2


def test_an_example_of_each_kind_is_known_however_many_there_are(monkeypatch):
    monkeypatch.setattr(occupancy, "WHOSE_MAX", 3)
    pool = Pool(rules_at(PLAN, NOON))
    for at in range(10):
        pool.claim(Whose(f"u{at}"))
    pool.claim(Whose("ada@paris", site="paris"))
    assert {each.site for each in pool.examples.values()} == {"", "paris"}
