"""A DNS server for SRV records, on a free UDP port of the loopback."""

import contextlib
import socket
import threading

import dns.flags
import dns.message
import dns.rcode
import dns.rrset


class DnsServer:
    """Answers from `records`: name → lines such as `10 0 7461 gw1.example.com.`.

    A name without lines has no records; one that is not there does not exist. While `is_silent`
    nothing is answered. Set $GRIDFED_DNS_SERVER to `address`.
    """

    def __init__(self, records=None):
        self.records = dict(records or {})
        self.is_silent = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        while True:
            body, origin = self._socket.recvfrom(4096)
            if not body:
                return
            if self.is_silent:
                continue
            asked = dns.message.from_wire(body)
            reply = dns.message.make_response(asked)
            reply.flags |= dns.flags.AA | dns.flags.RA
            name = asked.question[0].name
            lines = self.records.get(name.to_text(omit_final_dot=True))
            if lines is None:
                reply.set_rcode(dns.rcode.NXDOMAIN)
            elif lines:
                reply.answer.append(dns.rrset.from_text(name, 0, "IN", "SRV", *lines))
            with contextlib.suppress(OSError):
                self._socket.sendto(reply.to_wire(max_size=65535), origin)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
