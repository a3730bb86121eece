"""A site's keys on disk: for their owner alone, and never half written.

    identity/
    ├── current.pem   signing key, TLS key and leaf that the site uses
    ├── next.pem      those that it will use, while they rotate
    ├── switched      since when they are used
    ├── retired/      those that it used before, for members that know no others yet
    ├── boot          how often the site has started
    ├── leaf.pem      what nng is told to show; made from the above
    └── pins.pem, pins/   what nng is told to believe; made from the trust book

A generation of keys is one file, so that taking the next for the current is one rename: there is
no moment at which a crash leaves half of each.
"""

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from federation.errors import GridError
from federation.identity import SiteKey
from federation.statements import SiteCard, next_serial
from federation.transport import TlsSettings
from gateway.certificates import OwnLeaf, make_leaf, to_pem

# How long a card that names the next keys must have been out before they are used, at the least:
# all approved members must have acknowledged it as well.
SPREAD_S: Final = 3600.0
# How long those are waited for. One that was away for longer is met with the keys that it knows.
AWAIT_S: Final = 7 * 86400.0
# Retired keys that are kept for that. A card chain is as long (standing.LINEAGE_MAX).
RETIRED_MAX: Final = 8
# How long the old keys stay on the card after that: what was signed with them is still under way
# (EnvelopeLimits.age_max_s), and pipes made with the old leaf end.
OVERLAP_S: Final = 1200.0

_FILE_BYTES_MAX: Final = 64 << 10
_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


class KeyFileError(GridError):
    """A key file that can't be used; the text says which, why, and what to do."""


class FolderInUse(KeyFileError):
    """Another process holds the folder: the gateway, or a command."""


# --- files ---------------------------------------------------------------------------------------


def make_private(folder: Path) -> None:
    """Have a folder; whatever is made of it and on the way to it is for its owner alone.

    `Path.mkdir` gives those on the way what the umask leaves.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file for its owner alone: the old one or the new one is there, whatever happens."""
    make_private(path.parent)
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.rename(path)
    _sync_folder(path.parent)


def read_private(path: Path, bytes_max: int = _FILE_BYTES_MAX) -> bytes:
    """Read a file that nobody but its owner may read.

    Raises:
        KeyFileError: it is not there, can be read or changed by others, or is too large.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise KeyFileError(f"{path} is not a file")
            if found.st_uid not in (os.geteuid(), 0):
                raise KeyFileError(f"{path} belongs to another user: chown it to the gateway's")
            if found.st_mode & 0o077:
                raise KeyFileError(
                    f"{path} can be read by others (mode {stat.S_IMODE(found.st_mode):04o}): "
                    f"chmod 600 {path}, and rotate what is in it if others may have seen it"
                )
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from None
    if len(content) > bytes_max:
        raise KeyFileError(f"{path} is over {bytes_max:,} bytes")
    return content


def _open_at_once(path: str, flags: int) -> int:
    # A named pipe in the place of the file would keep us waiting for ever.
    return os.open(path, flags | os.O_NONBLOCK)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep every other process from changing this folder while ours may: gateway or command line.

    Raises:
        FolderInUse: another process holds it.
    """
    make_private(folder)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(f"{folder} is in use by another process: the gateway runs") from None
        yield
    finally:
        os.close(descriptor)


def next_boot(folder: Path, now_s: float, seen: int = 0) -> int:
    """Count this start of the site: higher than any before, on disk before it is returned.

    It is never lower than the epoch second, so that a disk that was set back does not repeat an
    old boot; nor than one above `seen`, the highest that the other sites say they saw of us.
    """
    path = folder / "boot"
    last = 0
    if path.exists():
        text = read_private(path).strip()
        if not text.isdigit() or len(text) > 18:
            raise KeyFileError(f"{path} does not hold a number")
        last = int(text)
    boot = max(last + 1, int(now_s), seen + 1)
    write_private(path, b"%d\n" % boot)
    return boot


# --- keys ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Generation:
    """The keys that a site uses together: one to sign, a leaf for TLS."""

    seed: bytes = field(repr=False)
    leaf: OwnLeaf
    key: SiteKey = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", SiteKey(self.seed))


@dataclass(frozen=True, slots=True)
class KeyRing:
    """A site's keys: those it has, those that will follow while it rotates them, and old ones.

    `retired` are kept for members that have not acknowledged any newer ones; the newest first.
    """

    current: Generation
    next: Generation | None = None
    retired: tuple[Generation, ...] = ()

    @property
    def generations(self) -> tuple[Generation, ...]:
        """In the order in which a card names them."""
        return (self.current,) if self.next is None else (self.current, self.next)

    def active(self, rotation: "Rotation") -> Generation:
        """What to sign with and to show in TLS now."""
        return self.next if rotation is not Rotation.SPREADING and self.next else self.current

    def for_member(self, rotation: "Rotation", known: Collection[bytes]) -> tuple[Generation, ...]:
        """What to dial a member with, one after the other.

        Args:
            rotation: how far ours is.
            known: our signing keys that it has acknowledged; none if it has not said.

        Returns:
            What we use, if it knows that; else that and what it may know.
        """
        active = self.active(rotation)
        if active.key.public in known:
            return (active,)
        older = (self.current, *self.retired)
        others = [each for each in older if each is not active]
        matching = [each for each in others if each.key.public in known]
        return (*matching, active) if matching else (active, *others)

    def card(
        self, federation: str, site: str, addresses: Sequence[str], contact: str, now_s: float
    ) -> SiteCard:
        """A card that names these keys: to be signed for a new site, or given to TrustBook.renew.

        It is always signed by the current key, also while the next one signs everything else.
        """
        return SiteCard(
            federation=federation,
            site=site,
            keys=tuple(each.key.public for each in self.generations),
            past=(),
            leaves=tuple(each.leaf.certificate for each in self.generations),
            addresses=tuple(addresses),
            contact=contact,
            serial=next_serial(0, now_s),
            issued_s=now_s,
        )


class Rotation(StrEnum):
    """How far a site's rotation is."""

    NONE = "none"
    SPREADING = "spreading"  # the card names the next keys; the current ones are used
    SWITCHED = "switched"  # the next keys are used; both are named, and believed
    DUE = "due"  # take the next for the current, and issue a card without the old


def rotation(
    card: SiteCard, switched_s: float | None, now_s: float, overlap_s: float = OVERLAP_S
) -> Rotation:
    """How far our rotation is.

    Args:
        card: our newest one.
        switched_s: since when the next keys are used, UTC; None as long as they are not.
        now_s: UTC.
        overlap_s: how long both are believed from then on.
    """
    if len(card.keys) == 1:
        return Rotation.NONE
    if switched_s is None:
        return Rotation.SPREADING
    return Rotation.SWITCHED if now_s - switched_s < overlap_s else Rotation.DUE


def make_generation(site: str, hosts: Sequence[str], now_s: float) -> Generation:
    """Fresh keys, from the system's randomness."""
    return Generation(secrets.token_bytes(32), make_leaf(site, hosts, now_s))


def create_keys(folder: Path, generation: Generation) -> None:
    """Store a new site's keys (`gridfed init`); KeyFileError when it has some already."""
    if (folder / "current.pem").exists():
        raise KeyFileError(f"{folder} holds the keys of a site already")
    write_private(folder / "current.pem", _to_pem(generation))


def load_keys(folder: Path) -> KeyRing:
    """Read a site's keys; KeyFileError when there are none, or they can't be used."""
    following = folder / "next.pem"
    current = _from_pem(folder / "current.pem")
    retired = [_from_pem(path) for path in reversed(_retired(folder))]
    return KeyRing(
        current,
        _from_pem(following) if following.exists() else None,
        tuple(each for each in retired if each != current),  # after a crash it may be both
    )


def _retired(folder: Path) -> list[Path]:
    """The files of retired keys, the oldest first."""
    return sorted((folder / "retired").glob("*.pem"))


def add_next(folder: Path, generation: Generation) -> None:
    """Begin to rotate: store the next keys. Issue a card that names them, then."""
    if (folder / "next.pem").exists():
        raise KeyFileError(f"{folder} holds next keys already: the rotation is under way")
    write_private(folder / "next.pem", _to_pem(generation))


def switched_s(folder: Path) -> float | None:
    """Since when the next keys are used, UTC; None if they are not, or there are none."""
    path = folder / "switched"
    if not path.exists() or not (folder / "next.pem").exists():
        return None
    text = read_private(path).strip()
    if not text.isdigit() or len(text) > 18:
        raise KeyFileError(f"{path} does not hold a number")
    return float(text)


def switch(folder: Path, now_s: float) -> None:
    """Use the next keys from now on."""
    write_private(folder / "switched", b"%d\n" % int(now_s))


def promote_next(folder: Path, *, retire: bool = True) -> None:
    """End a rotation: the next keys become the current ones.

    Args:
        folder: of the keys.
        retire: keep the old ones for members that know no others; else all old ones are gone.
    """
    if retire:
        _retire(folder)
    else:
        drop_retired(folder)
    try:
        (folder / "next.pem").rename(folder / "current.pem")
    except OSError as error:
        raise KeyFileError(f"{folder / 'next.pem'}: {error.strerror}") from None
    (folder / "switched").unlink(missing_ok=True)
    _sync_folder(folder)


def _retire(folder: Path) -> None:
    content = read_private(folder / "current.pem")
    kept = _retired(folder)
    if not kept or read_private(kept[-1]) != content:
        last = int(kept[-1].stem) if kept else 0
        write_private(folder / "retired" / f"{last + 1:06d}.pem", content)
    for path in _retired(folder)[:-RETIRED_MAX]:
        path.unlink()


def drop_retired(folder: Path) -> None:
    """Every member that matters knows newer keys, or the old ones are compromised."""
    for path in (*_retired(folder), *folder.glob("leaf-*.pem")):
        path.unlink()


def write_leaf(folder: Path, generation: Generation) -> Path:
    """Write certificate and key where nng can read them."""
    path = folder / "leaf.pem"
    _write_changed(path, generation.leaf.pem)
    return path


def write_old_leaf(folder: Path, generation: Generation) -> Path:
    """Likewise, for a generation that is not the one we use; `drop_retired` removes it."""
    path = folder / f"leaf-{generation.key.public.hex()[:16]}.pem"
    _write_changed(path, generation.leaf.pem)
    return path


def write_pins(folder: Path, pins: Mapping[str, Sequence[bytes]]) -> Path:
    """Write the leaves that we believe: one file for a listener, and one a site to dial it with.

    Returns the listener's. A dialler that believed all of them would take any pinned site that
    puts another's name into its own leaf for that other.
    """
    place = folder / "pins"
    make_private(place)
    for old in place.glob("*.pem"):
        if old.stem not in pins:
            old.unlink()
    for site, leaves in pins.items():
        _write_changed(place / f"{site}.pem", to_pem(leaves).encode())
    path = folder / "pins.pem"
    _write_changed(path, to_pem(leaf for leaves in pins.values() for leaf in leaves).encode())
    return path


def _write_changed(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)


def dialler_tls(folder: Path, site: str, leaf: Path | None = None) -> TlsSettings:
    """How to dial a site: show our leaf, believe its pinned ones only, ask for its name."""
    shown = leaf or folder / "leaf.pem"
    return TlsSettings(str(shown), str(folder / "pins" / f"{site}.pem"), site)


def _to_pem(generation: Generation) -> bytes:
    private = ed25519.Ed25519PrivateKey.from_private_bytes(generation.seed)
    signing = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return signing + generation.leaf.key + to_pem([generation.leaf.certificate]).encode()


def _from_pem(path: Path) -> Generation:
    content = read_private(path)
    blocks = [(match[1], match[0]) for match in _PEM.finditer(content)]
    if [label for label, _ in blocks] != [b"PRIVATE KEY", b"PRIVATE KEY", b"CERTIFICATE"]:
        raise KeyFileError(f"{path} must hold a signing key, a TLS key and its certificate, PEM")
    try:
        signing = load_pem_private_key(blocks[0][1], None)
        tls = load_pem_private_key(blocks[1][1], None)
        leaf = x509.load_pem_x509_certificate(blocks[2][1])
    except (ValueError, TypeError) as error:
        raise KeyFileError(f"{path} can't be read: {type(error).__name__}") from None
    if not isinstance(signing, ed25519.Ed25519PrivateKey):
        raise KeyFileError(f"{path}: its first key must be Ed25519")
    if not isinstance(tls, ec.EllipticCurvePrivateKey) or _spki(tls.public_key()) != _spki(
        leaf.public_key()
    ):
        raise KeyFileError(f"{path}: the TLS key and the certificate don't belong together")
    return Generation(
        signing.private_bytes_raw(), OwnLeaf(leaf.public_bytes(Encoding.DER), blocks[1][1])
    )


def _spki(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
