"""Questions about objects: where they are put, who holds them."""

import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from federation.objects.manifests import digest_text, read_digest
from federation.reasons import Reason
from federation.users import check_project
from federation.wishes import USUAL_PROJECT
from federation.words import count, size_text
from gateway.api.context import BadQuestion, SiteContext
from gateway.base.tags import OBJECTS_TAG
from gateway.objects.billing import HeldSoFar
from gateway.objects.catalogue import HeldObject, sums
from gateway.objects.keeper import ObjectKeeper
from gateway.trust.rights import Asker

OBJECTS_SHOWN_MAX: Final = 10_000
HELD_AT_ONCE_MAX: Final = 10_000


async def _host(site: SiteContext, asker: Asker, details: dict[str, Any]) -> Any:
    """Return the address of the object host, and a ticket for the asker's session."""
    objects = _objects(site)
    if not await objects.ready():
        raise BadQuestion("the object host does not start: see the log of the gateway")
    ticket = objects.ticket(asker.handle, asker.user, _project(asker, details))
    return {
        "address": objects.address,
        "pid": objects.pid,
        "ticket": ticket,
        "host": os.uname().nodename,
        "site": site.config.name,
    }


async def _arguments(site: SiteContext, _asker: Asker, _details: dict[str, Any]) -> Any:
    """Return whether large arguments may be objects: all that could run their calls reads them.

    Else they go in messages, so that calls are not kept from other pools and sites.
    """
    if site.objects is None or site.gossip is not None:
        return False
    pools = site.config.pools  # without any, workers of any version may come
    is_local = bool(pools) and all(pool.kind == "local" for pool in pools)
    return is_local and all(OBJECTS_TAG in each.offer.tags for each in site.broker.workers.values())


async def _object(site: SiteContext, asker: Asker, details: dict[str, Any]) -> Any:
    """Show one object; the asker's session holds what was asked for by its name.

    A name is that of a user, by default the asker.
    """
    objects, project, name = _objects(site), _project(asker, details), details.get("name")
    if name is not None:
        user = details.get("user", asker.user)
        if not isinstance(name, str) or not isinstance(user, str):
            raise BadQuestion("name and user must be texts", Reason.BAD_REQUEST)
        held = objects.catalogue.named(project, user, name)
        if held is None:
            raise BadQuestion(
                f"user {user!r:.80} has named no object {name!r:.80} here in project {project}"
            )
        reason = objects.take(asker.handle, asker.user, held)
        if reason:
            raise BadQuestion(f"object {name!r:.80} can't be held: {reason}")
        return _plain(site, held)
    try:
        digest = read_digest(str(details.get("digest")))
    except ValueError as error:
        raise BadQuestion(str(error)) from None
    held = objects.catalogue.find(project, digest)
    if held is None:
        raise BadQuestion(f"project {project} has no object {details['digest']} here")
    return _plain(site, held)


async def _drop(site: SiteContext, asker: Asker, details: dict[str, Any]) -> Any:
    """Take a name of an object back: {name, user, project} → {…, freed, text}.

    Users drop their own names, operators those of all users. Other holders keep the object.
    """
    objects, project, name = _objects(site), _project(asker, details), details.get("name")
    user = details.get("user", asker.user)
    if not isinstance(name, str) or not isinstance(user, str):
        raise BadQuestion("name and user must be texts", Reason.BAD_REQUEST)
    if user != asker.user and not asker.is_operator:
        raise BadQuestion(
            f"the objects of user {user!r:.80} are theirs, or an operator's, to drop",
            Reason.SCOPE_MISSING,
        )
    await objects.settled()
    held = objects.catalogue.named(project, user, name)
    if held is None:
        raise BadQuestion(
            f"user {user!r:.80} has named no object {name!r:.80} here in project {project}: "
            "`gridfed objects` lists yours"
        )
    is_kept = objects.unname(held, user, name)
    others = still_held(held.to_plain()) if is_kept else ""
    freed = f"still held by {others}" if is_kept else f"{size_text(held.size)} freed"
    return {
        **held.to_plain(),
        "name": name,
        "owner": user,
        "freed": not is_kept,
        "text": f"object {name!r} of {user} in project {project} dropped: {freed}",
    }


def still_held(row: dict[str, Any]) -> str:
    """Return the holders of an object in words, as "1 client session, job 01abc… and 2 more"."""
    parts = [count(row["sessions"], "client session")] if row["sessions"] else []
    if row["jobs"]:
        more = f" and {len(row['jobs']) - 1:,} more" if len(row["jobs"]) > 1 else ""
        parts.append(f"job {row['jobs'][0]}{more}")
    parts += [f"name {each['name']!r} of {each['user']}" for each in row["names"][:3]]
    return ", ".join(parts) or "clients of the gateway that was lost, which may come back"


async def _hold(site: SiteContext, asker: Asker, details: dict[str, Any]) -> Any:
    """Let the asker's session hold objects that it held at the last run of this gateway.

    Return those that are not here.
    """
    objects, project, named = _objects(site), _project(asker, details), details.get("digests")
    if not isinstance(named, list) or len(named) > HELD_AT_ONCE_MAX:
        raise BadQuestion(
            f"digests must be a list of at most {HELD_AT_ONCE_MAX:,} texts", Reason.BAD_REQUEST
        )
    try:
        digests = [read_digest(str(each)) for each in named]
    except ValueError as error:
        raise BadQuestion(str(error), Reason.BAD_REQUEST) from None
    await objects.settled()
    lost = objects.take_again(asker.handle, asker.user, project, digests)
    return {"lost": [digest_text(each) for each in lost]}


async def _listed(site: SiteContext, asker: Asker, details: dict[str, Any]) -> Any:
    """List the objects that the asker may see, the largest first.

    With `by` ("project" or "user") their sums; with `lost` those that were lost, the latest first.
    """
    only, by = details.get("project"), details.get("by")
    if by not in (None, "project", "user"):
        raise BadQuestion(f"by is {by!r:.80}; it must be 'project' or 'user'", Reason.BAD_REQUEST)
    catalogue = site.objects.catalogue if site.objects is not None else None

    def is_shown(each: HeldObject) -> bool:
        is_seen = any(asker.sees(user, each.key.scope) for user in (each.user, *each.holders))
        return is_seen and only in (None, each.key.scope)

    if catalogue is None:
        return []
    if details.get("lost"):
        gone = [each for each in reversed(catalogue.lost) if is_shown(each.held)]
        return [_told(site, each.to_plain()) for each in gone]
    found = [each for each in catalogue if is_shown(each)]
    if by is not None:
        return _with_costs(site, sums(found, by, asker.sees), found, by)
    found.sort(key=lambda each: -each.size)
    return [_plain(site, each) for each in found[:OBJECTS_SHOWN_MAX]]


def _with_costs(
    site: SiteContext, rows: list[dict[str, Any]], found: list[HeldObject], by: str
) -> list[dict[str, Any]]:
    """Add byte-seconds and costs of the objects to sums, for the users of each sum."""
    objects, costs = _objects(site), dict.fromkeys((row[by] for row in rows), HeldSoFar())
    for held in found:
        for name in {held.key.scope} if by == "project" else costs.keys() & held.holders.keys():
            if name in costs:
                costs[name] += objects.holdings.so_far(held, None if by == "project" else (name,))
    return [{**row, **_cost(objects, costs[row[by]])} for row in rows]


def _cost(objects: ObjectKeeper, held: HeldSoFar) -> dict[str, Any]:
    return {
        "held_byte_s": held.byte_s,
        "cost_nanos": held.cost_nanos,
        "currency": objects.holdings.price.currency,
    }


def _plain(site: SiteContext, held: HeldObject) -> dict[str, Any]:
    objects = _objects(site)
    return _told(site, held.to_plain()) | _cost(objects, objects.holdings.so_far(held))


def _told(site: SiteContext, plain: dict[str, Any]) -> dict[str, Any]:
    return {**plain, "site": site.config.name, "host": os.uname().nodename}


def _objects(site: SiteContext) -> ObjectKeeper:
    if site.objects is None:
        raise BadQuestion(
            f"site {site.config.name} keeps no objects: it has no local pool, whose slots could "
            "read them"
        )
    return site.objects


def _project(asker: Asker, details: dict[str, Any]) -> str:
    """Return the project that is meant; BadQuestion if the asker's token does not cover it."""
    project = details.get("project", USUAL_PROJECT)
    if not isinstance(project, str):
        raise BadQuestion("project must be a text", Reason.BAD_REQUEST)
    try:
        check_project(project)  # objects of other sites' jobs have names that are none
    except ValueError as error:
        raise BadQuestion(str(error), Reason.BAD_REQUEST) from None
    if asker.projects is not None and project not in asker.projects:
        covered = ", ".join(sorted(asker.projects))
        raise BadQuestion(
            f"the token does not cover project {project}, but {covered}: use one of these, or ask "
            "for another token",
            Reason.PROJECT_NOT_ALLOWED,
        )
    return project


VERBS: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "object_host": _host,
    "large_arguments": _arguments,
    "object": _object,
    "hold_objects": _hold,
    "objects": _listed,
    "drop_object": _drop,
}
