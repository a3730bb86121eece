"""The files and folders that a configuration names: whether they are there, and can be used."""

import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from federation.clocks import UtcS
from federation.errors import GridError
from gateway.base.secret_files import exposure
from gateway.base.toml_lines import Path as Place
from gateway.carbon.meters import read_key
from gateway.carbon.series import read_series
from gateway.checking.certificates import check_pem
from gateway.checking.findings import FindingList
from gateway.config.pools import PoolConfig
from gateway.config.site import SiteConfig
from gateway.ledger.db.database import check_url
from gateway.ledger.db.errors import StoreError

# No user can make a folder there, but root is told that it may.
_OF_THE_KERNEL: Final = (("/", "proc"), ("/", "sys"))


def check_files(config: SiteConfig, findings: FindingList, utc_s: UtcS) -> None:
    """Check the files of the site and of its pools."""
    for key, needs_key in (("tls_certificate_file", True), ("tls_ca_file", False)):
        path = getattr(config, key)
        if path:
            check_pem(findings, path, f"[site] {key}", ("site", key), utc_s, needs_key=needs_key)
    if config.secret_file and (warning := _exposure(config.secret_file)):
        findings.warn("file-exposed", "[site] secret_file", warning, ("site", "secret_file"))
    if config.alerts.pace.ca_file:
        place: Place = ("alerts", "ca_file")
        path = config.alerts.pace.ca_file
        check_pem(findings, path, "[alerts] ca_file", place, utc_s, needs_key=False)
    try:
        check_url(config.database_url)
    except StoreError as error:
        where: Place = ("site", "database")
        findings.error("database-url", "[site] database", str(error), where, stops=True)
    _check_folder(config.state_path, findings, "[site] state", ("site", "state"))
    if config.log.path is not None:
        _check_log(config.log.path, findings)
    for at, pool in enumerate(config.pools):
        _check_pool(pool, ("pool", at), findings)


def _exposure(name: str) -> str:
    try:
        return exposure(name)
    except OSError:
        return ""  # the configuration's own check has told that it is missing


def _check_folder(path: Path, findings: FindingList, subject: str, place: Place) -> None:
    """Check that a folder can be written to, or made."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        text = f"{path} can't be a folder: {there} is a file"
        findings.error("folder", subject, text, place, stops=True)
    elif there.resolve().parts[:2] in _OF_THE_KERNEL:
        text = f"{path} can't be made in {there}, which the kernel keeps: name a folder on a disk"
        findings.error("folder", subject, text, place, stops=True)
    elif not os.access(there, os.W_OK | os.X_OK):
        which = "can't be written" if there == path else f"can't be made in {there}"
        text = f"{path} {which} by this user: run as the user of the gateway, or change its owner"
        findings.error("folder", subject, text, place, stops=True)


def _check_log(path: Path, findings: FindingList) -> None:
    place: Place = ("log", "file")
    if not path.parent.is_dir():
        text = f"the folder {path.parent} does not exist: make it, for the user of the gateway"
        findings.error("folder", "[log] file", text, place, stops=True)
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        text = f"{path} can't be written by this user"
        findings.error("file", "[log] file", text, place, stops=True)


def _check_pool(pool: PoolConfig, place: Place, findings: FindingList) -> None:
    named = f"[[pool]] {pool.name}"
    carbon = pool.carbon
    try:
        if carbon.series is not None:
            read_series(carbon.series)
    except GridError as error:
        where: Place = (*place, "carbon", "series")
        findings.error("file", f"{named}, [pool.carbon] series", str(error), where, stops=True)
    try:
        if carbon.http is not None:
            read_key(carbon.http)
    except GridError as error:
        where = (*place, "carbon", "http")
        findings.error("file", f"{named}, [pool.carbon] http", str(error), where, stops=True)
    for key, path in _files_of(pool.grid):
        if not os.access(Path(path).expanduser(), os.R_OK):
            why = "can't be read" if Path(path).expanduser().exists() else "does not exist"
            text = f"{path} {why}"
            where = (*place, pool.kind, *key.split("."))
            findings.error("file", f"{named}, [pool.{pool.kind}] {key}", text, where)
    rules = pool.environments
    if rules is not None and pool.kind == "local":
        where = (*place, "environments", "build")
        for image, folder in rules.build.items():
            if not Path(folder).is_dir():
                text = f"the folder {folder}, which image {image} is built from, does not exist"
                findings.error("folder", f"{named}, [pool.environments] build", text, where)
        if rules.links and not Path(rules.links).is_dir():
            text = f"the folder {rules.links} does not exist"
            where = (*place, "environments", "links")
            findings.error("folder", f"{named}, [pool.environments] links", text, where)


def _files_of(settings: Any) -> list[tuple[str, str]]:
    """Return the files that the settings of a grid name: fields that end in `_file`, and values."""
    if not is_dataclass(settings):
        return []
    found: list[tuple[str, str]] = []
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.name.endswith("_file") and isinstance(value, str) and value:
            found.append((each.name, value))
        elif is_dataclass(value):
            found += [(f"{each.name}.{key}", path) for key, path in _files_of(value)]
    return found
