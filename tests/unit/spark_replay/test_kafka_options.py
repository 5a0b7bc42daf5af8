"""librdkafka's security properties, said to Spark's Kafka client."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.kafka_options import java_properties


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")],
)
def test_a_login_becomes_a_jaas_line_with_quotes_escaped(mechanism: str, module: str) -> None:
    java = java_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "me",
            "sasl.password": 'a"b\\c',
        }
    )
    assert (java["security.protocol"], java["sasl.mechanism"]) == ("SASL_SSL", mechanism)
    assert java["sasl.jaas.config"] == (
        f'org.apache.kafka.common.security.{module} required username="me" password="a\\"b\\\\c";'
    )


def test_certificates_are_given_as_pem(tmp_path: Path) -> None:
    authority, certificate, key = (tmp_path / name for name in ("a.pem", "c.pem", "k.pem"))
    authority.write_text("AUTHORITY")
    certificate.write_text("CERT")
    key.write_text("KEY")
    java = java_properties(
        {
            "ssl.ca.location": str(authority),
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key),
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert java == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "AUTHORITY",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
        "ssl.endpoint.identification.algorithm": "",
    }

    texts = {"ssl.ca.pem": "AUTHORITY", "ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY"}
    algorithm = {"ssl.endpoint.identification.algorithm": "none"}
    assert java_properties({**texts, **algorithm}) == java


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.keystore.location": "/etc/keystore.p12"},
        {"sasl.mechanism": "OAUTHBEARER"},
        {"ssl.certificate.location": "/no/such/file", "ssl.key.location": "/no/such/file"},
    ],
)
def test_what_spark_cannot_be_told_is_named(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match=r"ssl\.keystore|OAUTHBEARER|cannot be read"):
        java_properties(properties)
