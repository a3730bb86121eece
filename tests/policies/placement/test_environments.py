"""The pools that offer a job's environment."""

import pytest

from federation.reasons import NEVER
from gateway.scheduler.model.intake import check_wishes, wishes_plain
from policies.placement import environments
from policies.placement.placement import CapacityOffer, Need, judge

IMAGE = "image:localhost/quant:1"
TABLE = [
    ("", {}, True),
    (IMAGE, {}, False),
    (IMAGE, {"environment:image:localhost/quant:*": True}, True),
    (IMAGE, {"environment:image:localhost/quant:1": True}, True),
    (IMAGE, {"environment:image:localhost/*": True, "linux": True}, True),
    (IMAGE, {"environment:image:quay.io/*": True}, False),
    (IMAGE, {"environment:packages:uv": True}, False),
    ("packages:uv", {"environment:packages:uv": True}, True),
    ("packages:uv", {"environment:packages:requirements": True}, False),
]


@pytest.mark.parametrize(("wanted", "tags", "is_offered"), TABLE)
def test_a_job_goes_where_its_environment_is_offered(wanted, tags, is_offered):
    need = Need({}, "3.11", None, wanted)
    refusal = judge(need, CapacityOffer("w", "local", tags, "3.11", "USD"))
    assert (refusal is None) == is_offered
    if refusal is not None:
        assert refusal.reason == "environment-missing"
        assert refusal.reason in NEVER


def test_an_image_has_its_own_python_and_packages_have_the_workers():
    tags = environments.tags_of(["localhost/*"], ["uv"])
    offer = CapacityOffer("w", "local", tags, "3.12", "USD")
    assert judge(Need({}, "3.11", None, IMAGE), offer) is None
    refusal = judge(Need({}, "3.11", None, "packages:uv"), offer)
    assert refusal is not None
    assert refusal.reason == "python-differs"


@pytest.mark.parametrize(
    ("image", "pattern", "is_meant"),
    [
        ("localhost/quant:1", "localhost/quant:*", True),
        ("localhost/quant:1", "localhost/*", True),
        ("localhost/a/quant:1", "localhost/*", False),
        ("localhost/a/quant:1", "localhost/**", True),
        ("localhost/quant:1", "localhost/**", True),
        ("localhost", "localhost/**", False),
        # A star means no other registry than the one before it.
        ("quant.evil.example/x", "quant*", False),
        ("registry.bank.evil.example/x", "registry.bank*", False),
        ("quant:1", "quant*", True),
        ("quay.io/x/y:1", "*", False),
        ("quay.io/x/y:1", "**", True),
        (f"localhost/quant@sha256:{'0a' * 32}", "localhost/quant@*", True),
    ],
)
def test_a_star_ends_at_a_slash(image, pattern, is_meant):
    assert environments.matches(image, pattern) == is_meant


def test_a_pattern_of_another_site_takes_no_time():
    pattern = "*a" * 70 + "/**"
    assert not environments.matches("a" * 139 + "b/x", pattern)


@pytest.mark.parametrize("wanted", ["", IMAGE, "packages:uv:" + "0a" * 32])
def test_a_contract_offers_what_it_is_for(wanted):
    need = Need({}, "3.11", None, environments.kind_of(wanted))
    tags = environments.tag_of(wanted)
    assert judge(need, CapacityOffer("paris/local", "paris/local", tags, "3.11", "USD")) is None


def test_a_refusal_says_what_there_is():
    tags = environments.tags_of([f"quay.io/{n}" for n in range(7)], [])
    text = environments.describe(IMAGE, tags)
    assert text.startswith("does not allow image localhost/quant:1, only quay.io/0, ")
    assert text.endswith(", …")
    assert environments.describe(IMAGE, {}).endswith("nor any other")


@pytest.mark.parametrize(
    "wish", [{"image": "localhost/quant:1"}, {"packages": "uv", "digest": "0a" * 32}]
)
def test_a_wish_travels_on_as_it_came(wish):
    wishes = check_wishes({"environment": wish})
    assert wishes_plain(wishes) == {"environment": wish}


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"image": ""},
        {"image": "--privileged"},
        {"image": "a", "gpu": True},
        {"packages": "conda", "digest": "0" * 64},
        {"packages": "uv", "digest": "0"},
        {"packages": "uv"},
        "localhost/quant:1",
        7,
    ],
)
def test_what_is_not_understood_is_not_ignored(wish):
    with pytest.raises(ValueError, match=r"unknown environment setting|is not a valid image"):
        check_wishes({"environment": wish})


def test_jobs_that_differ_in_packages_alone_are_judged_alike():
    assert environments.kind_of("packages:uv:" + "0" * 64) == "packages:uv"
    assert environments.kind_of(IMAGE) == IMAGE
