"""SYMREST and EGO's REST before a stand-in cluster: HTTPS, logins, sessions, results by poll."""

import base64
import json
import secrets
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SYMREST = "/platform/rest/symrest/v1"
EGO = "/platform/rest/ego/v1"
WAIT_S = 0.5


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, address):
        """A connection that closes in the middle of an answer is not logged."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, address)


class RestServer:
    """Both servers on one port. `url` is the address; `tokens` are those of logged-on users."""

    def __init__(self, cluster, certificate, consumer="/Risk/Gridfed"):
        self.cluster = cluster
        self.consumer = consumer
        self.tokens: set[str] = set()
        self.faults: list[int] = []  # statuses that the next requests are answered with
        self.hangs = False  # nothing is answered
        self.refuses = 0  # so many tasks are not taken
        self.asked: list[str] = []
        server = self

        class Handler(_Handler):
            rest = server

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def forget_tokens(self):
        self.tokens.clear()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    rest: RestServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self._answer()

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self):
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else {}
        self.rest.asked.append(f"{self.command} {parts.path}")
        while self.rest.hangs:
            time.sleep(0.05)
        try:
            status, said, cookie = self._do(parts.path, query, body)
        except ValueError as error:
            status, said, cookie = 404, {"errorMessage": str(error)}, ""
        data = json.dumps(said).encode()
        self.send_response(status)
        if cookie:
            self.send_header("Set-Cookie", f"platform.rest.token={cookie}; Secure; Path=/")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _do(self, path, query, body):
        rest, cluster = self.rest, self.rest.cluster
        if path.endswith("/auth/login"):
            given = self.headers.get("Authorization", "")
            user, _, password = base64.b64decode(given.partition(" ")[2]).decode().partition(":")
            if cluster.users.get(user) != password:
                return 401, {"errorMessage": "log on failed"}, ""
            token = secrets.token_hex(8)
            rest.tokens.add(token)
            return 200, {"csrftoken": f"c{token}"}, token
        if rest.faults:
            return rest.faults.pop(0), {"errorMessage": "not now"}, ""
        cookies = self.headers.get("Cookie", "")
        token = next((each for each in rest.tokens if each in cookies), None)
        if token is None or query.get("csrftoken") != f"c{token}":
            return 401, {"errorMessage": "log on first"}, ""
        if path == EGO + "/consumers":
            found = {"name": rest.consumer, "deservedslots": cluster.slots, "allocatedslots": 0}
            return 200, {"consumers": [found]}, ""
        if path == SYMREST + "/auth/renew":
            return 200, {"csrftoken": query["csrftoken"]}, ""
        return 200, self._work(path.removeprefix(SYMREST), query, body), ""

    def _work(self, path, query, body):
        cluster, session = self.rest.cluster, query.get("sessionId", "")
        match self.command, path:
            case "POST", "/clientapi/session":
                ((kind, text),) = body["commonData"]
                assert kind == "SOAM_BYTES"
                values = {
                    "name": body["sessionName"],
                    "type": body["sessionType"],
                    "priority": body.get("sessionPriority", 1),
                    "common": [base64.b64decode(text)],
                }
                return {"sessionId": cluster.create(query["applicationName"], values, None)}
            case "PUT", "/clientapi/session/tasks":
                ids = []
                for number, each in enumerate(body["taskInputList"], 1):
                    if self.rest.refuses:
                        self.rest.refuses -= 1
                        ids.append({"sequenceNum": number, "errorMessage": "no room"})
                        continue
                    data = base64.b64decode(each["inputDataBlock"])
                    task = cluster.send(session, [data])
                    ids.append({"sequenceNum": number, "taskId": task, "errorMessage": ""})
                return {"taskIds": ids}
            case "PUT", "/clientapi/session/taskresults":
                names = query["filter"].split(",") if query.get("filter") else ()
                found = cluster.results(session, int(query["countMax"]), WAIT_S, names)
                return {"taskResults": [_result(task, outcome) for task, outcome in found]}
            case "DELETE", "/clientapi/session/tasks":
                for task in query["filter"].split(","):
                    cluster.kill(session, task)
                return {}
            case "DELETE", "/clientapi/session":
                cluster.end(session)
                return {}
        raise ValueError(f"no {self.command} {path}")


def _result(task, outcome):
    if not outcome["ok"]:
        return {"taskId": task, "errorMessage": outcome.get("embedded") or outcome["text"]}
    (data,) = outcome["output"]
    return {
        "taskId": task,
        "errorMessage": "",
        "taskOutput": [["SOAM_BYTES", base64.b64encode(data).decode()]],
    }
