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
        "client.dns.lookup",
        "client.id",
        "security.protocol",
        "sasl.kerberos.service.name",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
    }
)
_TEXTS: Final = ("ca", "certificate", "key")
_TRANSLATED: Final = frozenset(
    {
        *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
        *(f"ssl.{what}.{form}" for what in _TEXTS for form in ("location", "pem")),
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
    strange = sorted(properties.keys() - _SAME - _TRANSLATED)
    if strange:
        raise InvalidInputError(
            f"Kafka property {strange[0]!r} has no counterpart in Spark's Kafka client; "
            f"archive and audit understand {', '.join(sorted(_SAME | _TRANSLATED))}"
        )
    java = {name: value for name, value in properties.items() if name in _SAME}
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    if mechanism:
        login = (properties.get("sasl.username", ""), properties.get("sasl.password", ""))
        java["sasl.mechanism"] = mechanism
        java["sasl.jaas.config"] = _login(mechanism, *login)
    # The texts themselves, because a cluster's workers may lack the files.
    texts = {what: text for what in _TEXTS if (text := _text(properties, what))}
    if "ca" in texts:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": texts["ca"]}
    if "certificate" in texts or "key" in texts:
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": texts.get("certificate", ""),
            "ssl.keystore.key": texts.get("key", ""),
        }
    return java


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


def _text(properties: Mapping[str, str], what: str) -> str:
    name = f"ssl.{what}.location"
    location = properties.get(name, "")
    if not location:
        return properties.get(f"ssl.{what}.pem", "")
    try:
        return Path(location).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidInputError(f"{name} {location!r} cannot be read: {error}") from None
