"""EC2's interface by boto3: blocking, for threads. Errors become GridFaults.

This is the only module that knows the SDK. Its own retries are bounded: the pool controller asks
again anyway.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeVar

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.loaders import create_loader

from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.ec2 import faults
from gateway.grids.ec2.prices import OPERATING_SYSTEM
from gateway.grids.ec2.settings import Ec2Config

ATTEMPTS: Final = 4  # of each call
CONNECT_S: Final = 5.0
READ_S: Final = 60.0  # a fleet of many instances takes its time
PAGE: Final = 500
BATCH: Final = 500
_NO_CREDENTIALS: Final = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ProfileNotFound,
)
T = TypeVar("T")


class Ec2Calls:
    """The calls of a pool on EC2. Thread-safe."""

    def __init__(self, config: Ec2Config, attempts: int = ATTEMPTS) -> None:
        self._config = config
        self._attempts = attempts
        self._lock = threading.Lock()  # sessions are made by one thread at a time
        self._clients: dict[str, Any] = {}

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._connect(service)
            return self._clients[service]

    def _connect(self, service: str) -> Any:
        config = self._config
        core = botocore.session.get_session()
        core.register_component("data_loader", _loader())
        session = boto3.Session(
            botocore_session=core,
            profile_name=config.profile or None,
            region_name=_region(service, config.region),
        )
        return session.client(
            service,
            endpoint_url=config.endpoint_url or None,
            config=Config(
                connect_timeout=CONNECT_S,
                read_timeout=READ_S,
                retries={"mode": "standard", "total_max_attempts": self._attempts},
                max_pool_connections=16,
                user_agent_extra="gridfed",
            ),
        )

    def _do(self, what: str, parameters: Mapping[str, Any], service: str = "ec2") -> Any:
        """Make one call, by its name as in `create_fleet`."""
        return guarded(what, lambda: getattr(self._client(service), what)(**parameters))

    def _pages(
        self, what: str, key: str, parameters: Mapping[str, Any], service: str = "ec2"
    ) -> Iterator[Any]:
        """Yield all items that a call lists, page by page."""

        def read() -> list[Any]:
            pages = self._client(service).get_paginator(what).paginate(**parameters)
            return [each for page in pages for each in page.get(key, [])]

        yield from guarded(what, read)

    # --- queries -------------------------------------------------------------------------------

    def instances(self, tag: str, value: str) -> list[Mapping[str, Any]]:
        """Return the instances with a tag, in all states."""
        listed = self._pages(
            "describe_instances",
            "Reservations",
            {
                "Filters": [{"Name": f"tag:{tag}", "Values": [value]}],
                "PaginationConfig": {"PageSize": PAGE},
            },
        )
        return [each for reservation in listed for each in reservation["Instances"]]

    def statuses(self, codes: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the statuses of the account's instances that have scheduled events."""
        filters = [{"Name": "event.code", "Values": list(codes)}]
        return list(
            self._pages("describe_instance_status", "InstanceStatuses", {"Filters": filters})
        )

    def instance_types(self, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the descriptions of types."""
        return list(
            self._pages("describe_instance_types", "InstanceTypes", {"InstanceTypes": list(names)})
        )

    def zones_of(self, subnets: Sequence[str]) -> dict[str, str]:
        """Return the zone of each subnet."""
        listed = self._pages("describe_subnets", "Subnets", {"SubnetIds": list(subnets)})
        return {each["SubnetId"]: each["AvailabilityZone"] for each in listed}

    def template(self, name: str, version: str) -> Mapping[str, Any]:
        """Return the contents of a launch template."""
        key = "LaunchTemplateId" if name.startswith("lt-") else "LaunchTemplateName"
        answer = self._do("describe_launch_template_versions", {key: name, "Versions": [version]})
        found: Mapping[str, Any] = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        return found

    def spot_prices(self, kinds: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the present spot prices of types."""
        return list(
            self._pages(
                "describe_spot_price_history",
                "SpotPriceHistory",
                {
                    "InstanceTypes": list(kinds),
                    "ProductDescriptions": [OPERATING_SYSTEM],
                    "StartTime": datetime.now(UTC),
                },
            )
        )

    def products(self, kind: str) -> list[str]:
        """Return the on-demand price list of a type: JSON texts."""
        wanted = {
            "instanceType": kind,
            "regionCode": self._config.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in wanted.items()
        ]
        parameters = {"ServiceCode": "AmazonEC2", "Filters": filters}
        return list(self._pages("get_products", "PriceList", parameters, "pricing"))

    # --- changes -------------------------------------------------------------------------------

    def put_template(self, name: str, data: Mapping[str, Any], tags: list[dict[str, str]]) -> None:
        """Make a launch template; an existing one of that name is the same."""
        parameters = {
            "LaunchTemplateName": name,
            "LaunchTemplateData": data,
            "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}],
        }
        try:
            self._do("create_launch_template", parameters)
        except faults.Ec2Fault as fault:
            if fault.code != faults.EXISTS:
                raise

    def create_fleet(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start instances."""
        answer: Mapping[str, Any] = self._do("create_fleet", request)
        return answer

    def tag(self, instances: Sequence[str], tag: str, value: str) -> None:
        """Tag instances."""
        self._do(
            "create_tags", {"Resources": list(instances), "Tags": [{"Key": tag, "Value": value}]}
        )

    def terminate(self, instances: Sequence[str]) -> list[str]:
        """Terminate instances; return those that EC2 does not know."""
        unknown: list[str] = []
        for at in range(0, len(instances), BATCH):
            unknown += self._terminate(list(instances[at : at + BATCH]))
        return unknown

    def _terminate(self, instances: list[str]) -> list[str]:
        try:
            self._do("terminate_instances", {"InstanceIds": instances})
        except faults.Ec2Fault as fault:
            if fault.code != faults.NOT_FOUND:
                raise
            if len(instances) == 1:
                return instances
            # An unknown one fails the call for all: bisect to find it.
            half = len(instances) // 2
            return [*self._terminate(instances[:half]), *self._terminate(instances[half:])]
        return []

    # --- leftovers -----------------------------------------------------------------------------

    def templates(self, tag: str, value: str) -> list[Mapping[str, Any]]:
        """Return launch templates with a tag."""
        filters = [{"Name": f"tag:{tag}", "Values": [value]}]
        return list(
            self._pages("describe_launch_templates", "LaunchTemplates", {"Filters": filters})
        )

    def drop_template(self, template: str) -> None:
        """Delete a launch template, by its id."""
        self._do("delete_launch_template", {"LaunchTemplateId": template})

    def loose_volumes(self, tag: str, value: str) -> list[str]:
        """Return volumes with a tag that no instance uses."""
        filters = [
            {"Name": f"tag:{tag}", "Values": [value]},
            {"Name": "status", "Values": ["available"]},
        ]
        listed = self._pages("describe_volumes", "Volumes", {"Filters": filters})
        return [each["VolumeId"] for each in listed]

    def drop_volume(self, volume: str) -> None:
        """Delete a volume."""
        self._do("delete_volume", {"VolumeId": volume})


@cache
def _loader() -> Any:
    """Return the loader of service descriptions, megabytes of JSON: once for all pools."""
    return create_loader()


def _region(service: str, region: str) -> str:
    """Return the region for a service: the price list is kept in a few regions only."""
    if service != "pricing":
        return region
    return "cn-northwest-1" if region.startswith("cn-") else "us-east-1"


def guarded(what: str, call: Callable[[], T]) -> T:
    """Make a call; turn its errors into faults."""
    try:
        return call()
    except ClientError as error:
        found = error.response.get("Error", {})
        raise faults.fault(
            str(found.get("Code", "")), str(found.get("Message", "")), what
        ) from None
    except _NO_CREDENTIALS as error:
        text = f"no credentials for EC2 were found: {faults.trim(str(error))}"
        raise GridFault(FailureClass.NEVER, f"{text}; see `profile` in docs/grids_ec2.md") from None
    except (ConnectionError, HTTPClientError) as error:
        raise GridFault(
            FailureClass.AGAIN, f"EC2 did not answer {what}: {faults.trim(str(error))}"
        ) from None
    except BotoCoreError as error:
        raise GridFault(
            FailureClass.NEVER, f"the request {what} to EC2 failed: {faults.trim(str(error))}"
        ) from None
