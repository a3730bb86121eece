"""[pool.environments]: read, bounded, and handed to an agent."""

import pytest

from gateway.base.values import SettingError
from gateway.config.environments import RISK, EnvironmentRules, read_rules, rules_from_json

GOOD = {
    "images": ["localhost/quant:*"],
    "runtimes": ["docker"],
    "pull": "missing",
    "network": "host",
    "cpus": 2,
    "pids_max": 100,
    "tmp_bytes": 1 << 20,
    "image_python": "/opt/bin/python3.11",
    "packages": True,
    "wheels_only": True,
    "index": "https://pypi.example/simple",
    "links": "/srv/wheels",
    "build_s": 10,
    "cache": "/var/cache",
    "kept_max": 3,
    "sandbox": "image",
    "sandbox_image": "localhost/base:1",
    "build": {"localhost/quant:1": "/srv/quant"},
}
ACCEPTED = {"sandbox": "none", "accept_risk": RISK}


def test_all_that_can_be_said_is_read_and_reaches_the_agent():
    rules = read_rules(GOOD)
    assert {*GOOD, *ACCEPTED} == set(EnvironmentRules.__slots__)
    assert rules.images == ("localhost/quant:*",)
    assert rules_from_json(rules.to_json()) == rules
    assert read_rules({}) == EnvironmentRules(sandbox="auto")
    accepted = read_rules(ACCEPTED)
    assert rules_from_json(accepted.to_json()) == accepted


@pytest.mark.parametrize(
    ("table", "sandbox", "takes_others"),
    [
        ({}, "auto", True),
        ({"sandbox": "none"}, "none", False),
        (ACCEPTED, "none", True),
        ({"sandbox": "user"}, "user", True),
        ({"sandbox": "bubblewrap"}, "bubblewrap", True),
        ({"packages": True, "wheels_only": False}, "none", False),
    ],
)
def test_others_work_is_shut_in_or_the_risk_is_accepted_in_words(table, sandbox, takes_others):
    rules = read_rules(table)
    assert (rules.sandbox, rules.takes_others) == (sandbox, takes_others)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], "must be a table"),
        ({"image": "x"}, "unknown key 'image'"),
        ({"images": "localhost/*"}, "images must be a list"),
        ({"images": ["a,b"]}, "is not an image name"),
        ({"images": ["a=b"]}, "is not an image name"),
        ({"images": ["x"] * 17}, "at most 16"),
        ({"images": [3]}, "images must be text"),
        ({"pull": "sometimes"}, "pull is 'sometimes': it must be one of never, missing, always"),
        ({"network": True}, "network is True"),
        ({"sandbox": "docker"}, "sandbox is 'docker'"),
        ({"sandbox": "none", "accept_risk": "yes"}, f'must be the words "{RISK}"'),
        ({"sandbox": "none", "accept_risk": True}, "accept_risk must be text"),
        ({"accept_risk": RISK}, 'accept_risk needs sandbox = "none"'),
        ({"sandbox": "bubblewrap", "accept_risk": RISK}, 'accept_risk needs sandbox = "none"'),
        ({"sandbox": "image"}, "needs a sandbox_image"),
        ({"sandbox": "image", "sandbox_image": "-v"}, "sandbox_image: "),
        ({"sandbox_image": "localhost/a"}, "sandbox_image needs"),
        (
            {"sandbox": "bubblewrap", "packages": True, "wheels_only": False},
            "would be built outside of it",
        ),
        ({"runtimes": ["runc"]}, "runtimes is 'runc'"),
        ({"runtimes": [], "images": ["a"]}, "runtimes must name"),
        ({"cpus": 0}, "cpus is 0"),
        ({"pids_max": 1.5}, "pids_max"),
        ({"pids_max": 1}, "pids_max is 1"),
        ({"tmp_bytes": 1}, "tmp_bytes is 1"),
        ({"packages": 1}, "packages must be true or false"),
        ({"index": "ftp://x"}, "index is 'ftp://x'"),
        ({"index": "https://me:secret@pypi.example/simple"}, "contains a user or a password"),
        ({"links": "wheels"}, "links is 'wheels': it must be an absolute path"),
        ({"cache": "./x"}, "cache is './x'"),
        ({"build": {"localhost/a": "here"}}, "build: 'here'"),
        ({"build": {"-v": "/srv"}}, "build: "),
        ({"build": ["/srv"]}, "build must be a table"),
        ({"image_python": ""}, "image_python must name"),
        ({"image_python": "a\nb"}, "has unprintable characters"),
    ],
)
def test_what_is_wrong_is_named(wrong, said):
    with pytest.raises(SettingError) as caught:
        read_rules(wrong)
    assert said in str(caught.value)
