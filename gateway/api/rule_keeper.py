"""Keeps the rules of the running site: from the file, by commands, and at their planned times.

    file ────► import ─┐
    command ─► change ─┴─► checked ─► the books (durable) ─► the site's configuration
    the clock ─────────────────────────────────────────────► at each planned time

A change counts when it is in the books: a gateway that is killed before the last step finds it
there at its next start. The configuration that a change leads to is read and checked first, as of
now and of each planned time: a mistake leaves all as it was.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import trio

from federation.clocks import NEVER_S, UtcS
from federation.offers import show_time
from federation.words import count
from gateway.api.context import SiteContext
from gateway.api.reload import Change, compare
from gateway.base.values import ConfigError, SettingError, suggest
from gateway.checking.reading import mistakes_in
from gateway.checking.whole import check_reload
from gateway.config.pools import GridKinds
from gateway.config.site import ConfigFile, SiteConfig, check, parse, read_file, with_local
from gateway.ledger.db.records import Record
from gateway.ledger.db.rules.records import RuleChangeCancelled
from gateway.ledger.db.rules.store import RuleStore
from gateway.rules.books import history_of, records_of
from gateway.rules.document import rules_of, texts_in, with_rules
from gateway.rules.history import (
    CHANGED_SINCE,
    EDITS_MAX,
    RuleChange,
    RuleEdit,
    RuleHistory,
    RuleKey,
    RuleKind,
    Rules,
    difference,
    overridden,
)
from gateway.runtime.recovery import used_before
from policies.parties import is_odd, keeping

LOOK_S: Final = 1.0  # how often planned changes are looked for
NAMED_MAX: Final = 10  # rules in a line of the log
PLANNED_MAX: Final = 500  # changes that are to take effect
REASON_CHARS_MAX: Final = 1_000
# When the year 9000 begins, UTC: windows are looked at for some time beyond a change.
LATEST_S: Final = UtcS(221_845_392_000.0)
SHOWN_MAX: Final = 10  # names of rules in an error
FILE: Final = "file"
NO_FILE: Final = "this gateway was started without a configuration file: it has no rules to change"
NO_RULES: Final = "this gateway was started without a configuration file, and has none"


class NothingToReload(Exception):
    """A site without a configuration file; the text says what is not possible."""


@dataclass(frozen=True, slots=True)
class RuledFile:
    """The configuration file as it was imported last, and its own rules."""

    file: ConfigFile
    rules: Rules


@dataclass(frozen=True, slots=True)
class Proposal:
    """A checked change of the rules.

    Attributes:
        records: what is written of it; none: the rules stay as they are.
        history: with the change.
        change: what it makes of the present configuration.
        number: of the change; 0: there is none.
        overridden: the rules that a command had set, and the file sets otherwise.
        warnings: about the file, which is taken all the same.
    """

    file: RuledFile
    records: tuple[Record, ...]
    history: RuleHistory
    change: Change
    number: int = 0
    overridden: tuple[RuleEdit, ...] = ()
    warnings: tuple[str, ...] = ()


class RuleKeeper:
    """The rules of a site, from its start on.

    Without a configuration file it has none.

    Args:
        site: its handlers' view of the site.
        kinds: the kinds of grids that pools may name.
        say: takes lines for the operator.
    """

    def __init__(self, site: SiteContext, kinds: GridKinds, say: Callable[[str], None]) -> None:
        self._site = site
        self._kinds = kinds
        self._say = say
        self._turn = trio.Lock()  # one change after the other
        self._file: RuledFile | None = None
        self._started: ConfigFile | None = None  # the file as it was at the start
        self._due_at_s: UtcS | None = None
        self._is_open = False
        self.history = RuleHistory()
        self._odd_parties: Set[str] = frozenset()  # of stored rules that no new one may have

    # --- proposals -----------------------------------------------------------------------------

    def effective_utc_s(self) -> UtcS:
        """Return the time by which rules count: the last change's, if a clock was set back."""
        made_s = [each.made_at_s for each in self.history.changes]
        return max([self._site.runtime.utc_s(), *made_s])

    @property
    def version(self) -> int:
        """The version in force."""
        return self.history.version_at(self.effective_utc_s())

    def beginnings(self, versions: Iterable[int]) -> list[dict[str, Any]]:
        """Return versions with the time when each began, and who made it, as plain data."""
        known = {each.number: each for each in self.history.changes}
        return [
            {"version": each, "from_s": known[each].from_s, "author": known[each].author}
            for each in versions
            if each in known
        ]

    def config_of(self, version: int) -> SiteConfig | str:
        """Return the configuration by the rules of a version; or why it is not known.

        Everything but the rules is as in the file now.
        """
        if self._file is None:
            return NO_RULES
        if not version:
            return "the books do not have the version of the rules under which it ran"
        if self.history.of(version) is None:
            return f"version {version} of the rules not found"
        begins_at_s = next(each.from_s for each in self.history.changes if each.number == version)
        file = with_rules(self._file.file, self._file.rules, self.history, begins_at_s)
        try:
            with keeping(self._odd_parties):
                return _cited(parse(file, self._kinds), self.history, begins_at_s)
        except (ConfigError, SettingError) as error:
            return f"the rules of version {version} don't fit the present file: {error}"

    def propose_file(self, author: str, reason: str = "") -> Proposal:
        """Read the configuration file again; the change is what differs from its last import.

        Raises:
            NothingToReload: there is no file.
            ConfigError: it has a mistake, or does not fit the rules that commands have made.
        """
        if not self._site.config.source:
            raise NothingToReload(NO_FILE)
        read, utc_s = read_file(self._site.config.source), self.effective_utc_s()
        parse(read, self._kinds)  # its own mistakes first, with their lines
        file = RuledFile(read, rules_of(read))
        later = self._overridable(parse(read, self._kinds))
        edits = difference(self.history.of_source(FILE), file.rules)
        number = self.history.next_number
        change = RuleChange(number, utc_s, utc_s, author, FILE, edits, reason=reason)
        changes = [change] if edits else []
        found = self._proposal(file, changes, utc_s)
        return replace(
            found,
            overridden=tuple(overridden(self.history, edits, utc_s)),
            warnings=tuple(self._warnings(found, utc_s)),
            change=replace(found.change, later=[*later, *found.change.later]),
        )

    def _overridable(self, new: SiteConfig) -> list[str]:
        """Return the keys that have changed since the start and that options may override."""
        if self._started is None:
            return []
        old, present = parse(self._started, self._kinds), self._site.config
        return [
            f"[site] {key}"
            if getattr(present, key) == getattr(old, key)
            else f"[site] {key}, unless --{key} is given again"
            for key in ("listen", "state")
            if getattr(new, key) != getattr(old, key)
        ]

    def _warnings(self, proposal: Proposal, utc_s: UtcS) -> list[str]:
        """Check the whole configuration against its files and names; SettingError for errors."""
        if not self._is_open:
            return []  # a start is checked before its database is open
        new = self._configured(proposal.file, proposal.history, utc_s)
        return check_reload(self._site.config, new, utc_s)

    def propose(
        self,
        edits: Sequence[RuleEdit],
        author: str,
        source: str,
        *,
        from_s: UtcS | None = None,
        until_s: UtcS = NEVER_S,
        reason: str = "",
        version: int | None = None,
    ) -> Proposal:
        """Return a change by command.

        `version`: that of the rules from which the edits were made; None: not told.

        Raises:
            NothingToReload: there is no configuration file.
            ConfigError, SettingError: the change is not possible, or the rules have changed since.
        """
        file, utc_s = self._present_file(), self.effective_utc_s()
        from_s = utc_s if from_s is None else from_s
        _check_span(from_s, until_s, utc_s)
        if version is not None and version != (now := self.history.version_at(from_s)):
            raise SettingError(
                f"{CHANGED_SINCE}: it was made of version {version}, and {now} counts"
            )
        if not 0 < len(edits) <= EDITS_MAX:
            raise SettingError(f"edits: one change has 1 to {EDITS_MAX:,}, not {len(edits):,}")
        if len(reason) > REASON_CHARS_MAX:
            raise SettingError(f"reason: at most {REASON_CHARS_MAX:,} characters")
        before = self.history.at(from_s)
        pools = [str(row.get("name", "")) for row in file.file.table.get("pool", ())]
        for each in edits:
            if each.key.pool and each.content is not None and each.key.pool not in pools:
                meant = suggest(each.key.pool, pools)
                raise SettingError(
                    f"pool {each.key.pool!r} not found{meant}; known pools: {', '.join(pools)}"
                )
            if each.content is None and each.key not in before:
                raise SettingError(_absent(each.key, before))
            if each.content is None:
                _check_stays_away(self.history, each.key, from_s, until_s)
        number = self.history.next_number
        change = RuleChange(number, from_s, utc_s, author, source, tuple(edits), until_s, reason)
        changes = [change]
        if until_s < NEVER_S:
            changes.append(RuleChange(number + 1, until_s, utc_s, author, source, ends=number))
        if len(self.history.planned(utc_s)) + len(changes) > PLANNED_MAX:
            raise SettingError(f"at most {PLANNED_MAX:,} changes can be planned")
        try:
            found = self._proposal(file, changes, utc_s)
            self._warnings(found, utc_s)  # for its errors; a reload gives the warnings
            return self._of_itself(found, utc_s)
        except (ConfigError, SettingError) as error:  # it is not in the file
            first = str(error).removeprefix(f"{file.file.path}: ")
            raise SettingError(self._all_mistakes(file, changes[0], utc_s) or first) from None

    def _all_mistakes(self, file: RuledFile, change: RuleChange, utc_s: UtcS) -> str:
        """Return all mistakes of a change, a line each; empty where its text has but one."""
        history = self.history.with_change(change)
        document = with_rules(file.file, file.rules, history, max(change.from_s, utc_s))
        found = mistakes_in(document, self._kinds, utc_s)
        return "\n".join(found) if len(found) > 1 else ""

    def propose_cancel(self, number: int) -> Proposal:
        """Cancel a change that has not taken effect.

        Raises:
            NothingToReload: there is no configuration file.
            ConfigError, SettingError: the change can't be cancelled.
        """
        file, utc_s = self._present_file(), self.effective_utc_s()
        known = {each.number: each for each in self.history.changes}
        found = known.get(number)
        if found is None:
            raise SettingError(f"change {number} not found")
        if found.ends:
            raise SettingError(
                f"change {number} is the end of change {found.ends}: cancel change {found.ends}"
            )
        if found.cancelled_at_s is not None:
            raise SettingError(f"change {number} is cancelled already")
        if found.from_s <= utc_s:
            raise SettingError(
                f"change {number} is in force already: make another change to set the rules again"
            )
        gone = [each for each in known.values() if number in (each.number, each.ends)]
        history = self.history.with_change(*(replace(each, cancelled_at_s=utc_s) for each in gone))
        records = tuple(RuleChangeCancelled(each.number, utc_s) for each in gone)
        made = Proposal(file, records, history, self._compare(file, history, utc_s), number)
        return self._of_itself(made, utc_s)

    def _of_itself(self, proposal: Proposal, utc_s: UtcS) -> Proposal:
        """Return a change by command without what waits for a restart since before it."""
        waiting = set(self._compare(proposal.file, self.history, utc_s).later)
        later = [each for each in proposal.change.later if each not in waiting]
        return replace(proposal, change=replace(proposal.change, later=later))

    def _present_file(self) -> RuledFile:
        if self._file is None:
            raise NothingToReload(NO_FILE)
        return self._file

    def _proposal(self, file: RuledFile, changes: Sequence[RuleChange], utc_s: UtcS) -> Proposal:
        history = self.history.with_change(*changes)
        try:
            records: tuple[Record, ...] = tuple(
                each for change in changes for each in records_of(change)
            )
        except ValueError as error:
            raise SettingError(str(error)) from None
        number = changes[0].number if changes else 0
        return Proposal(file, records, history, self._compare(file, history, utc_s), number)

    def _compare(self, file: RuledFile, history: RuleHistory, utc_s: UtcS) -> Change:
        """Check the configuration as of now and of each planned time; compare that of now."""
        now = self._configured(file, history, utc_s)
        for each in history.planned(utc_s):
            try:
                self._configured(file, history, each.from_s)
            except (ConfigError, SettingError) as error:
                raise SettingError(f"when change {each.number} takes effect: {error}") from None
        return compare(self._site.config, now, utc_s)

    def _configured(self, file: RuledFile, history: RuleHistory, utc_s: UtcS) -> SiteConfig:
        """Return the whole configuration by the rules that are in force at a time."""
        present = self._site.config
        with keeping(self._odd_parties):
            read = parse(with_rules(file.file, file.rules, history, utc_s), self._kinds)
        read = _cited(read, history, utc_s)
        if present.given:
            read = replace(read, pools=with_local(read.pools, present.given), given=present.given)
        read = replace(
            read,
            listen=present.listen,
            state=present.state,
            rules_version=history.version_at(utc_s),
        )
        return check(read, utc_s)

    # --- carrying out --------------------------------------------------------------------------

    def open(self, store: RuleStore) -> tuple[SiteConfig, tuple[Record, ...]]:
        """Take up the rules at the start; return the configuration, and the records to be written.

        What the file says otherwise than at its last import is imported.

        Raises:
            ConfigError: the file and the rules in the books are no configuration together.
        """
        self.history = history_of(store.changes())
        stored = [each.content for change in self.history.changes for each in change.edits]
        self._odd_parties = {each for each in texts_in(stored) if is_odd(each)}
        if not self._site.config.source:
            return self._site.config, ()
        try:
            found = self.propose_file("")
            config = self._configured(found.file, found.history, self.effective_utc_s())
        except (ConfigError, SettingError) as error:
            raise ConfigError(
                f"{error} (with the rules in the database: see docs/rules.md)"
            ) from None
        self._take(found)
        self._is_open, self._started = True, found.file.file
        if found.number:
            many = count(len(found.history.changes[-1].edits), "rule")
            self._say(f"rules: {many} imported from {config.source} as change {found.number}")
        self._say_overridden(found)
        in_force = texts_in([*self.history.at(self.effective_utc_s()).values()])
        for each in sorted(self._odd_parties.intersection(in_force)):
            self._say(
                f"rules: {each!r} is a party that nobody is: a comma is missing, or one party is "
                "two. Find it by `gridfed rules export`, and change or end that rule"
            )
        return config, found.records

    async def reload(self, author: str, *, is_dry: bool) -> Proposal:
        """Import the file, unless `is_dry`; see `propose_file` for the errors."""
        found = await self._decide(partial(self.propose_file, author), is_dry=is_dry)
        if not is_dry:
            self._say(f"the configuration was reloaded{f' by {author}' if author else ''}")
        return found

    async def change(self, propose: Callable[[], Proposal], *, is_dry: bool) -> Proposal:
        """Carry out a proposal of `propose` or `propose_cancel`, unless `is_dry`; their errors."""
        return await self._decide(propose, is_dry=is_dry)

    async def _decide(self, propose: Callable[[], Proposal], *, is_dry: bool) -> Proposal:
        async with self._turn:
            proposal: Proposal = await self._site.runtime.read(propose)
            if not is_dry:
                if proposal.records:
                    if trouble := self._site.broker.trouble:
                        raise SettingError(f"the database can't be written: {trouble}")
                    await self._site.harden(*proposal.records)
                self._take(proposal)
                self._say_done(proposal)
                self._say_overridden(proposal)
                await self._adopt(proposal.change)
            return proposal

    async def _adopt(self, change: Change) -> None:
        site = self._site
        rules, used_ns = change.config.fair_share, {}
        if rules is not None and change.shares:
            if not site.broker.trouble:
                await site.record()  # records being written count too
            utc_s = site.runtime.utc_s()
            used_ns = await site.read(used_before, site.store.usage, rules, utc_s)
        site.take_in(change.config, used_ns)

    def _take(self, proposal: Proposal) -> None:
        self._file, self.history = proposal.file, proposal.history
        self._due_at_s = self.history.next_edge(self.effective_utc_s())

    def _say_done(self, proposal: Proposal) -> None:
        for each in proposal.history.changes:
            if each.number == proposal.number:
                self._say(_told(each, proposal.history))

    def _say_overridden(self, proposal: Proposal) -> None:
        for each in proposal.overridden:
            self._say(
                f"rules: {each.key} was set by a command, and now has the content of the file"
            )

    async def run(self) -> None:
        """Have planned changes take effect at their times."""
        while True:
            await trio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Have the planned changes take effect whose time has come."""
        async with self._turn:
            utc_s = self.effective_utc_s()
            if self._due_at_s is None or utc_s < self._due_at_s or self._file is None:
                return
            self._due_at_s = self.history.next_edge(utc_s)
            try:
                change = await self._site.runtime.read(
                    self._compare, self._file, self.history, utc_s
                )
            except (ConfigError, SettingError) as error:
                self._say(f"rules: the planned change can't take effect: {error}")
                return
            number = self.history.version_at(utc_s)
            self._say(f"rules: version {number} is in force{_by(self.history.changes, number)}")
            await self._adopt(change)


def _cited(config: SiteConfig, history: RuleHistory, utc_s: UtcS) -> SiteConfig:
    """Return a configuration whose rules about people and places name their change.

    Those that have a line in the file are cited by that.
    """
    change = history.last_change(RuleKey(RuleKind.ENTITLEMENTS), utc_s)
    if change is not None and not all(each.line for each in config.entitlements.rules):
        rules = (
            each if each.line else replace(each, change=change.title)
            for each in config.entitlements.rules
        )
        entitlements = replace(config.entitlements, rules=tuple(rules))
        config = replace(config, entitlements=entitlements)
    change = history.last_change(RuleKey(RuleKind.RESIDENCY), utc_s)
    if change is not None and not all(each.line for each in config.residency):
        bound = (
            each if each.line else replace(each, change=change.title) for each in config.residency
        )
        config = replace(config, residency=tuple(bound))
    return config


def _told(change: RuleChange, history: RuleHistory) -> str:
    """Return the effects of a change, for the log."""
    earlier = (each for each in history.changes if each.number < change.number)
    before = RuleHistory(earlier).at(change.from_s)
    named = [f"{edit.key} {_done(edit, before)}" for edit in change.edits[:NAMED_MAX]]
    what = ", ".join([*named, *(["…"] if len(change.edits) > NAMED_MAX else [])])
    by = f" by {change.author}" if change.author else f" by the {change.source}"
    why = f": {change.reason}" if change.reason else ""
    if change.cancelled_at_s is not None:
        return f"rules: planned change {change.number} is cancelled{by}: {what}"
    if change.from_s > change.made_at_s:
        when = f"change {change.number}, from {show_time(change.from_s)} on"
        return f"rules planned: {what}{by} ({when}){why}"
    return f"rules changed: {what}{by} (version {change.number}){why}"


def _done(edit: RuleEdit, before: Rules) -> str:
    if edit.content is None:
        return "removed"
    return "changed" if edit.key in before else "added"


def _by(changes: Iterable[RuleChange], number: int) -> str:
    for each in changes:
        if each.number == number:
            by = f", planned by {each.author}" if each.author else ""
            return by + (f": {each.reason}" if each.reason else "")
    return ""


def _absent(key: RuleKey, before: Rules) -> str:
    """Say that there is no such rule, and which there are of its kind and pool."""
    names = sorted(
        each.name for each in before if (each.kind, each.pool) == (key.kind, key.pool) and each.name
    )
    more = ", …" if len(names) > SHOWN_MAX else ""
    known = f": there are {', '.join(names[:SHOWN_MAX])}{more}" if names else ""
    return f"{key}: no such rule exists then{known}"


def _check_stays_away(history: RuleHistory, key: RuleKey, from_s: UtcS, until_s: UtcS) -> None:
    """Raise SettingError if a planned change would set a rule again after its removal.

    The change is named and not cancelled: it may set other rules, too.
    """
    again = [
        each
        for each in history.planned(from_s)
        if each.from_s < until_s
        and any(edit.key == key and edit.content is not None for edit in each.edits)
    ]
    if not again:
        return
    named = " and ".join(
        f"change {each.number}, planned from {show_time(each.from_s)} on"
        for each in again[:NAMED_MAX]
    )
    more = " and others" if len(again) > NAMED_MAX else ""
    orders = ", ".join(f"`gridfed rules cancel {each.number}`" for each in again[:NAMED_MAX])
    raise SettingError(
        f"{key} would be back after its removal, by {named}{more}: cancel first ({orders}), "
        "or remove it from a later time on with --at"
    )


def _check_span(from_s: UtcS, until_s: UtcS, utc_s: UtcS) -> None:
    """Raise SettingError unless a change can take effect and end at these times."""
    if from_s < utc_s:
        raise SettingError("--at: the time is past: a change takes effect now or later")
    for end, at_s in (("--at", from_s), ("--until", until_s)):
        if LATEST_S <= at_s < NEVER_S:
            raise SettingError(f"{end}: the time must be before the year 9000")
    if not from_s < until_s:
        raise SettingError(
            "--until: must be after the time at which the change takes effect (--at)"
        )
