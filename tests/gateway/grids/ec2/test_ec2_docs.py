"""docs/grids_ec2.md is true: each key, and each call that the gateway must be allowed."""

import json
import re
from pathlib import Path

from gateway.grids.ec2 import settings

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docs" / "grids_ec2.md").read_text()


def test_every_key_is_documented():
    rows = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert rows == set(settings._KEYS)


def test_the_policy_allows_each_call_that_is_made_and_no_other():
    [policy] = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    allowed = set()
    for statement in json.loads(policy)["Statement"]:
        actions = statement["Action"]
        allowed |= {actions} if isinstance(actions, str) else set(actions)
    calls = (ROOT / "gateway" / "grids" / "ec2" / "calls.py").read_text()
    made = set(re.findall(r'"((?:create|describe|delete|terminate|get)_\w+)"', calls))
    named = {f"ec2:{''.join(each.title() for each in call.split('_'))}" for call in made}
    named = (named - {"ec2:GetProducts"}) | {"pricing:GetProducts"}
    # A fleet runs instances in our name; its first one makes EC2's own roles.
    assert allowed == named | {"ec2:RunInstances", "iam:CreateServiceLinkedRole"}
