"""The credentials of a site: its keys, the tokens and secrets of its pilots."""

from pathlib import Path
from typing import Final

from federation.address import is_local
from federation.clocks import UtcS
from federation.errors import GridError, ProtocolError
from federation.signed.identity import Untrusted
from federation.signed.tokens import UserToken, check_token
from gateway.base.secret_files import exposure, read_token
from gateway.base.toml_lines import Path as Place
from gateway.base.values import ConfigError
from gateway.checking.expiry import SOON_S, check_end
from gateway.checking.findings import FindingList
from gateway.config.pools import PoolConfig
from gateway.config.site import SiteConfig
from gateway.grids.scaling.opening import check_dial, needs_token
from gateway.trust import book_file
from gateway.trust.book import TrustBook
from gateway.trust.certificates import check_leaf
from gateway.trust.keys import load_keys

TRUST_FILE: Final = "trust.json"
_LAST_PART: Final = 0.25  # of the life of a token, in which it is told


def open_trust(config: SiteConfig, findings: FindingList, utc_s: UtcS) -> TrustBook | None:
    """Check the keys and the trust book of a member; return the book, None without a usable one."""
    if config.federation is None:
        return None
    place: Place = ("federation", "folder")
    if not any((config.trust_path / name).exists() for name in ("current.pem", TRUST_FILE)):
        text = f"there are no keys in {config.trust_path}: the site is in no federation"
        findings.warn("keys", "[federation]", f"{text}; make them with `gridfed init`", place)
        return None
    try:
        ring = load_keys(config.trust_path)
        book, _ = book_file.load(config.trust_path / TRUST_FILE)
        leaf = check_leaf(ring.current.leaf.certificate, book.site)
    except GridError as error:
        findings.error("keys", "[federation]", str(error), place, stops=True)
        return None
    except Untrusted as error:
        findings.error("keys", "[federation]", str(error), place)
        return None
    check_end(
        findings,
        ("keys-expire", "[federation]", place),
        leaf.ends_at_s,
        utc_s,
        "the site's own TLS certificate for other gateways",
        "make new keys with `gridfed rotate`",
    )
    if book.site != config.name:
        text = (
            f"the keys in {config.trust_path} are of site {book.site!r}, and [site] name is "
            f"{config.name!r}: they must be equal"
        )
        findings.error("site-name", "[site] name", text, ("site", "name"), stops=True)
    return book


def check_pilots(
    config: SiteConfig, book: TrustBook | None, findings: FindingList, utc_s: UtcS
) -> None:
    """Check the token and the address of each pool whose workers a grid starts."""
    for at, pool in enumerate(config.pools):
        if pool.scale is None:
            continue
        place: Place = ("pool", at, "scale")
        named = f"[[pool]] {pool.name}, [pool.scale]"
        if pool.scale.token_file:
            _check_token(pool, (*place, "token_file"), book, findings, utc_s)
        elif why := needs_token(config):
            findings.error("token-missing", f"{named} token_file", why, place, stops=True)
        elif not config.secret and any(not is_local(each) for each in config.addresses):
            text = "pilots have no token, and the site has no secret: set one of them"
            findings.warn("token-missing", f"{named} token_file", text, place)
        try:
            check_dial(pool, config.addresses)
        except GridError as error:
            text = str(error).removeprefix(f"pool {pool.name}: ")
            findings.error("dial", f"{named} dial", text, (*place, "dial"), stops=True)


def _check_token(
    pool: PoolConfig, place: Place, book: TrustBook | None, findings: FindingList, utc_s: UtcS
) -> None:
    assert pool.scale is not None
    name = pool.scale.token_file
    subject = f"[[pool]] {pool.name}, [pool.scale] token_file"
    try:
        text = read_token(name)
    except ConfigError as error:
        why = str(error).removeprefix("token_file ")
        findings.error("token-file", subject, why, place, stops=True)
        return
    if warning := exposure(name):
        findings.warn("file-exposed", subject, warning, place)
    if book is None or not text.startswith("gft1_"):
        return  # a pass, or a token of a site whose keys are not here
    remedy = f"make another with `gridfed token --user {pool.name} --scopes work:{pool.name}`"
    try:
        token = check_token(text, book, utc_s)
    except (Untrusted, ProtocolError) as error:
        path = Path(name).expanduser()
        why = f"the token in {path} is refused: {error}; {remedy}"
        findings.error("token", subject, why, place)
        return
    if not token.may_work_in(pool.name):
        scopes = ", ".join(sorted(token.scopes))
        why = f"the token allows {scopes}, and not work in this pool: {remedy}"
        findings.error("token", subject, why, place)
    _check_token_end(token, subject, place, findings, utc_s, remedy)


def _check_token_end(
    token: UserToken, subject: str, place: Place, findings: FindingList, utc_s: UtcS, remedy: str
) -> None:
    soon_s = min(SOON_S, _LAST_PART * float(token.expires_s - token.issued_s))
    about = ("token-expires", subject, place)
    check_end(findings, about, token.expires_s, utc_s, f"token {token.id}", remedy, soon_s)
