"""All checks of a configuration, for `gridfed check`, a reload and a start of the gateway."""

from collections.abc import Mapping
from typing import Final

from federation.clocks import UtcS
from gateway.base.values import ConfigError, SettingError
from gateway.checking.credentials import check_pilots, open_trust
from gateway.checking.expiry import check_windows
from gateway.checking.files import check_files
from gateway.checking.findings import Finding, FindingList
from gateway.checking.names import check_names
from gateway.checking.reading import Removed
from gateway.config.site import SiteConfig

# The keys that a check of the world depends on, by the code of its findings: a finding says nothing
# if one of them could not be read.
_DEPENDS: Final[Mapping[str, frozenset[str]]] = {
    "no-rate": frozenset({"price", "placement", "kind"}),
    "unknown-currency": frozenset({"price", "pool"}),
    "unknown-site": frozenset({"federation"}),
    "unknown-jurisdiction": frozenset({"jurisdiction", "pool"}),
    "site-name": frozenset({"name"}),
    "token-missing": frozenset({"token_file", "secret_file", "token_required", "listen"}),
    "dial": frozenset({"dial", "listen"}),
    "folder": frozenset({"state", "file"}),
}


def examine(config: SiteConfig, utc_s: UtcS, file: str = "") -> FindingList:
    """Check a configuration that `gateway.config.site.check` has accepted; ask no grid.

    Reads files, and changes nothing. `file` is its path as findings have it; empty: its full path.
    """
    findings = FindingList(file or config.source, config.places)
    check_files(config, findings, utc_s)
    book = open_trust(config, findings, utc_s)
    check_pilots(config, book, findings, utc_s)
    check_names(config, frozenset(book.members) if book is not None else (), findings)
    check_windows(config, findings, utc_s)
    return findings


def follow_ups_removed(findings: FindingList, removed: Removed) -> list[Finding]:
    """Return the findings, without those that may only follow from parts that were not read."""
    return [
        each
        for each in findings
        if removed.words.isdisjoint(_DEPENDS.get(each.code, ()))
        and not removed.explains(each.text, (each.subject,), ())
    ]


def check_start(config: SiteConfig, utc_s: UtcS) -> FindingList:
    """Return the findings for a start. Raises ConfigError for those that stop it."""
    findings = examine(config, utc_s)
    stopping = [each for each in findings.errors if each.stops]
    if stopping:
        raise ConfigError("\n".join(map(str, stopping)))
    return findings


def check_reload(present: SiteConfig, config: SiteConfig, utc_s: UtcS) -> list[str]:
    """Return the warnings about a configuration that is to replace the present one.

    Raises SettingError for errors.
    """
    findings = examine(config, utc_s)
    if findings.errors:
        raise SettingError("\n".join(map(str, findings.errors)))
    if present.secret_file and not config.secret_file:
        findings.warn(
            "secret-removed",
            "[site] secret_file",
            "it was removed: after the next start, clients, workers and pilots that know the "
            "secret are refused, unless they have a token",
            ("site",),
        )
    return [str(each) for each in findings.warnings]
