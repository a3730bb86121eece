"""The service package for Symphony's hosts and the application's profile, reproducibly.

    gridfed-service     started by Symphony: a shell script that starts service.py
    service.py          our service container, for the Python of `soamapi`
    soam_bytes.py
    lib/                gridfed, cloudpickle and msgpack, for the Python of the calls

It has no compiled code, so it fits every host; it has none of the libraries that calls need.
"""

import gzip
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

SOAM: Final = Path(__file__).parent / "soam"
LIBRARY: Final = ("federation", "gateway", "policies", "cloudpickle", "msgpack")
START_S: Final = 300  # time for a service to begin a session: an interpreter, and a function
LAUNCHER: Final = """#!/bin/sh
# The Python that soamapi was built for; the calls run in the one of $GRIDFED_PYTHON.
exec "${GRIDFED_SOAM_PYTHON:-python3}" -s "$(dirname "$0")/service.py"
"""


@dataclass(frozen=True, slots=True)
class ApplicationProfile:
    """The settings of a profile.

    Attributes:
        python: the interpreter of the calls on the hosts.
        soam_python: the one of `soamapi` there.
        memory_bytes: of a slot; 0: no limit.
        keep_sessions: whether a session survives the loss of its client, for its next run.
    """

    name: str = "gridfed"
    consumer: str = "/Gridfed"
    resource_group: str = "ComputeHosts"
    session_type: str = "gridfed"
    python: str = "python3"
    soam_python: str = "python3"
    memory_bytes: int = 0
    keep_sessions: bool = True


def build_package() -> bytes:
    """Return the package, a tar.gz."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, data, mode in sorted(_files()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _files() -> Iterator[tuple[str, bytes, int]]:
    yield "gridfed-service", LAUNCHER.encode(), 0o755
    for name in ("service.py", "soam_bytes.py"):
        yield name, (SOAM / name).read_bytes(), 0o644
    for package in LIBRARY:
        spec = find_spec(package)
        assert spec is not None, f"{package} is imported here"
        assert spec.origin is not None, f"{package} is a package with a file"
        root = Path(spec.origin).parent
        for path in root.rglob("*.py"):
            yield f"lib/{root.name}/{path.relative_to(root).as_posix()}", path.read_bytes(), 0o644


def profile(application: ApplicationProfile) -> str:
    """Return the application's profile, in the format of `soamreg`.

    Symphony retries a task once if its service ended or its host broke; a failure in a call is none
    to Symphony.
    """
    a = {
        "name": quoteattr(application.name),
        "consumer": quoteattr(application.consumer),
        "group": quoteattr(application.resource_group),
        "type": quoteattr(application.session_type),
        "abort": quoteattr("false" if application.keep_sessions else "true"),
    }
    environment = {
        "GRIDFED_PYTHON": application.python,
        "GRIDFED_SOAM_PYTHON": application.soam_python,
        "GRIDFED_SLOT_MEMORY": str(application.memory_bytes),
    }
    env = "\n".join(
        f"        <env name={quoteattr(key)}>{quoteattr(value)[1:-1]}</env>"
        for key, value in environment.items()
    )
    methods = "\n".join(
        _method(name, duration_s)
        for name, duration_s in (
            ("CreateService", START_S),
            ("SessionEnter", START_S),
            ("Invoke", 0),
        )
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Profile xmlns="http://www.platform.com/Symphony/Profile/Application">
  <Consumer applicationName={a["name"]} consumerId={a["consumer"]}
            resourceGroupName={a["group"]} policy="R_PriorityScheduling"
            taskHighWaterMark="1.0" taskLowWaterMark="1.0" preStartApplication="false"/>
  <SessionTypes>
    <Type name={a["type"]} recoverable="false" persistTaskHistory="none" priority="1"
          sessionRetryLimit="3" taskRetryLimit="1" abortSessionIfTaskFail="false"
          abortSessionIfClientDisconnect={a["abort"]} suspendGracePeriod="100"
          taskCleanupPeriod="100"/>
  </SessionTypes>
  <Service name="gridfed" description="calls of gridfed" packageName={a["name"]}>
    <osTypes>
      <osType name="all" startCmd="${{SOAM_DEPLOY_DIR}}/gridfed-service">
{env}
      </osType>
    </osTypes>
    <Control>
{methods}
    </Control>
  </Service>
</Profile>
"""


def _method(name: str, duration_s: int) -> str:
    return f"""      <Method name="{name}">
        <Timeout duration="{duration_s}" actionOnSI="restartService" actionOnWorkload="retry"/>
        <Exit actionOnSI="restartService" actionOnWorkload="retry"/>
        <Return controlCode="0" actionOnSI="keepAlive" actionOnWorkload="succeed"/>
        <Exception type="failure" controlCode="0" actionOnSI="keepAlive" actionOnWorkload="retry"/>
        <Exception type="fatal" controlCode="0" actionOnSI="keepAlive" actionOnWorkload="fail"/>
      </Method>"""
