"""Elements of usage records, in OGF's and in EMI's namespace, as pieces of one document. Pure.

Both name their elements, and their attributes, with the prefix `urf`, as all that read them do;
the root says which namespace that is.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from .rows import REFUND, Run
from .texts import domain, plain, urn, user_at

PREFIX: Final = "urf"

# OGF and EMI have no word for work that had to be done again (it was completed, twice), nor for
# another site's that could not be delivered.
_STATUS: Final = {
    "ok": "completed",
    "repeat": "completed",
    "failed": "failed",
    "cancelled": "aborted",
    "preempted": "aborted",
    "void": "aborted",
    "lost": "aborted",
    "wasted": "aborted",
    REFUND: "completed",
}


def document(namespace: str, records: Iterable[Element]) -> Iterator[str]:
    """Yield a document with these records in a root `UsageRecords`."""
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<urf:UsageRecords xmlns:urf="{namespace}">\n'
    for record in records:
        yield tostring(record, encoding="unicode") + "\n"
    yield "</urf:UsageRecords>\n"


def element(name: str, /, **attributes: str) -> Element:
    """An element without a parent."""
    return Element(f"{PREFIX}:{name}", _named(attributes))


def add(parent: Element, name: str, text: str = "", /, **attributes: str) -> Element:
    """Add an element; the text and the attributes may be anything that users chose."""
    made = SubElement(parent, f"{PREFIX}:{name}", _named(attributes))
    made.text = plain(text) or None
    return made


def add_if(parent: Element, name: str, text: str, /, **attributes: str) -> None:
    """Add an element if there is something to say in it."""
    if text:
        add(parent, name, text, **attributes)


def add_host(parent: Element, name: str, host: str, /, **attributes: str) -> None:
    """Add an element that must be a host's name; one that is none goes into its description."""
    shown = domain(host)
    if shown != host:
        attributes["description"] = host
    add(parent, name, shown, **attributes)


def add_identity(record: Element, site: str, run: Run, created: str) -> None:
    """Add whose record it is: unique among all sites, and what it was created for."""
    identity = add(record, "RecordIdentity", createTime=created)
    name = urn(run.site or site, run.job, run.first, run.attempt)
    if run.corrects:
        name = urn(site, REFUND, run.corrects)  # of fewer parts than any run's
    # As it is: what it escapes is escaped already.
    identity.set(f"{PREFIX}:recordId", name)
    job = add(record, "JobIdentity")
    add(job, "GlobalJobId", run.job)
    add(job, "LocalJobId", local_job(run))


def local_job(run: Run) -> str:
    """A name for a run where a job runs once; a refund has that of what is taken back."""
    return run.corrects or f"{run.job}/{run.first}/{run.attempt}"


def global_user(site: str, run: Run) -> str:
    """A user with the site that knows him; a user without a name has none."""
    return user_at(run.user, run.origin or site)


def status(run: Run) -> str:
    """How it ended, in the words of usage records."""
    return _STATUS.get(run.state, run.state or "completed")


def _named(attributes: dict[str, str]) -> dict[str, str]:
    return {f"{PREFIX}:{name}": plain(text) for name, text in attributes.items()}
