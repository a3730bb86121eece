"""Uses `soamapi` for a gateway, in a process of the Python that library was built for.

It needs only the standard library. Requests come on standard input, answers and news go to standard
output; each is JSON and then bytes:

    4 bytes: length of the JSON · 4 bytes: length of the bytes · JSON · bytes

    {"n": 1, "do": "connect", "application": …, "user": …, "password": …, "keep": bool}
    {"n": 2, "do": "open", "name": …, "type": …, "priority": …, …} common data → {"session": id}
    {"n": 3, "do": "send", "session": id} task input                           → {"task": id}
    {"n": 4, "do": "kill", "session": id, "tasks": […]}
    {"n": 5, "do": "close", "session": id}              with all its tasks, also a former run's
    {"n": 6, "do": "reopen", "session": id}             listen to a former run's → {"open": bool}
    {"n": 0, "do": "end", "close": bool}                the last; it has no answer

    {"n": 3, …} or {"n": 3, "error": text, "never": …}                  answers
    {"on": "outcome", "session": id, "task": id, "ok": …, "text": …} task output
    {"on": "gone", "session": id, "text": …}                            the session has ended

An outcome may come before the answer that names its task. When standard input ends without a last
request the gateway was killed: if its connection said "keep" the sessions are detached, for its
next run to open again, else they are closed, so nothing is left running. The exit code is 0 on
success, 1 after a fault, 2 when a session could not be closed.
"""

import json
import os
import struct
import sys
import threading
import traceback
from typing import Any

import soamapi
from soam_bytes import Bytes

HEADER = struct.Struct("!II")


class Pipe:
    """Private copies of standard input and output: the library's prints go to standard error."""

    def __init__(self) -> None:
        self._in = os.fdopen(os.dup(0), "rb")
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self.is_cut = False  # the gateway is gone

    def read(self) -> tuple:
        """Return a request and its bytes; None at the end."""
        head = self._in.read(HEADER.size)
        if len(head) < HEADER.size:
            return None, b""
        length, size = HEADER.unpack(head)
        said = self._in.read(length)
        data = self._in.read(size)
        if len(said) < length or len(data) < size:
            return None, b""
        return json.loads(said.decode("utf-8")), data

    def write(self, said: dict, data: bytes = b"") -> None:
        """Write an answer, or news."""
        text = json.dumps(said).encode("utf-8")
        with self._lock:
            if self.is_cut:
                return
            try:
                self._out.write(HEADER.pack(len(text), len(data)) + text + data)
                self._out.flush()
            except OSError:
                self.is_cut = True


class Callback(soamapi.SessionCallback):
    """The callbacks of Symphony, on a thread of its own: an exception here would be lost."""

    def __init__(self, pipe: Pipe) -> None:
        soamapi.SessionCallback.__init__(self)
        self._pipe = pipe
        self.session = ""
        self._known = threading.Event()

    def name(self, session: str) -> None:
        """Set the session's id: from now on news can be reported."""
        self.session = session
        self._known.set()

    def on_response(self, handle: "soamapi.TaskOutputHandle") -> None:
        """Report that a task has ended."""
        self._known.wait()
        said = {"on": "outcome", "session": self.session, "task": str(handle.get_id())}  # type: dict
        data = b""
        try:
            said["ok"] = bool(handle.is_successful())
            if said["ok"]:
                message = Bytes()
                handle.populate_task_output(message)
                data = message.data
            else:
                said["text"] = _explain(handle.get_exception())
        except Exception as error:
            said["ok"], said["text"] = False, "the output is invalid: {}".format(error)
        self._pipe.write(said, data)

    def on_exception(self, error: Exception) -> None:
        """Report that the session has ended."""
        self._known.wait()
        self._pipe.write({"on": "gone", "session": self.session, "text": _explain(error)})


class SoamSide:
    """The requests of a gateway."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._connection = None  # type: Any
        self._sessions = {}  # type: dict
        self._keep = False

    def serve(self) -> None:
        """Serve requests until the last one."""
        soamapi.initialize()
        while True:
            request, data = self._pipe.read()
            if request is None:
                return
            if request["do"] == "end":
                self._keep = not request["close"]
                return
            if self._pipe.is_cut:
                continue  # the gateway is gone; the end will come
            answer = {"n": request["n"]}
            try:
                answer.update(getattr(self, "do_" + request["do"])(request, data) or {})
            except Exception as error:
                answer["error"] = _explain(error)
            self._pipe.write(answer)

    def do_connect(self, request: dict, data: bytes) -> dict:
        """Connect to an application."""
        security = soamapi.DefaultSecurityCallback(request["user"], request["password"])
        self._connection = soamapi.connect(request["application"], security)
        self._keep = bool(request.get("keep"))
        return {"connection": str(self._connection.get_id())}

    def do_open(self, request: dict, data: bytes) -> dict:
        """Open a session for one function."""
        callback = Callback(self._pipe)
        wanted = soamapi.SessionCreationAttributes()
        wanted.set_session_name(request["name"])
        wanted.set_session_type(request["type"])
        wanted.set_session_flags(soamapi.SessionFlags.PARTIAL_ASYNC)
        wanted.set_session_callback(callback)
        wanted.set_common_data(Bytes(data))
        if request.get("priority"):
            wanted.set_session_priority(request["priority"])
        if request.get("tag"):
            wanted.set_session_tag(request["tag"])
        if request.get("resource_group"):
            wanted.set_resource_group_filter(request["resource_group"])
        if request.get("service"):
            wanted.set_service_name(request["service"])
        session = self._connection.create_session(wanted)
        name = str(session.get_id())
        self._sessions[name] = session
        callback.name(name)
        return {"session": name}

    def do_send(self, request: dict, data: bytes) -> dict:
        """Send a task."""
        wanted = soamapi.TaskSubmissionAttributes()
        wanted.set_task_input(Bytes(data))
        handle = self._sessions[request["session"]].send_task_input(wanted)
        return {"task": str(handle.get_id())}

    def do_kill(self, request: dict, data: bytes) -> None:
        """Kill tasks in any state; ended ones do not matter any more."""
        session = self._sessions[request["session"]]
        for task in request["tasks"]:
            session.kill_task(task)

    def do_reopen(self, request: dict, data: bytes) -> dict:
        """Listen to a session of a former run again."""
        session = self._reopen(request["session"])
        if session is not None:
            self._sessions[request["session"]] = session
        return {"open": session is not None}

    def do_close(self, request: dict, data: bytes) -> None:
        """Close a session with all its tasks; one of a former run is reopened for that."""
        name = request["session"]
        session = self._sessions.pop(name, None) or self._reopen(name)
        if session is not None:
            session.close(soamapi.SessionCloseFlags.DESTROY_ON_CLOSE)

    def _reopen(self, name: str) -> Any:
        """Reopen a session of a former run; None if there is none: it was closed, or aborted."""
        wanted = soamapi.SessionOpenAttributes()
        wanted.set_session_id(name)
        wanted.set_session_flags(soamapi.SessionFlags.PARTIAL_ASYNC)
        callback = Callback(self._pipe)
        callback.name(name)
        wanted.set_session_callback(callback)
        try:
            return self._connection.open_session(wanted)
        except soamapi.SoamException:
            return None

    def close(self) -> bool:
        """Close all open sessions, or detach them; return whether that succeeded."""
        flag = soamapi.SessionCloseFlags.DESTROY_ON_CLOSE
        if self._keep:
            flag = soamapi.SessionCloseFlags.DETACH_ON_CLOSE
        is_well = True
        for name, session in list(self._sessions.items()):
            try:
                session.close(flag)
            except soamapi.SoamException as error:
                sys.stderr.write("gridfed: session {} can't be closed: {}\n".format(name, error))
                is_well = False
        if self._connection is not None:
            self._connection.close()
        soamapi.uninitialize()
        return is_well


def _explain(error: object) -> str:
    """Describe an exception of the library's, with the one that the service raised."""
    embedded = getattr(error, "get_embedded_exception", lambda: None)()
    if embedded is not None:
        return "the service raised {}: {}".format(type(embedded).__name__, embedded)
    return "{}: {}".format(type(error).__name__, error)


def main() -> None:
    """Serve, and exit without the library's own end, which aborts."""
    code = 1
    try:
        side = SoamSide(Pipe())
        try:
            side.serve()
        finally:
            is_well = side.close()
        code = 0 if is_well else 2
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
