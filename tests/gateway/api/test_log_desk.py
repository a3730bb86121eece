"""The output of tasks whose data has a label (gateway.api.log_desk)."""

from types import SimpleNamespace

import pytest

from federation.objects.labels import UNLABELLED, read_label
from gateway.api.context import BadQuestion
from gateway.api.log_desk import LogDesk


def desk(label):
    """A desk at Tokyo, with a job whose data has a label, and which keeps no output."""
    job = SimpleNamespace(spec=SimpleNamespace(wishes=SimpleNamespace(label=label)))
    server = SimpleNamespace(why_not_here=lambda found: found.why_not("tokyo", "JP"))
    return LogDesk(
        SimpleNamespace(server=server, broker=SimpleNamespace(jobs={"j": job}), logs=None)
    )


async def refusal(label):
    with pytest.raises(BadQuestion) as refused:
        await desk(label).logs(SimpleNamespace(user="ann"), "j", None, 0, 0.0)
    return str(refused.value)


@pytest.mark.trio
async def test_output_is_not_shown_at_a_site_that_the_label_of_its_data_forbids():
    text = await refusal(read_label(["EU"]).named("object book"))
    assert text == (
        "the output of job j is not shown at this site: object book may lie only in EU, and site "
        "tokyo is in JP"
    )


@pytest.mark.trio
@pytest.mark.parametrize("label", [UNLABELLED, read_label(["JP"])])
async def test_other_output_is_read(label):
    assert "keeps no output" in await refusal(label)
