"""Webhooks, against a real server."""

import pytest
from support.alerts import WebhookServer
from support.processes import make_certificate

from gateway.alerts.actions import ActionFailed, Webhook, body_of
from gateway.config.alerts import AlertPace
from policies.costs.alerts import AlertBudget, sample

pytestmark = pytest.mark.real

PACE = AlertPace(webhook_timeout_s=30.0)
BODY = body_of(sample(AlertBudget("desk", 10**9, "USD"), 1.0), "london\x1b", is_test=True)


async def test_the_body_is_posted_as_it_is_documented(door):
    await Webhook(f"{door.url}/hook?key=s3", PACE).run(BODY)
    assert door.paths == ["/hook?key=s3"]
    assert door.bodies == [
        {
            "gridfed_alert": 1,
            "test": True,
            "site": "london\\x1b",
            "name": "desk",
            "kind": "budget",
            "severity": "warning",
            "key": "test",
            "level": 0,
            "at": "1970-01-01T00:00:01Z",
            "text": "test of the alert desk: nothing has happened",
            "facts": {},
        }
    ]


@pytest.mark.parametrize(
    ("answer", "said", "again"),
    [
        (500, "HTTP status 500", True),
        (429, "HTTP status 429", True),
        (404, "HTTP status 404, not 2xx", False),
        (302, "HTTP status 302, a redirect, which is not followed", False),
        ("hang-up", "unreachable", True),
    ],
)
async def test_what_is_no_success_is_a_failure(door, answer, said, again):
    door.answers.append(answer)
    with pytest.raises(ActionFailed, match=said) as caught:
        await Webhook(f"{door.url}/secret-path", PACE).run(BODY)
    assert caught.value.again is again
    assert "secret-path" not in str(caught.value)
    assert door.paths == ["/secret-path"]  # and nothing that it was sent on to


async def test_a_slow_answer_is_given_up(door):
    door.answers.append("slow")
    with pytest.raises(ActionFailed, match=r"timed out after 0\.5 s"):
        await Webhook(door.url, AlertPace(webhook_timeout_s=0.5)).run(BODY)


async def test_a_dead_address_is_a_failure_that_may_pass(dead_url):
    with pytest.raises(ActionFailed, match="unreachable") as caught:
        await Webhook(dead_url, PACE).run(BODY)
    assert caught.value.again


@pytest.mark.parametrize("url", ["http://a..b/secret-path", "http://[::1/", "http://\udc80/"])
async def test_an_address_that_cannot_be_used_is_given_up_at_once(url):
    webhook = Webhook(url, PACE)
    with pytest.raises(ActionFailed) as caught:
        await webhook.run(BODY)
    assert "secret-path" not in str(caught.value)


async def test_a_certificate_is_believed_only_if_its_authority_is(tmp_path):
    both, alone = make_certificate(tmp_path)
    door = WebhookServer(both)
    try:
        with pytest.raises(ActionFailed, match=r"unreachable .*CERTIFICATE"):
            await Webhook(door.url, PACE).run(BODY)
        assert door.bodies == []
        await Webhook(door.url, AlertPace(ca_file=alone)).run(BODY)
        assert door.bodies == [BODY]
    finally:
        door.close()


def test_the_log_names_the_host_alone():
    name = Webhook("https://user:word@hooks.example:8443/T0/secret?x=y", PACE).name
    assert name == "webhook hooks.example"
