"""How a producer reads librdkafka's security properties for a connection of its own."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from anabranch.wire.kafka import protocol, sasl
from anabranch.wire.kafka.protocol import bootstrap_addresses, can_ask, ssl_context


def test_kafka_is_asked_only_where_its_authorities_are_a_file_or_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "probe"):
        (tmp_path / name).touch()
    authorities = {
        str(tmp_path / "ca.pem"): True,
        "ca.pem": True,
        str(tmp_path): False,  # a folder, as librdkafka takes one
        "probe": False,  # librdkafka looks around
        "": False,
        str(tmp_path / "missing.pem"): False,
    }
    for given, asked in authorities.items():
        assert can_ask({"security.protocol": "ssl", "ssl.ca.location": given}) is asked, given
    assert can_ask({"security.protocol": "SSL"})
    assert can_ask({})
    assert not can_ask({"security.protocol": "sasl_ssl"})
    assert not can_ask({"security.protocol": "quic"})


def test_kafka_is_asked_with_every_property_that_we_read_and_with_no_other() -> None:
    every = dict.fromkeys(protocol._SSL - {"security.protocol", "ssl.ca.location"}, "x")
    here = {"security.protocol": "ssl", "ssl.ca.location": __file__}
    assert can_ask({**every, **here})
    guarded = dict.fromkeys(sasl.PROPERTIES, "PLAIN") | {"security.protocol": "sasl_ssl"}
    assert can_ask({**every, **here, **guarded})
    assert not can_ask({**here, "ssl.keystore.location": "x"})


def test_the_first_brokers_are_named_as_librdkafka_reads_them() -> None:
    found = bootstrap_addresses("SSL://one:9093, two,,[::1]:9094,a:b:c")
    assert found == [("one", 9093), ("two", 9092), ("::1", 9094)]


@pytest.mark.parametrize("given", [False, "false", "False", "f", "F", 0, "0"])
def test_certificates_are_not_checked_where_librdkafka_would_not(given: Any) -> None:
    context = ssl_context({"enable.ssl.certificate.verification": given})
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


@pytest.mark.parametrize("given", [True, "true", "True", "t", "T", 1, "1"])
def test_certificates_are_checked_where_librdkafka_would(given: Any) -> None:
    context = ssl_context({"enable.ssl.certificate.verification": given})
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize(("given", "checked"), [("none", False), ("NONE", False), ("HTTPS", True)])
def test_names_of_certificates_are_checked_as_by_librdkafka(given: str, checked: bool) -> None:
    context = ssl_context({"ssl.endpoint.identification.algorithm": given})
    assert context.check_hostname is checked
    assert context.verify_mode is ssl.CERT_REQUIRED
