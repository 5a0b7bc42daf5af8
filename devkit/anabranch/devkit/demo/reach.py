"""`Reach`: the way of the demo to the cluster that it loads, by TLS or not, and to its Kafka."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from anabranch.access import Credentials, Tls
from anabranch.admin import AsyncAdmin
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.client import Client


class Reach(msgspec.Struct, frozen=True):
    """Addresses of nodes, of their ports for clients and of Kafka, and the means to be let in.

    `urls`, `service_url` and `bootstrap_servers` name several with commas. `kafka_security` holds
    librdkafka's properties. Each method raises InvalidInputError.
    """

    urls: str
    service_url: str
    bootstrap_servers: str
    tls: Tls | None = None
    credentials: Credentials | None = None
    kafka_security: Mapping[str, str] = {}

    def admin(self) -> AsyncAdmin:
        """The administration, by the first node that is there."""
        return AsyncAdmin(self.urls, tls=self.tls, credentials=self.credentials)

    def client(self) -> Client:
        """A client of the SDK."""
        return Client(
            self.service_url, tls=self.tls, credentials=self.credentials, kafka=self.kafka_security
        )

    def kafka(self) -> KafkaConnection:
        """Kafka itself."""
        return KafkaConnection(self.bootstrap_servers, self.kafka_security, "anabranch-demo")
