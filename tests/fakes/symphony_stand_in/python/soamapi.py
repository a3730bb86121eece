"""A stand-in for the surface of `soamapi` that gridfed uses, in our own words; not the product.

Client and service container talk to a cluster of tests (symphony_stand_in.cluster) over a socket
that $SYMPHONY_STAND_IN names. docs/grids_symphony.md says which parts of this are known of the real
library, and which are assumed. Like the real one it aborts when the interpreter ends.
"""

import array
import atexit
import itertools
import os
import queue
import threading
from multiprocessing.connection import Client

_state = {"initialized": False}


class SoamException(Exception):
    def __init__(self, text="", embedded=None):
        super().__init__(text)
        self._embedded = embedded

    def get_embedded_exception(self):
        return self._embedded


class FailureException(SoamException):
    pass


class FatalException(SoamException):
    pass


class SessionFlags:
    PARTIAL_ASYNC = 1
    RECEIVE_SYNC = 2


class SessionCloseFlags:
    DESTROY_ON_CLOSE = 1
    DETACH_ON_CLOSE = 2


class Message:
    def on_serialize(self, stream):
        raise NotImplementedError

    def on_deserialize(self, stream):
        raise NotImplementedError


class OutputStream:
    def __init__(self):
        self.parts = []

    def write_byte_array(self, data, offset, length):
        if not isinstance(data, array.array) or data.typecode not in "bB":
            raise SoamException("write_byte_array takes an array of bytes")
        self.parts.append(data[offset : offset + length].tobytes())


class InputStream:
    def __init__(self, parts):
        self._parts = list(parts)

    def read_byte_array(self, type_code):
        if type_code not in ("b", "B"):
            raise SoamException("read_byte_array takes b or B")
        if not self._parts:
            raise SoamException("nothing is left to read")
        return array.array(type_code, self._parts.pop(0))


def _write(message):
    if not isinstance(message, Message):
        raise SoamException("no Message")
    stream = OutputStream()
    message.on_serialize(stream)
    return stream.parts


def _read(message, parts):
    message.on_deserialize(InputStream(parts))


# --- the client ----------------------------------------------------------------------------------


def initialize():
    _state["initialized"] = True


def uninitialize():
    _state["initialized"] = False


class DefaultSecurityCallback:
    def __init__(self, user, password):
        self.user, self.password = user, password


class SessionCallback:
    def on_response(self, handle):
        raise NotImplementedError

    def on_exception(self, error):
        raise NotImplementedError


class _Attributes:
    def __init__(self):
        self.values = {"flags": 0, "callback": None}

    def set_session_flags(self, flags):
        self.values["flags"] = flags

    def set_session_callback(self, callback):
        self.values["callback"] = callback


class SessionCreationAttributes(_Attributes):
    def set_session_name(self, name):
        self.values["name"] = str(name)

    def set_session_type(self, kind):
        self.values["type"] = str(kind)

    def set_common_data(self, message):
        self.values["common"] = _write(message)

    def set_session_priority(self, priority):
        if not 1 <= priority <= 10_000:
            raise SoamException("a priority is 1 to 10,000")
        self.values["priority"] = priority

    def set_session_tag(self, tag):
        self.values["tag"] = str(tag)

    def set_resource_group_filter(self, name):
        self.values["resource_group"] = str(name)

    def set_service_name(self, name):
        self.values["service"] = str(name)


class SessionOpenAttributes(_Attributes):
    def set_session_id(self, name):
        self.values["session"] = str(name)


class TaskSubmissionAttributes:
    def __init__(self):
        self.input = None

    def set_task_input(self, message):
        self.input = _write(message)


class TaskInputHandle:
    def __init__(self, name):
        self._name = name

    def get_id(self):
        return self._name


class TaskOutputHandle:
    def __init__(self, name, outcome):
        self._name, self._outcome = name, outcome

    def get_id(self):
        return self._name

    def is_successful(self):
        return self._outcome["ok"]

    def populate_task_output(self, message):
        _read(message, self._outcome["output"])

    def get_exception(self):
        embedded = self._outcome.get("embedded")
        return SoamException(
            self._outcome["text"], FailureException(embedded) if embedded else None
        )


def connect(application, security):
    if not _state["initialized"]:
        raise SoamException("the library is not initialized")
    return Connection(application, security)


class Connection:
    def __init__(self, application, security):
        self._pipe = Client(os.environ["SYMPHONY_STAND_IN"], "AF_UNIX")
        self._numbers = itertools.count(1)
        self._answers = {}
        self._lock = threading.Lock()
        self._sessions = {}
        self._news = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._call_back, daemon=True).start()
        self._name = self.ask("connect", application, security.user, security.password)

    def get_id(self):
        return self._name

    def ask(self, verb, *arguments):
        answer = queue.Queue()
        number = next(self._numbers)
        self._answers[number] = answer
        with self._lock:
            try:
                self._pipe.send((number, verb, arguments))
            except OSError:
                raise SoamException("the connection is lost") from None
        found, error = answer.get()
        if error is not None:
            raise SoamException(error)
        return found

    def _listen(self):
        while True:
            try:
                number, value, error = self._pipe.recv()
            except (EOFError, OSError):
                for session in self._sessions:
                    self._news.put((session, None, {"text": "the connection is lost"}))
                for answer in list(self._answers.values()):
                    answer.put((None, "the connection is lost"))
                return
            if number == 0:
                self._news.put(value)
            else:
                self._answers.pop(number).put((value, error))

    def _call_back(self):
        while True:
            session, task, outcome = self._news.get()
            callback = self._sessions.get(session)
            if callback is None:
                continue
            if task is None:
                callback.on_exception(SoamException(outcome["text"]))
            else:
                callback.on_response(TaskOutputHandle(task, outcome))

    def _open(self, verb, attributes):
        values = dict(attributes.values)
        callback, flags = values.pop("callback"), values.pop("flags")
        if flags == SessionFlags.PARTIAL_ASYNC and callback is None:
            raise SoamException("a session that tells needs a callback")
        if "session" in values:  # one of which something may be told before this returns
            self._sessions[values["session"]] = callback
        name = self.ask(verb, values)
        self._sessions[name] = callback
        return Session(self, name)

    def create_session(self, attributes):
        return self._open("create", attributes)

    def open_session(self, attributes):
        return self._open("reopen", attributes)

    def close(self):
        self._sessions.clear()
        self._pipe.close()


class Session:
    def __init__(self, connection, name):
        self._connection, self._name = connection, name

    def get_id(self):
        return self._name

    def send_task_input(self, attributes):
        return TaskInputHandle(self._connection.ask("send", self._name, attributes.input))

    def kill_task(self, task):
        self._connection.ask("kill", self._name, task)

    def close(self, flags=SessionCloseFlags.DESTROY_ON_CLOSE):
        self._connection.ask("close", self._name, flags == SessionCloseFlags.DESTROY_ON_CLOSE)


# --- the service container -----------------------------------------------------------------------


class ServiceContext:
    pass


class SessionContext:
    def __init__(self, common):
        self._common = common

    def populate_common_data(self, message):
        _read(message, self._common)


class TaskContext:
    def __init__(self, given):
        self._given = given
        self.output = None

    def populate_task_input(self, message):
        _read(message, self._given)

    def set_task_output(self, message):
        self.output = _write(message)


class ServiceContainer:
    def run(self):
        pipe = Client(os.environ["SYMPHONY_STAND_IN"], "AF_UNIX")
        pipe.send((0, "service", (os.environ["SYMPHONY_STAND_IN_INSTANCE"],)))
        self.on_create_service(ServiceContext())
        while True:
            try:
                verb, parts = pipe.recv()
            except (EOFError, OSError):
                self.on_destroy_service()
                return
            answer = {"ok": True}
            try:
                if verb == "enter":
                    self.on_session_enter(SessionContext(parts))
                elif verb == "leave":
                    self.on_session_leave()
                else:
                    context = TaskContext(parts)
                    self.on_invoke(context)
                    answer["output"] = context.output
            except FatalException as error:
                answer = {"ok": False, "fatal": True, "text": str(error)}
            except Exception as error:
                answer = {"ok": False, "fatal": False, "text": str(error)}
            pipe.send(answer)

    def on_create_service(self, context):
        pass

    def on_session_enter(self, context):
        pass

    def on_session_leave(self):
        pass

    def on_destroy_service(self):
        pass


atexit.register(os.abort)
