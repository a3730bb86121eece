"""EC2, as far as a machine can be it: moto keeps the books, and instances really run.

    boto3 ──► Proxy ──► moto_server      instances launched, tagged, terminated
                │
                ├── FakeInstance         its user data runs as a process of this host
                └── metadata             IMDSv2: token, ids, tags, notices

Nothing of boto3 is replaced: the proxy is an `endpoint_url`. The proxy adds the parts that moto
lacks: fleets that know of capacity, client tokens that count, spot prices that change, the price
list, reasons why an instance ended. And it can fail: answers that are lost, throttling, instances
that are not shown yet, credentials that are wrong.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from base64 import b64decode
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import boto3
import psutil
from botocore.config import Config

REGION = "eu-central-1"
NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
END_S = 3.0  # a host that shuts down gives its processes so long
_MOTO = """
import sys
from gateway.worker.isolation.limits import die_with_parent
die_with_parent(int(sys.argv[1]))
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass
class FakeInstance:
    """An instance: a process of this host that is a host to itself."""

    id: str
    kind: str
    folder: Path
    process: subprocess.Popen
    tokens: set[str] = field(default_factory=set)
    action: str = ""  # what its metadata says of an interruption
    reason: str = ""  # why it ended

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def family(self):
        with contextlib.suppress(psutil.NoSuchProcess):
            me = psutil.Process(self.process.pid)
            return [*me.children(recursive=True), me]
        return []

    def end(self, *, is_sudden: bool) -> None:
        """Switch it off; or shut it down, as a host does whose power button is pressed."""
        family = self.family()
        if not is_sudden:
            for each in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGTERM)
            _, family = psutil.wait_procs(family, timeout=END_S)
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=END_S)


class Ec2:
    """One stand-in. `reset` between tests: running instances are ended, settings are forgotten."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        # Whoever shuts an instance down ends all that it runs.
        for name, text in (("shutdown", "kill -9 0"), ("poweroff", "kill -9 0"), ("iptables", ":")):
            (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.bin / name).chmod(0o700)
        credentials = "".join(
            f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
            for name, key, secret in (
                ("good", "AKIAGOODGOODGOODGOOD", "good-secret"),
                ("bad", "AKIABADBADBADBADBAD", "bad-secret-0123456789"),
            )
        )
        (folder / "credentials").write_text(credentials)
        self._moto = subprocess.Popen(
            [sys.executable, "-c", _MOTO, str(os.getpid())],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},
        )
        self.moto_url = f"http://127.0.0.1:{int(self._moto.stdout.readline())}"
        self.direct = boto3.client(
            "ec2",
            endpoint_url=self.moto_url,
            region_name=REGION,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=Config(max_pool_connections=32, retries={"total_max_attempts": 1}),
        )
        self.subnets = {
            each["AvailabilityZone"]: each["SubnetId"]
            for each in self.direct.describe_subnets()["Subnets"]
        }
        self._servers = [_serve(_Proxy, self), _serve(_Metadata, self)]
        self.url, self.metadata_url = (
            f"http://127.0.0.1:{each.server_port}" for each in self._servers
        )
        self.lock = threading.RLock()
        self.instances: dict[str, FakeInstance] = {}
        self.forget()

    def forget(self) -> None:
        """Set everything as it is at first."""
        self.calls: list[str] = []
        self.failures: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self.lost: dict[str, int] = defaultdict(int)  # answers that get lost
        self.capacity: dict[tuple[str, str], int] = {}  # by type and zone; no entry: endless
        self.spot: dict[tuple[str, str], str] = {}
        self.listed: dict[str, str] = {}
        self.hides: set[str] = set()  # instances that are not shown yet
        self.events: dict[str, tuple[str, str, float]] = {}  # by instance: code, text, in s
        self.hides_new = self.is_down = False
        self.honours_tokens = True
        self.boots = True  # whether user data runs
        self._tokens: dict[str, tuple[str, str]] = {}

    def reset(self) -> None:
        with self.lock:
            running, self.instances = list(self.instances.values()), {}
        for each in running:
            each.end(is_sudden=True)
        urllib.request.urlopen(
            urllib.request.Request(f"{self.moto_url}/moto-api/reset", method="POST"), timeout=10
        ).close()
        self.subnets = {
            each["AvailabilityZone"]: each["SubnetId"]
            for each in self.direct.describe_subnets()["Subnets"]
        }
        self.forget()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for each in self.instances.values():
            each.end(is_sudden=True)
        self._moto.kill()
        self._moto.wait()
        self._moto.stdout.close()

    # --- what the world does -------------------------------------------------------------------

    def interrupt(self, instance: str, in_s: float, *, says: bool = True) -> None:
        """Take a spot instance away in so many seconds; `says`: with a notice."""
        each = self.instances[instance]
        at = datetime.fromtimestamp(time.time() + in_s, UTC)
        if says:
            # Whole seconds, as the service has them; never later than the end.
            text = at.replace(microsecond=0).strftime("%Y-%m-%dT%H:%M:%SZ")
            each.action = json.dumps({"action": "terminate", "time": text})
        timer = threading.Timer(in_s, self.take, [instance, "Server.SpotInstanceTermination"])
        timer.daemon = True
        timer.start()

    def take(self, instance: str, reason: str) -> None:
        """The host is gone, at once; if it is there still."""
        each = self.instances.get(instance)
        if each is not None:
            each.reason = each.reason or reason
            each.end(is_sudden=True)

    def alive(self, mark: str = "") -> list[dict]:
        """The existing and billed instances, by moto's own books."""
        found = [
            each
            for page in self.direct.get_paginator("describe_instances").paginate()
            for reservation in page["Reservations"]
            for each in reservation["Instances"]
            if each["State"]["Name"] not in ("terminated", "shutting-down")
        ]
        tag = {"Key": "gridfed:mark", "Value": mark}
        return [each for each in found if not mark or tag in each.get("Tags", [])]

    # --- launching -----------------------------------------------------------------------------

    def zone_of(self, override: dict) -> str:
        subnet = override.get("SubnetId")
        zones = {each: zone for zone, each in self.subnets.items()}
        return zones[subnet] if subnet else override.get("AvailabilityZone") or min(self.subnets)

    def fleet(self, request: dict) -> str:
        """CreateFleet of type instant: the first pools that have room, and errors of the others."""
        token = request.get("ClientToken", "")
        asked = json.dumps(request, sort_keys=True)
        with self.lock:
            if self.honours_tokens and token in self._tokens:
                before, answer = self._tokens[token]
                if before != asked:
                    raise _Refused("IdempotentParameterMismatch", "other parameters, same token")
                return answer
            answer = self._launch(request)
            self._tokens[token] = asked, answer
            return answer

    def _launch(self, request: dict) -> str:
        [config] = request["LaunchTemplateConfigs"]
        specification = config["LaunchTemplateSpecification"]
        found = self.direct.describe_launch_template_versions(
            LaunchTemplateName=specification["LaunchTemplateName"],
            Versions=[specification["Version"]],
        )
        data = found["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        tags = {
            tag["Key"]: tag["Value"]
            for each in (*data["TagSpecifications"], *request["TagSpecification"])
            if each["ResourceType"] == "instance"
            for tag in each.get("Tags", each.get("Tag", []))
        }
        target = request["TargetCapacitySpecification"]
        started, errors = [], []
        for lifecycle, key in (("spot", "Spot"), ("on-demand", "OnDemand")):
            left = int(target.get(f"{key}TargetCapacity", 0))
            ranked = sorted(config["Overrides"], key=lambda each: float(each["Priority"]))
            for override in ranked:
                pool = override["InstanceType"], self.zone_of(override)
                count = min(left, self.capacity.get(pool, left))
                if count < left:
                    errors.append(
                        _error("InsufficientInstanceCapacity", "no capacity", lifecycle, override)
                    )
                if pool in self.capacity:
                    self.capacity[pool] -= count
                if count:
                    ids = self._run(data, override, count, lifecycle, tags)
                    started.append(_started(ids, override, lifecycle))
                left -= count
        return _answer(
            "CreateFleet",
            f"<fleetId>fleet-{time.monotonic_ns():x}</fleetId>"
            f"<errorSet>{''.join(errors)}</errorSet>"
            f"<fleetInstanceSet>{''.join(started)}</fleetInstanceSet>",
        )

    def _run(self, data, override, count, lifecycle, tags) -> list[str]:
        where = {"SubnetId": override["SubnetId"]} if override.get("SubnetId") else {}
        if not where:
            where = {"Placement": {"AvailabilityZone": self.zone_of(override)}}
        market = {"InstanceMarketOptions": {"MarketType": "spot"}} if lifecycle == "spot" else {}
        tagged = [{"Key": key, "Value": value} for key, value in tags.items()]
        answer = self.direct.run_instances(
            ImageId=data["ImageId"],
            InstanceType=override["InstanceType"],
            MinCount=count,
            MaxCount=count,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tagged}],
            **where,
            **market,
        )
        ids = [each["InstanceId"] for each in answer["Instances"]]
        for each in ids:
            self._boot(each, override["InstanceType"], b64decode(data["UserData"]))
        if self.hides_new:
            self.hides |= set(ids)
        return ids

    def _boot(self, instance: str, kind: str, script: bytes) -> None:
        root = self.folder / instance
        root.mkdir()
        (root / "user-data").write_bytes(script)
        environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(root),
            "TMPDIR": str(root),
            "LANG": "C.UTF-8",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.metadata_url}/{instance}",
        }
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", str(root / "user-data")] if self.boots else ["sleep", "1000"],
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        each = self.instances[instance] = FakeInstance(instance, kind, root, process)
        threading.Thread(target=self._wait, args=[each], daemon=True).start()

    def _wait(self, each: FakeInstance) -> None:
        """An instance whose user data has ended has shut itself down."""
        each.process.wait()
        each.end(is_sudden=True)
        each.reason = each.reason or "Client.InstanceInitiatedShutdown"
        with self.lock:
            if self.instances.get(each.id) is each:
                with contextlib.suppress(Exception):  # the stand-in is being closed
                    self.direct.terminate_instances(InstanceIds=[each.id])

    def terminated(self, ids: list[str]) -> None:
        """The end of the instances was requested."""
        for one in ids:
            each = self.instances.get(one)
            if each is not None:
                each.reason = each.reason or "Client.UserInitiatedShutdown"
                threading.Thread(target=each.end, kwargs={"is_sudden": False}, daemon=True).start()

    # --- answers -------------------------------------------------------------------------------

    def show(self, body: bytes) -> bytes:
        """The answer to DescribeInstances: without instances not yet shown, with reasons."""
        if not (self.hides or self.instances):
            return body
        root = ElementTree.fromstring(body)
        for items in root.iterfind(".//{*}instancesSet"):
            for item in list(items):
                instance = item.findtext("{*}instanceId")
                if instance in self.hides:
                    items.remove(item)
                    continue
                reason = item.find("{*}stateReason/{*}code")
                each = self.instances.get(instance)
                if each is not None and each.reason and reason is not None:
                    reason.text = each.reason
        return ElementTree.tostring(root)

    def statuses(self) -> str:
        """The scheduled events, of those instances that have one."""
        items = "".join(
            f"<item><instanceId>{instance}</instanceId><eventsSet><item><code>{code}</code>"
            f"<description>{text}</description><notBefore>"
            f"{datetime.fromtimestamp(time.time() + in_s, UTC):%Y-%m-%dT%H:%M:%SZ}</notBefore>"
            "</item></eventsSet></item>"
            for instance, (code, text, in_s) in self.events.items()
        )
        found = f"<instanceStatusSet>{items}</instanceStatusSet>"
        return _answer("DescribeInstanceStatus", found)

    def spot_history(self, request: dict) -> str:
        kinds = request.get("InstanceType", [])
        items = "".join(
            f"<item><instanceType>{kind}</instanceType><availabilityZone>{zone}</availabilityZone>"
            f"<productDescription>Linux/UNIX</productDescription><spotPrice>{price}</spotPrice>"
            f"<timestamp>{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}</timestamp></item>"
            for (kind, zone), price in self.spot.items()
            if kind in kinds
        )
        return _answer(
            "DescribeSpotPriceHistory", f"<spotPriceHistorySet>{items}</spotPriceHistorySet>"
        )

    def products(self, request: dict) -> bytes:
        [kind] = [each["Value"] for each in request["Filters"] if each["Field"] == "instanceType"]
        product = {
            "product": {"attributes": {"instanceType": kind}},
            "terms": {
                "OnDemand": {
                    "x": {
                        "priceDimensions": {
                            "y": {"unit": "Hrs", "pricePerUnit": {"USD": self.listed.get(kind)}}
                        }
                    }
                }
            },
        }
        listed = [json.dumps(product)] if kind in self.listed else []
        return json.dumps({"FormatVersion": "aws_v1", "PriceList": listed}).encode()


class _Refused(Exception):
    pass


def _error(code, text, lifecycle, override) -> str:
    where = "".join(
        f"<{tag}>{override[key]}</{tag}>"
        for tag, key in (
            ("instanceType", "InstanceType"),
            ("subnetId", "SubnetId"),
            ("availabilityZone", "AvailabilityZone"),
        )
        if override.get(key)
    )
    return (
        f"<item><errorCode>{code}</errorCode><errorMessage>{text}</errorMessage>"
        f"<lifecycle>{lifecycle}</lifecycle><launchTemplateAndOverrides><overrides>{where}"
        "</overrides></launchTemplateAndOverrides></item>"
    )


def _started(ids, override, lifecycle) -> str:
    items = "".join(f"<item>{each}</item>" for each in ids)
    return (
        f"<item><instanceIds>{items}</instanceIds><lifecycle>{lifecycle}</lifecycle>"
        f"<instanceType>{override['InstanceType']}</instanceType></item>"
    )


def _answer(action: str, body: str) -> str:
    return (
        f'<{action}Response xmlns="{NAMESPACE}"><requestId>r</requestId>{body}</{action}Response>'
    )


def _nested(pairs: list[tuple[str, str]]):
    """Dotted names as a tree, its numbered branches as lists."""
    tree: dict = {}
    for name, value in pairs:
        *way, last = name.split(".")
        at = tree
        for word in way:
            at = at.setdefault(word, {})
        at[last] = value
    return _lists(tree)


def _lists(tree):
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdecimal() for key in tree):
        return [_lists(tree[key]) for key in sorted(tree, key=int)]
    return {key: _lists(each) for key, each in tree.items()}


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """An instance that is gone has hung up: no fault of the server's."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _serve(handler, ec2) -> ThreadingHTTPServer:
    server = _Server(("127.0.0.1", 0), type("Handler", (handler,), {"ec2": ec2}))
    server.daemon_threads = True
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ec2: Ec2

    def log_message(self, *_args):
        pass

    def answer(self, body: bytes, status: int = 200, kind: str = "text/xml") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Proxy(_Handler):
    """The endpoint for boto3."""

    def do_POST(self):
        ec2 = self.ec2
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if ec2.is_down:
            self.close_connection = True
            return
        target = self.headers.get("X-Amz-Target", "")
        request = json.loads(body) if target else _nested(parse_qsl(body.decode()))
        action = target.rpartition(".")[2] or request["Action"]
        ec2.calls.append(action)
        try:
            status, found = self.perform(action, request, body)
        except _Refused as refusal:
            code, text = refusal.args
            status = 400
            found = (
                f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(text)}</Message>"
                "</Error></Errors><RequestID>r</RequestID></Response>"
            ).encode()
            if target:
                found = json.dumps({"__type": code, "message": text}).encode()
        if ec2.lost[action]:
            ec2.lost[action] -= 1
            self.close_connection = True
            return
        self.answer(found, status, "application/x-amz-json-1.1" if target else "text/xml")

    def perform(self, action, request, body) -> tuple[int, bytes]:
        ec2 = self.ec2
        if "AKIABAD" in self.headers.get("Authorization", ""):
            raise _Refused("AuthFailure", "not able to validate AKIABADBADBADBADBAD, signed with …")
        if ec2.failures[action]:
            raise _Refused(*ec2.failures[action].pop(0))
        if action == "GetProducts":
            return 200, ec2.products(request)
        if action == "DescribeSpotPriceHistory":
            return 200, ec2.spot_history(request).encode()
        if action == "DescribeInstanceStatus":
            return 200, ec2.statuses().encode()
        if action == "CreateFleet":
            if request.get("DryRun") == "true":
                raise _Refused("DryRunOperation", "would have succeeded")
            return 200, ec2.fleet(request).encode()
        status, found = self.forward(body)
        if status == 200 and action == "TerminateInstances":
            ec2.terminated(request["InstanceId"])
        if action == "DescribeInstances":
            found = ec2.show(found)
        return status, found

    def forward(self, body) -> tuple[int, bytes]:
        headers = {
            name: self.headers[name]
            for name in ("Content-Type", "Authorization", "X-Amz-Date")
            if name in self.headers
        }
        request = urllib.request.Request(f"{self.ec2.moto_url}/", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


class _Metadata(_Handler):
    """An instance's request about itself; the first word of the path names the instance."""

    def do_PUT(self):
        _, name, path = self.path.split("/", 2)
        instance = self.ec2.instances.get(name)
        if instance is None or path != "latest/api/token":
            return self.answer(b"", 404)
        if "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
            return self.answer(b"", 400)
        token = f"token-{time.monotonic_ns()}"
        instance.tokens.add(token)
        return self.answer(token.encode())

    def do_GET(self):
        _, name, path = self.path.split("/", 2)
        instance = self.ec2.instances.get(name)
        if instance is None:
            return self.answer(b"", 404)
        if self.headers.get("X-aws-ec2-metadata-token") not in instance.tokens:
            return self.answer(b"", 401)
        path = path.removeprefix("latest/meta-data/")
        found = self.find(instance, path)
        return self.answer(found.encode(), 200 if found else 404)

    def find(self, instance, path) -> str:
        if path.startswith("tags/instance/"):
            shown = self.ec2.direct.describe_tags(
                Filters=[
                    {"Name": "resource-id", "Values": [instance.id]},
                    {"Name": "key", "Values": [path.removeprefix("tags/instance/")]},
                ]
            )
            return next((each["Value"] for each in shown["Tags"]), "")
        known = {
            "instance-id": instance.id,
            "instance-type": instance.kind,
            "spot/instance-action": instance.action,
        }
        return known.get(path, "")
