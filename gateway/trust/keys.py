"""A site's keys on disk: readable by their owner only, and written atomically.

    identity/
    ├── current.pem   signing key, TLS key and leaf that the site uses
    ├── next.pem      the next ones, during a rotation
    ├── switched      the time since when the next ones are used
    ├── retired/      earlier ones, for members that know no newer ones yet
    ├── boot          how often the site has started
    ├── leaf.pem      the leaf that nng shows; made from the above
    └── pins.pem, pins/   the leaves that nng trusts; made from the trust book

A generation of keys is one file, so promoting the next one is one rename: no crash can leave half
of each.
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

from federation.clocks import UtcS
from federation.errors import GridError
from federation.files import open_at_once
from federation.signed.declarations import SiteCard, next_serial
from federation.signed.identity import SiteKey
from federation.transport import TlsSettings
from gateway.config.federation import OVERLAP_S
from gateway.trust.certificates import OwnLeaf, make_leaf, to_pem

# Retired keys kept for such members. A card chain is as long (standing.LINEAGE_MAX).
RETIRED_MAX: Final = 8

_FILE_BYTES_MAX: Final = 64 << 10
_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


class KeyFileError(GridError):
    """A key file that can't be used; the text says which file, the reason, and the remedy."""


class FolderInUse(KeyFileError):
    """Another process holds the folder: the gateway, or a command."""


# --- files ---------------------------------------------------------------------------------------


def make_private(folder: Path) -> None:
    """Make a folder, if missing; all folders that are created are accessible by their owner only.

    `Path.mkdir` would create the parents with the umask's mode.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file for its owner alone; the replacement is atomic."""
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
    """Read a file that only its owner may read.

    Raises:
        KeyFileError: the file is missing, accessible to others, or too large.
    """
    try:
        with open(path, "rb", opener=open_at_once) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise KeyFileError(f"{path} is not a regular file")
            if found.st_uid not in (os.geteuid(), 0):
                raise KeyFileError(
                    f"{path} belongs to another user: chown it to the gateway's user"
                )
            if found.st_mode & 0o077:
                raise KeyFileError(
                    f"{path} is readable by other users (mode "
                    f"{stat.S_IMODE(found.st_mode):04o}): chmod 600 {path}, and rotate its "
                    "content if others may have read it"
                )
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from None
    if len(content) > bytes_max:
        raise KeyFileError(f"{path} is over {bytes_max:,} bytes")
    return content


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Lock this folder against changes by other processes, be they gateways or commands.

    Raises:
        FolderInUse: another process holds it.
    """
    make_private(folder)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"{folder} is in use by another process: the gateway is running"
            ) from None
        yield
    finally:
        os.close(descriptor)


def next_boot(folder: Path, utc_s: UtcS, seen: int = 0) -> int:
    """Count this start of the site: higher than any before, on disk before it is returned.

    The result is at least the epoch second, so that a disk restored from a backup does not repeat
    an old boot. It is at least one above `seen`, the highest boot that other sites report for us.
    """
    path = folder / "boot"
    last = 0
    if path.exists():
        text = read_private(path).strip()
        if not text.isdigit() or len(text) > 18:
            raise KeyFileError(f"{path} does not hold a number")
        last = int(text)
    boot = max(last + 1, int(utc_s), seen + 1)
    write_private(path, b"%d\n" % boot)
    return boot


# --- keys ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Generation:
    """The keys that a site uses together: a signing key and a TLS leaf."""

    seed: bytes = field(repr=False)
    leaf: OwnLeaf
    key: SiteKey = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", SiteKey(self.seed))


@dataclass(frozen=True, slots=True)
class KeyRing:
    """A site's keys: the current ones, the next ones during a rotation, and retired ones.

    `retired` are kept for members that have not acknowledged any newer ones; the newest first.
    """

    current: Generation
    next: Generation | None = None
    retired: tuple[Generation, ...] = ()

    @property
    def generations(self) -> tuple[Generation, ...]:
        """The generations in the order in which a card names them."""
        return (self.current,) if self.next is None else (self.current, self.next)

    def active(self, rotation: "Rotation") -> Generation:
        """Return the generation to sign with and to show in TLS now."""
        return self.next if rotation is not Rotation.SPREADING and self.next else self.current

    def for_member(self, rotation: "Rotation", known: Collection[bytes]) -> tuple[Generation, ...]:
        """Return the generations to dial a member with, in order.

        Args:
            rotation: the state of our rotation.
            known: our signing keys that the member has acknowledged; empty if it has not said.

        Returns:
            The active generation, if the member knows it; otherwise also those that it may know.
        """
        active = self.active(rotation)
        if active.key.public in known:
            return (active,)
        older = (self.current, *self.retired)
        others = [each for each in older if each is not active]
        matching = [each for each in others if each.key.public in known]
        return (*matching, active) if matching else (active, *others)

    def card(
        self, federation: str, site: str, addresses: Sequence[str], contact: str, utc_s: UtcS
    ) -> SiteCard:
        """Return a card that names these keys: to sign for a new site, or for TrustBook.renew.

        It is always signed with the current key, even while the next one signs everything else.
        """
        return SiteCard(
            federation=federation,
            site=site,
            keys=tuple(each.key.public for each in self.generations),
            past=(),
            leaves=tuple(each.leaf.certificate for each in self.generations),
            addresses=tuple(addresses),
            contact=contact,
            serial=next_serial(0, utc_s),
            issued_s=utc_s,
        )


class Rotation(StrEnum):
    """The state of a site's key rotation."""

    NONE = "none"
    SPREADING = "spreading"  # the card names the next keys; the current ones are used
    SWITCHED = "switched"  # the next keys are used; both are named and trusted
    DUE = "due"  # promote the next keys, and issue a card without the old ones


def rotation(
    card: SiteCard, switched_at_s: UtcS | None, utc_s: UtcS, overlap_s: float = OVERLAP_S
) -> Rotation:
    """Return the state of our rotation.

    Args:
        card: our newest card.
        switched_at_s: since when the next keys are used, UTC; None while they are not.
        utc_s: now.
        overlap_s: how long both are trusted from then on.
    """
    if len(card.keys) == 1:
        return Rotation.NONE
    if switched_at_s is None:
        return Rotation.SPREADING
    return Rotation.SWITCHED if utc_s - switched_at_s < overlap_s else Rotation.DUE


def make_generation(site: str, hosts: Sequence[str], utc_s: UtcS) -> Generation:
    """Make fresh keys from the system's randomness."""
    return Generation(secrets.token_bytes(32), make_leaf(site, hosts, utc_s))


def create_keys(folder: Path, generation: Generation) -> None:
    """Store a new site's keys (`gridfed init`); KeyFileError when it has some already."""
    if (folder / "current.pem").exists():
        raise KeyFileError(f"{folder} has the keys of a site already")
    write_private(folder / "current.pem", _to_pem(generation))


def load_keys(folder: Path) -> KeyRing:
    """Read a site's keys; KeyFileError when there are none, or they can't be used."""
    following = folder / "next.pem"
    current = _from_pem(folder / "current.pem")
    retired = [_from_pem(path) for path in reversed(_retired(folder))]
    return KeyRing(
        current,
        _from_pem(following) if following.exists() else None,
        tuple(each for each in retired if each != current),  # after a crash a key may be both
    )


def _retired(folder: Path) -> list[Path]:
    """Return the files of retired keys, the oldest first."""
    return sorted((folder / "retired").glob("*.pem"))


def add_next(folder: Path, generation: Generation) -> None:
    """Start a rotation: store the next keys. Then issue a card that names them."""
    if (folder / "next.pem").exists():
        raise KeyFileError(f"{folder} has next keys already: a rotation is in progress")
    write_private(folder / "next.pem", _to_pem(generation))


def switched_at_s(folder: Path) -> UtcS | None:
    """Return since when the next keys are used, UTC; None if they are unused or missing."""
    path = folder / "switched"
    if not path.exists() or not (folder / "next.pem").exists():
        return None
    text = read_private(path).strip()
    if not text.isdigit() or len(text) > 18:
        raise KeyFileError(f"{path} does not hold a number")
    return UtcS(int(text))


def switch(folder: Path, utc_s: UtcS) -> None:
    """Use the next keys from now on."""
    write_private(folder / "switched", b"%d\n" % int(utc_s))


def promote_next(folder: Path, *, retire: bool = True) -> None:
    """End a rotation: the next keys become the current ones.

    Args:
        folder: the folder of the keys.
        retire: keep the old keys for members that know no others; otherwise delete all old keys.
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
    """Delete the retired keys: all relevant members know newer ones, or these are compromised."""
    for path in (*_retired(folder), *folder.glob("leaf-*.pem")):
        path.unlink()


def write_leaf(folder: Path, generation: Generation) -> Path:
    """Write certificate and key to a file that nng can read."""
    path = folder / "leaf.pem"
    _write_changed(path, generation.leaf.pem)
    return path


def write_old_leaf(folder: Path, generation: Generation) -> Path:
    """Write the leaf of a generation that is not the active one; `drop_retired` removes it."""
    path = folder / f"leaf-{generation.key.public.hex()[:16]}.pem"
    _write_changed(path, generation.leaf.pem)
    return path


def write_pins(folder: Path, pins: Mapping[str, Sequence[bytes]]) -> Path:
    """Write the trusted leaves: one file for a listener, and one for each site to dial.

    Returns the listener's file. A dialler that trusted all leaves would mistake one pinned site for
    another whose name that site puts into its own leaf.
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
    """Return TLS settings to dial a site: show our leaf, trust only its pins, ask for its name."""
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
        raise KeyFileError(
            f"{path} must contain a signing key, a TLS key and its certificate, in PEM"
        )
    try:
        signing = load_pem_private_key(blocks[0][1], None)
        tls = load_pem_private_key(blocks[1][1], None)
        leaf = x509.load_pem_x509_certificate(blocks[2][1])
    except (ValueError, TypeError) as error:
        raise KeyFileError(f"{path} can't be read: {type(error).__name__}") from None
    if not isinstance(signing, ed25519.Ed25519PrivateKey):
        raise KeyFileError(f"{path}: the first key must be Ed25519")
    if not isinstance(tls, ec.EllipticCurvePrivateKey) or _spki(tls.public_key()) != _spki(
        leaf.public_key()
    ):
        raise KeyFileError(f"{path}: the TLS key does not match the certificate")
    return Generation(
        signing.private_bytes_raw(), OwnLeaf(leaf.public_bytes(Encoding.DER), blocks[1][1])
    )


def _spki(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
