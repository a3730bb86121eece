"""A real HTTP server that alerts are posted to, and usage that costs something."""

import json
import socket
import ssl
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gateway.ledger.db.usage.records import UsageRecord


class WebhookServer:
    """A real HTTP server that answers as it is told: 200 once its answers are used up."""

    def __init__(self, certificate: str = "") -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.answers: list[int | str] = []
        self.go_on = threading.Event()  # lets those go that wait on a "slow" answer
        door = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                door.paths.append(self.path)
                door.bodies.append(json.loads(body))
                answer = door.answers.pop(0) if door.answers else 200
                if answer == "slow":
                    door.go_on.wait(300.0)
                    return
                if answer == "hang-up":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(int(answer))
                if answer == 302:
                    self.send_header("Location", f"{door.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                door.paths.append(f"GET {self.path}")
                self.send_error(405)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            # Who trusts nobody hangs up in the handshake: no traceback for that.
            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def used(number, when, cost_nanos, **fields):
    ended_at_s = at(when) if isinstance(when, str) else when
    return UsageRecord(
        **{
            "job": "job",
            "first": number,
            "tasks": 1,
            "attempt": 0,
            "user": "ada",
            "project": "risk",
            "name": "f",
            "pool": "local",
            "worker": "w",
            "state": "ok",
            "started_at_s": ended_at_s - 1,
            "ended_at_s": ended_at_s,
            "wall_ns": 1,
            "cpu_ns": 1,
            "peak_memory_bytes": 1,
            "price_nanos": 1,
            "currency": "USD",
            "tariff": "t",
            "cost_nanos": cost_nanos,
            **fields,
        }
    )
