"""Translates librdkafka's security properties for Spark's client of Kafka.

Properties files of Anabranch hold librdkafka's names. Spark's connector takes the Java client's,
each after `kafka.`. Most names are the same, and this module translates the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch.core.errors import InvalidInputError

_SAME: Final = frozenset(
    {
        "security.protocol",
        "sasl.kerberos.service.name",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
    }
)
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def spark_options(bootstrap_servers: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of Spark's Kafka source.
    Raises InvalidInputError for a property that it cannot express.
    """
    options = {"kafka.bootstrap.servers": bootstrap_servers}
    options |= {f"kafka.{name}": value for name, value in java_properties(properties).items()}
    return options


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Translates librdkafka's security properties to the Java client's.
    Raises InvalidInputError.
    """
    given = dict(properties)
    java = {name: given.pop(name) for name in list(given) if name in _SAME}
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    mechanism = given.pop("sasl.mechanism", "") or given.pop("sasl.mechanisms", "")
    given.pop("sasl.mechanisms", None)
    username, password = given.pop("sasl.username", ""), given.pop("sasl.password", "")
    if mechanism:
        java["sasl.mechanism"] = mechanism
        java["sasl.jaas.config"] = _login(mechanism, username, password)
    authority = given.pop("ssl.ca.location", "") or ""
    if authority:
        # The text itself, because a cluster's workers may lack the file.
        certificates = _text("ssl.ca.location", authority)
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates}
    certificate, key = given.pop("ssl.certificate.location", ""), given.pop("ssl.key.location", "")
    if certificate or key:
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text("ssl.certificate.location", certificate),
            "ssl.keystore.key": _text("ssl.key.location", key),
        }
    if given:
        raise InvalidInputError(
            f"Kafka property {sorted(given)[0]!r} has no counterpart in Spark's Kafka client; "
            f"archive and audit understand {', '.join(sorted(_understood()))}"
        )
    return java


def _understood() -> set[str]:
    return {
        *_SAME,
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
    }


def _login(mechanism: str, username: str, password: str) -> str:
    if mechanism != "PLAIN" and not mechanism.startswith("SCRAM-"):
        raise InvalidInputError(
            f"SASL mechanism {mechanism!r} is not supported by archive and audit: use PLAIN, "
            "SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    module = _PLAIN if mechanism == "PLAIN" else _SCRAM
    return f"{module} required username={_quoted(username)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(name: str, location: str) -> str:
    try:
        return Path(location).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidInputError(f"{name} {location!r} cannot be read: {error}") from None
