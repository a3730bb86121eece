"""Rules about places: the work they bind, and the places they allow together."""

from policies.access.residency import ANYWHERE, Residence, ResidencyRule, residence_of
from policies.parties import Owner, read_party

ANN = Owner("ann", project="risk")


def rule(who="project:risk", **places):
    named = {key: frozenset(names) for key, names in places.items()}
    return ResidencyRule((read_party(who),), **named)


def test_all_rules_that_bind_work_hold_together():
    rules = [
        rule(sites=["london", "paris"], not_sites=["rome"]),
        rule("user:ann", sites=["paris", "rome"], jurisdictions=["EU"]),
        rule("user:bob", sites=[]),
    ]
    found = residence_of(rules, ANN, frozenset())
    assert (found.sites, found.not_sites) == ({"paris"}, {"rome"})
    assert found.jurisdictions == {"EU"}
    assert found.rules == tuple(rules[:2])


def test_a_rule_about_data_binds_work_with_that_data_alone():
    rules = [rule("all", data=["personal"], jurisdictions=["EU"])]
    assert residence_of(rules, ANN, frozenset()) == ANYWHERE
    assert residence_of(rules, ANN, frozenset({"market"})) == ANYWHERE
    bound = residence_of(rules, ANN, frozenset({"market", "personal"}))
    assert bound == Residence(jurisdictions=frozenset({"EU"}), rules=tuple(rules))


def test_rules_that_share_no_place_leave_none():
    found = residence_of([rule(sites=["london"]), rule(sites=["paris"])], ANN, frozenset())
    assert found.sites == frozenset()
