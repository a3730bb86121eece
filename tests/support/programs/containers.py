"""A container image with a Python in it, made of this host's own files: no registry is asked.

Tests that need a program which is not here are skipped, and say which; `.ci/run` installs them.
"""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from gateway.worker.isolation.identities import sandbox_user

IMAGE = "localhost/gridfed-test:1"
OTHER_PYTHON = "localhost/gridfed-test:other-python"
LIBRARIES = re.compile(r"(/\S+) \(0x")
OF_GLIBC = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6", "libutil.so.1")
LEFT_OUT = ("__pycache__", "/test/", "dist-packages", "/config-3")


def system_python() -> Path:
    """Debian's own Python of our minor version: it needs nothing but the system's libraries."""
    import sys

    found = Path(f"/usr/bin/python3.{sys.version_info.minor}")
    if not found.exists():
        pytest.skip(f"an image is made of {found}, which is not here")
    return found


def shut_uid(site: str) -> int:
    """The user id of a site's work in bubblewrap, as seen inside."""
    return sandbox_user(site) if os.geteuid() == 0 else 65534


# Debian's packages of programs that have another name.
PACKAGES = {"bwrap": "bubblewrap", "docker": "docker.io", "setpriv": "util-linux"}


def need(*programs: str) -> None:
    """Skip a test where a program is missing."""
    for program in programs:
        if shutil.which(program) is None:
            package = PACKAGES.get(program, program)
            pytest.skip(f"{program} is not installed (apt-get install {package})")


def has_image(name: str) -> bool:
    return subprocess.run(["podman", "image", "exists", name], check=False).returncode == 0


def import_image(folder: Path, name: str = IMAGE) -> str:
    """Have an image with a Python, a shell and nothing else; its name."""
    need("podman", "runc")
    system_python()
    if not has_image(name):
        path = write_image(folder)
        subprocess.run(["podman", "import", "-q", str(path), name], check=True, capture_output=True)
        path.unlink()
    return name


def write_image(folder: Path) -> Path:
    """The file system of such an image, as a tar file."""
    path = folder / "image.tar"
    _write(path, system_python())
    return path


def _write(path: Path, python: Path) -> None:
    library = Path("/usr/lib") / python.name
    programs = [python, Path("/bin/sh"), Path("/bin/sleep")]
    files = {*programs}
    for each in (*programs, *(library / "lib-dynload").glob("*.so")):
        told = subprocess.run(["ldd", str(each)], check=False, capture_output=True, text=True)
        files.update(map(Path, LIBRARIES.findall(told.stdout)))
    # What every image with glibc has, and libraries that are older than its last merger look for.
    beside = next(each for each in files if each.name == "libc.so.6").parent
    files.update(each for each in map(beside.joinpath, OF_GLIBC) if each.exists())
    with tarfile.open(path, "w") as tar:
        folders = {"tmp", "proc", "sys", "dev", "run", "etc", "usr"}
        # docker keeps what is not named here from all users but root.
        for each in (*files, library):
            place = Path(os.path.realpath(each.parent)).relative_to("/")
            folders |= {str(way) for way in (place, *place.parents)} - {"."}
        for folder in sorted(folders):
            _add_entry(tar, folder, tarfile.DIRTYPE)
        for link in ("bin", "lib", "lib64", "sbin"):
            _add_entry(tar, link, tarfile.SYMTYPE, f"usr/{link}")
        for each in sorted(files):
            # Under the folder's real name, and by content: /lib is a link here and there.
            place = Path(os.path.realpath(each.parent)) / each.name
            tar.add(os.path.realpath(each), str(place).lstrip("/"))
        _add_entry(tar, "usr/bin/python3", tarfile.SYMTYPE, python.name)
        tar.add(library, str(library).lstrip("/"), filter=_keep)


def _keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if any(part in f"/{entry.name}" for part in LEFT_OUT) else entry


def _add_entry(tar: tarfile.TarFile, name: str, kind: bytes, to: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, to
    entry.mode = 0o1777 if name == "tmp" else 0o755
    tar.addfile(entry)
