"""Certificates and keys out of PEM, JKS and PKCS12."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from anabranch.access.kafka import stores
from anabranch.access.kafka.properties import NotTakenError
from anabranch.channel.kafka.connection import KafkaConnection
from support.authority import Authority
from support.kafka_files import KAFKA_FILES, SECRETS

STORES = KAFKA_FILES / "stores"


@pytest.mark.parametrize(
    ("store", "password", "trusted", "chain"),
    [
        ("aiven-java/client.truststore.jks", None, 1, 0),
        ("stores/truststore.jceks", None, 1, 0),
        ("stores/truststore-without-password.p12", None, 1, 0),
        ("aiven-java/client.keystore.p12", SECRETS[0], 0, 2),
        ("stores/client.keystore.jks", SECRETS[0], 0, 2),
    ],
)
def test_a_store_is_read_by_its_first_bytes(
    store: str, password: str | None, trusted: int, chain: int
) -> None:
    found = stores.read((KAFKA_FILES / store).read_bytes(), password)
    assert (len(found.trusted), len(found.chain)) == (trusted, chain)
    if chain:
        pem = {"ssl.certificate.pem": "".join(found.chain), "ssl.key.pem": found.key}
        KafkaConnection("127.0.0.1:1", pem | {"security.protocol": "ssl"}).admin()


def test_a_truststore_trusts_no_issuer_of_its_own_key(tmp_path: Path) -> None:
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other")  # of one name
    issued = own.issue("ada")
    key = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate, *others = x509.load_pem_x509_certificates(
        issued.certificate.read_bytes() + other.pem + own.pem
    )
    made = pkcs12.serialize_key_and_certificates(
        b"ada", key, certificate, others, serialization.NoEncryption()
    )
    found = stores.read(made, None)
    assert found.trusted == (other.pem.decode(),)
    assert found.chain == (issued.certificate.read_text(), own.pem.decode())
    twice = pkcs12.serialize_key_and_certificates(
        b"ada", key, certificate, [*others, others[1]], serialization.NoEncryption()
    )
    assert stores.read(twice, None).trusted == (other.pem.decode(), own.pem.decode())


@pytest.mark.parametrize(
    ("store", "password", "says"),
    [
        ("stores/client.keystore.jks", "wrong", "does not open the key"),
        ("stores/client.keystore.jceks", SECRETS[0], "another cipher.*keytool -importkeystore"),
        ("aiven-java/client.keystore.p12", "wrong", "missing or wrong"),
        ("aiven-java/client.keystore.p12", None, "missing or wrong"),
        ("msk-iam/client.properties", None, "neither PEM nor JKS nor PKCS12"),
    ],
)
def test_a_store_that_cannot_be_read_has_a_remedy(
    store: str, password: str | None, says: str
) -> None:
    with pytest.raises(NotTakenError, match=says):
        stores.read((KAFKA_FILES / store).read_bytes(), password)


def test_a_store_that_ends_early_is_refused() -> None:
    whole = (STORES / "client.keystore.jks").read_bytes()
    for end in range(4, len(whole) - 20, 7):  # the last 20 bytes are its digest
        with pytest.raises(NotTakenError):
            stores.read(whole[:end], SECRETS[0])


def test_pkcs12_without_the_package_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in list(sys.modules):
        if module.startswith("cryptography"):
            monkeypatch.setitem(sys.modules, module, None)
    content = (KAFKA_FILES / "aiven-java" / "client.keystore.p12").read_bytes()
    with pytest.raises(NotTakenError, match="pip install cryptography"):
        stores.read(content, SECRETS[0])


def test_pem_of_one_line_gets_its_line_ends_back() -> None:
    pem = (KAFKA_FILES / "aiven-folder" / "ca.pem").read_text()
    assert stores.reflowed(pem.replace("\n", " ")) == pem
    assert stores.reflowed(pem.replace("\n", "\\n")) == pem
