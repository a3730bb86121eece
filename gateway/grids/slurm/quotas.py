"""The remainders of limits of accounts and qualities of service. Pure.

`scontrol show assoc_mgr` shows, from slurmctld's memory, each limit and its used part, as in
`GrpSubmitJobs=100(37)`; N and nothing stand for no limit. Of one kind of limit Slurm applies the
first place that has any: the partition's QOS, the job's QOS, then the user's association with all
accounts above it (https://slurm.schedmd.com/resource_limits.html).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_SPLIT: Final = re.compile(r"^(?=ClusterName=|QOS=)", re.MULTILINE)
_PAIR: Final = re.compile(r"(\w+)=(\S*)", re.ASCII)
_AMOUNT: Final = re.compile(r"(?:([\w/:]+)=)?(\d{1,15}|N)(?:\((\d{1,15})\))?", re.ASCII)
_SECTION: Final = re.compile(r"^    (Account|User) Limits *$", re.MULTILINE)
LEVELS_MAX: Final = 100  # of accounts above each other

SUBMITS, JOBS = "submits", "jobs"
# Slurm's names of limits that many jobs share; the first word of ours is its kind.
_SHARED: Final = {
    "GrpJobs": ("group", JOBS),
    "GrpSubmitJobs": ("group", SUBMITS),
    "GrpTRES": ("group", ""),
    "MaxJobs": ("own", JOBS),
    "MaxSubmitJobs": ("own", SUBMITS),
    "MaxJobsPU": ("own", JOBS),
    "MaxSubmitJobsPU": ("own", SUBMITS),
    "MaxTRESPU": ("user", ""),
    "MaxJobsPA": ("own", JOBS),
    "MaxSubmitJobsPA": ("own", SUBMITS),
    "MaxTRESPA": ("account", ""),
}
_EACH: Final = ("MaxTRESPJ", "MaxTRESPN")  # a pilot is one job on one node


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit that jobs share.

    Attributes:
        what: SUBMITS, JOBS, or a resource: "cpu", "mem" (MB), "node", "gres/gpu".
        most: in all; `used`: of it, by all users.
        said: its place, in Slurm's words.
    """

    what: str
    most: int
    used: int
    said: str


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of our jobs.

    Attributes:
        shared: by all of them, and those of others.
        each: the most that one may take.
        limit_s: that one may run.
    """

    shared: tuple[Quota, ...] = ()
    each: Mapping[str, int] = field(default_factory=dict)
    limit_s: float | None = None

    def submits(self) -> int | None:
        """Return how many more jobs may be submitted; None: unlimited."""
        left = (max(0, each.most - each.used) for each in self.shared if each.what == SUBMITS)
        return min(left, default=None)

    def submits_max(self) -> int | None:
        """Return how many jobs may be submitted at a time, without others."""
        return min((each.most for each in self.shared if each.what == SUBMITS), default=None)

    def pilots(self, needs: Mapping[str, int]) -> tuple[int | None, int | None]:
        """Return how many pilots may begin now, and how many without other jobs; None: any number.

        Args:
            needs: of one pilot, by `Quota.what`.
        """
        if any(needs.get(what, 0) > most for what, most in self.each.items()):
            return 0, 0
        each_needs = {SUBMITS: 1, JOBS: 1, "node": 1} | {k: v for k, v in needs.items() if v}
        now, most = [], []
        for quota in self.shared:
            if need := each_needs.get(quota.what):
                now.append(max(0, quota.most - quota.used) // need)
                most.append(quota.most // need)
        return min(now, default=None), min(most, default=None)


def read_quotas(
    text: str, uid: int, account: str, qos: Sequence[str], partitions: Iterable[str] = ()
) -> Quotas:
    """Return the limits of a user's jobs, from `scontrol show assoc_mgr`; a missing one is none.

    Args:
        account: the jobs' own; empty: the user's default.
        qos: those that apply to the jobs, in order of precedence.
        partitions: the jobs'.
    """
    records = [_Record(each) for each in _SPLIT.split(text)]
    accounts = [each for each in records if "ClusterName" in each.pairs]
    ours = _association(accounts, uid, account, frozenset(partitions))
    named = {each.pairs["QOS"].partition("(")[0]: each for each in records if "QOS" in each.pairs}
    own_account = ours.pairs.get("Account", "") if ours is not None else account
    levels = [[named[each]] for each in qos if each in named]
    levels += [list(_chain(accounts, ours))] if ours is not None else []
    shared: dict[tuple[str, str], list[Quota]] = {}
    each_most: dict[str, int] = {}
    limit_min: int | None = None
    for level in levels:
        own = level[0]
        found: dict[tuple[str, str], list[Quota]] = {}
        for record in level:
            for kind, quota in record.shared(uid, own_account, is_ours=record is own):
                found.setdefault((kind, quota.what), []).append(quota)
        shared = found | shared
        each_most = own.each() | each_most
        limit_min = own.limit_min() if limit_min is None else limit_min
    return Quotas(
        tuple(quota for quotas in shared.values() for quota in quotas),
        each_most,
        None if limit_min is None else limit_min * 60.0,
    )


class _Record:
    """One association, or one QOS, in its printed form."""

    def __init__(self, text: str) -> None:
        head, *sections = _SECTION.split(text)
        self.pairs = dict(_PAIR.findall(head))
        self._sections = dict(zip(sections[::2], sections[1::2], strict=False))

    def shared(self, uid: int, account: str, *, is_ours: bool) -> Iterator[tuple[str, Quota]]:
        """Yield its limits that jobs share; of an account above ours only those of the group."""
        of_ours = dict(_PAIR.findall(_part(self._sections.get("User", ""), str(uid))))
        of_ours |= _PAIR.findall(_part(self._sections.get("Account", ""), account))
        for key, value in (self.pairs | of_ours).items():
            kind, what = _SHARED.get(key, ("", ""))
            if not kind or (kind == "own" and not is_ours):
                continue
            for named, most, used in _amounts(value):
                yield kind, Quota(what or named, most, used, f"{self.name} {key} {most}")

    def each(self) -> dict[str, int]:
        """Return the most that one job may take."""
        found: dict[str, int] = {}
        for key in _EACH:
            for what, most, _ in _amounts(self.pairs.get(key, "")):
                found[what] = min(most, found.get(what, most))
        return found

    def limit_min(self) -> int | None:
        """Return how long one job may run."""
        return next((most for _, most, _ in _amounts(self.pairs.get("MaxWallPJ", ""))), None)

    @property
    def name(self) -> str:
        if "QOS" in self.pairs:
            return f"qos {self.pairs['QOS'].partition('(')[0]}"
        return f"account {self.pairs.get('Account', '')}"


def _part(section: str, name: str) -> str:
    """Return a section's part for one name, alone in its line: "risk", "0", "bob(1001)"."""
    found = re.split(r"^      (\S+) *$", section, flags=re.MULTILINE)
    for at in range(1, len(found) - 1, 2):
        if found[at] == name or found[at].endswith(f"({name})"):
            return found[at + 1]
    return ""


def _amounts(value: str) -> Iterator[tuple[str, int, int]]:
    """Yield the limits of "cpu=6(5),mem=N(40)" or "4(2)": name, limit, and use."""
    for part in value.split(","):
        match = _AMOUNT.fullmatch(part)
        if match is not None and match[2] != "N":
            yield match[1] or "", int(match[2]), int(match[3] or 0)


def _association(
    records: Iterable[_Record], uid: int, account: str, partitions: frozenset[str]
) -> _Record | None:
    """Return the user's own association: preferably the one for one of the partitions."""
    found: _Record | None = None
    for each in records:
        pairs = each.pairs
        is_meant = pairs.get("Account") == account if account else pairs.get("DefAssoc") == "Yes"
        if not is_meant or not pairs.get("UserName", "").endswith(f"({uid})"):
            continue
        if pairs.get("Partition") in partitions:
            return each
        found = found if pairs.get("Partition") else each
    return found


def _chain(records: Iterable[_Record], own: _Record) -> Iterator[_Record]:
    """Yield an association, its account, and those above."""
    accounts = {
        each.pairs.get("Account", ""): each for each in records if not each.pairs.get("UserName")
    }
    yield own
    name = own.pairs.get("Account", "")
    for _ in range(LEVELS_MAX):
        if name not in accounts:
            return
        yield accounts[name]
        name = accounts[name].pairs.get("ParentAccount", "").partition("(")[0]
