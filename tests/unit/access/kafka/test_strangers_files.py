"""The files that platforms hand out, with other values, and what becomes of each.

A file has its form, its byte order mark, its separators and its quotes as its platform writes them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from anabranch.access.kafka import KafkaAccess, read_access
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.errors import InvalidInputError
from support.kafka_files import KAFKA_FILES, SECRETS

_PASSWORD = {"sasl.username", "sasl.password", "sasl.mechanism", "security.protocol"}
_PEM = {"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "security.protocol"}
_OIDC = {"method", "client.id", "client.secret", "scope", "extensions", "token.endpoint.url"}


class Becomes(NamedTuple):
    file: str
    properties: set[str]
    protocol: str
    servers: str = ""
    ignored: tuple[str, ...] = ()
    provider: str | None = None
    notes: int = 0


_CLOUD = "pkc-00000.eu-west-1.aws.confluent.cloud:9092"
TAKEN = {
    "confluent-librdkafka": Becomes(
        "client.properties",
        {*_PASSWORD, "client.id"},
        "SASL_SSL PLAIN",
        _CLOUD,
        ("session.timeout.ms",),
    ),
    "confluent-java": Becomes(
        "client.properties",
        {*_PASSWORD, "client.id"},
        "SASL_SSL PLAIN",
        _CLOUD,
        (
            "session.timeout.ms",
            "acks",
            "schema.registry.url",
            "basic.auth.credentials.source",
            "basic.auth.user.info",
        ),
    ),
    "confluent-python": Becomes(
        "getting_started.ini", _PASSWORD, "SASL_SSL PLAIN", _CLOUD, notes=1
    ),
    "confluent-oauth": Becomes(
        "client.properties",
        {"security.protocol", "sasl.mechanism", *(f"sasl.oauthbearer.{name}" for name in _OIDC)},
        "SASL_SSL OAUTHBEARER",
        _CLOUD,
    ),
    "aiven-folder": Becomes("", _PEM, "SSL", notes=1),
    "aiven-java": Becomes("configuration.properties", _PEM, "SSL", ignored=("ssl.protocol",)),
    "nais": Becomes(
        "kafka.env",
        _PEM,
        "SSL",
        "nav-dev-kafka-nav-dev.aivencloud.com:26484",
        ("KAFKA_CREDSTORE_PASSWORD", "KAFKA_KEYSTORE_PATH", "KAFKA_TRUSTSTORE_PATH"),
        notes=4,
    ),
    "msk-iam": Becomes(
        "client.properties",
        {"security.protocol", "sasl.mechanism"},
        "SASL_SSL OAUTHBEARER",
        provider="aws",
    ),
    "msk-tls": Becomes("client.properties", {"security.protocol"}, "SSL", notes=1),
    "strimzi-user-tls": Becomes(
        "", _PEM - {"ssl.ca.pem"}, "SSL", ignored=("ca.crt", "user.p12", "user.password"), notes=2
    ),
    "strimzi-user-scram": Becomes(
        "", _PASSWORD, "SASL_SSL SCRAM-SHA-512", ignored=("password",), notes=2
    ),
    "access-operator": Becomes(
        "",
        {*_PASSWORD, "ssl.ca.pem"},
        "SASL_SSL SCRAM-SHA-512",
        "my-cluster-kafka-bootstrap.kafka.svc:9093",
        ("password", "provider", "type", "user", "username"),
    ),
    "event-hubs": Becomes(
        "client.properties",
        _PASSWORD,
        "SASL_SSL PLAIN",
        "river.servicebus.windows.net:9093",
        ("request.timeout.ms",),
    ),
    "gcp": Becomes(
        "client.properties",
        {"security.protocol", "sasl.mechanism"},
        "SASL_SSL OAUTHBEARER",
        "bootstrap.river.europe-west1.managedkafka.project.cloud.goog:9092",
        provider="gcp",
    ),
}


def placed(name: str, folder: Path) -> Path:
    """The files of a platform in a folder of the test, with the paths that they name."""
    made = shutil.copytree(KAFKA_FILES / name, folder / name)
    for file in made.glob("*.properties"):
        file.write_bytes(file.read_bytes().replace(b"@HERE@", str(made).encode()))
    return made


def read(name: str, folder: Path) -> KafkaAccess:
    return read_access(placed(name, folder) / TAKEN[name].file, {})


@pytest.mark.parametrize("name", TAKEN)
def test_what_a_platform_hands_out_is_taken(name: str, tmp_path: Path) -> None:
    access, wanted = read(name, tmp_path), TAKEN[name]
    assert access.refused == ()
    told = [access.properties.get(each) for each in ("security.protocol", "sasl.mechanism")]
    assert " ".join(filter(None, told)) == wanted.protocol
    assert set(access.properties) == wanted.properties
    assert access.bootstrap_servers == (wanted.servers or None)
    assert access.ignored == wanted.ignored
    assert access.token_provider == wanted.provider
    assert len(access.notes) == wanted.notes, access.notes


@pytest.mark.parametrize("name", [name for name in TAKEN if not TAKEN[name].provider])
def test_librdkafka_takes_what_becomes_of_it(name: str, tmp_path: Path) -> None:
    access = read(name, tmp_path)
    KafkaConnection("127.0.0.1:1", access.properties).admin()


def test_a_login_comes_through_quotes_escapes_and_equals_signs(tmp_path: Path) -> None:
    hubs = read("event-hubs", tmp_path).properties
    assert hubs["sasl.username"] == "$ConnectionString"
    assert hubs["sasl.password"].endswith(
        f"/;SharedAccessKeyName=send;SharedAccessKey={SECRETS[0]}="
    )
    oauth = read("confluent-oauth", tmp_path).properties
    assert (
        oauth["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-00000,identityPoolId=pool-0000"
    )


def test_a_profile_of_rpk_is_refused_with_the_names_to_write(tmp_path: Path) -> None:
    file = placed("redpanda", tmp_path) / "profile.yaml"
    with pytest.raises(InvalidInputError, match=r"profile of rpk.*sasl\.username.*kafka_api"):
        read_access(file, {})


def test_fourteen_of_fifteen_are_taken() -> None:
    platforms = {folder.name for folder in KAFKA_FILES.iterdir()} - {"stores"}
    assert (len(platforms), platforms - TAKEN.keys()) == (15, {"redpanda"})
