"""Sites and pools as a gateway sees them: which of them take nothing new."""

from dataclasses import replace

from support.pure.market import NOW_S, make_advert, make_market, make_pool

from gateway.api.views.federation_views import pools, sites

DRAINING = make_pool(draining=True, slots_total=0, slots_free=0)


def test_a_site_that_drains_is_not_up_and_one_that_is_gone_is_gone():
    market = make_market(paris=DRAINING, rome=make_pool(), oslo=DRAINING)
    states = {"paris": "up", "rome": "up", "oslo": "gone"}
    own = replace(make_advert("london"), pools=(DRAINING,))
    shown = {
        row["site"]: (row["state"], row["draining"]) for row in sites(market, own, states, NOW_S)
    }
    assert shown == {
        "paris": ("draining", True),
        "rome": ("up", False),
        "oslo": ("gone", True),
        "london": ("here", True),
    }
    shown = {
        row["site"]: (row["state"], row["draining"]) for row in pools(market, own, states, NOW_S)
    }
    assert shown["paris"] == ("draining", True)
    assert shown["rome"] == ("up", False)
    assert shown["london"] == ("here", True)


def test_a_site_that_has_expelled_ours_is_named_so():
    market, own = make_market(paris=make_pool()), make_advert("london")
    found = sites(market, own, {"paris": "gone"}, NOW_S, {"paris": "too loud"})
    assert {row["site"]: row["has_expelled_us"] for row in found} == {
        "paris": True,
        "london": False,
    }
