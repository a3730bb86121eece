"""Elements of usage records, in OGF's and in EMI's namespace, as pieces of one document. Pure.

Both use the prefix `urf` for elements and attributes, as their readers do; the root binds it to a
namespace.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from gateway.ledger.exports.rows import REFUND, UsageRun
from gateway.ledger.exports.texts import domain, plain, urn, user_at

PREFIX: Final = "urf"

# OGF and EMI have no term for work that had to run again (it was completed, twice), nor for another
# site's work that could not be delivered.
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
    """Make an element without a parent."""
    return Element(f"{PREFIX}:{name}", _named(attributes))


def add(parent: Element, name: str, text: str = "", /, **attributes: str) -> Element:
    """Add an element; the text and the attributes may be any texts that users chose."""
    made = SubElement(parent, f"{PREFIX}:{name}", _named(attributes))
    made.text = plain(text) or None
    return made


def add_if(parent: Element, name: str, text: str, /, **attributes: str) -> None:
    """Add an element if its text is not empty."""
    if text:
        add(parent, name, text, **attributes)


def add_host(parent: Element, name: str, host: str, /, **attributes: str) -> None:
    """Add an element that must be a host name; another text goes into its description."""
    shown = domain(host)
    if shown != host:
        attributes["description"] = host
    add(parent, name, shown, **attributes)


def add_identity(record: Element, site: str, run: UsageRun, created: str) -> None:
    """Add the identity of the record, unique among all sites, and its time of creation."""
    identity = add(record, "RecordIdentity", createTime=created)
    name = urn(run.site or site, run.job, run.first, run.attempt)
    if run.corrects:
        name = urn(site, REFUND, run.corrects)  # it has fewer parts than the name of a run
    # Set directly: the URN is escaped already.
    identity.set(f"{PREFIX}:recordId", name)
    job = add(record, "JobIdentity")
    add(job, "GlobalJobId", run.job)
    add(job, "LocalJobId", local_job(run))


def local_job(run: UsageRun) -> str:
    """Return the name of a run or refund as a local job, unique within a site."""
    return run.corrects or f"{run.job}/{run.first}/{run.attempt}"


def global_user(site: str, run: UsageRun) -> str:
    """Return a user with the user's site; empty for a user without a name."""
    return user_at(run.user, run.origin or site)


def status(run: UsageRun) -> str:
    """Return the state of a run, in the terms of usage records."""
    return _STATUS.get(run.state, run.state or "completed")


def _named(attributes: dict[str, str]) -> dict[str, str]:
    return {f"{PREFIX}:{name}": plain(text) for name, text in attributes.items()}
