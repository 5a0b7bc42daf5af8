"""The Kafka of `anabranch dev --secure`, as strangers and roles meet it who ask no node."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from anabranch.access.kafka import read_access
from anabranch.admin import Admin, Tls, Token
from anabranch.channel.kafka.topics import Topics
from anabranch.devkit.security import DevSecurity
from support.authority import Authority
from support.processes import HOST, Dev, dev, run
from support.quiet import QUIET
from support.waiting import WAIT_S

TOPIC = "topic://public/default/orders"
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED


class Someone:
    """A plain client of Kafka's, which shows a certificate of its own."""

    def __init__(self, servers: str, properties: Mapping[str, str]) -> None:
        self.told = {**QUIET, **properties, "bootstrap.servers": servers}

    def append(self, topic: str) -> int:
        """The error's number, of Kafka's; 0: it was appended."""
        ended: list[int] = []

        def end(error: KafkaError | None, _: Message) -> None:
            ended.append(0 if error is None else error.code())

        producer = Producer({**self.told, "message.timeout.ms": int(WAIT_S * 1000)})
        producer.produce(topic, b"by itself", partition=0, on_delivery=end)
        producer.flush(WAIT_S)
        return ended[0]

    def look(self, topic: str) -> int:
        """The error's number by which Kafka tells of the topic; 0: it tells."""
        error = AdminClient(self.told).list_topics(topic, WAIT_S).topics[topic].error
        return 0 if error is None else error.code()

    def is_refused(self, topic: str) -> bool:
        """Whether it is kept from both: Read and Write bring Describe along."""
        return (self.append(topic), self.look(topic)) == (REFUSED, REFUSED)


def read(file: Path) -> dict[str, str]:
    return read_access(file, {}).checked().properties


def stores_of(role: Path, folder: Path) -> Path:
    """A file of Java with a role's certificate in a keystore."""
    chain = x509.load_pem_x509_certificates(Path(f"{role}-kafka.pem").read_bytes())
    key = load_pem_private_key(Path(f"{role}-kafka.key").read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    hidden = BestAvailableEncryption(b"deep-drawer-75")
    store, file = folder / "keystore.p12", folder / "java.properties"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"role", key, chain[0], chain[1:], hidden)
    )
    file.write_text(
        "security.protocol = SSL\n"
        f"ssl.keystore.location = {store}\nssl.keystore.password = deep-drawer-75\n"
        f"ssl.truststore.location = {role.parent / 'authority.pem'}\nssl.truststore.type = PEM\n"
    )
    return file


def admin_of(running: Dev, folder: Path) -> Admin:
    return Admin(
        f"https://{HOST}:{running.port}",
        tls=Tls(ca_file=folder / "authority.pem"),
        credentials=Token(folder / "admin.token"),
    )


def asks_for_a_certificate(port: int, authority: Path) -> None:
    """Fails unless whoever shows none is disconnected before it can say anything."""
    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection((HOST, port), WAIT_S) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)certificate"),
        context.wrap_socket(plain, server_hostname=HOST) as secured,
    ):
        assert secured.recv(1) == b"never"


def test_kafka_refuses_whom_nothing_was_granted(tmp_path: Path) -> None:
    with dev(tmp_path, nodes=1, flags=("--secure",)) as running:
        running.await_line("ready: 1 node")
        folder = tmp_path / "data" / "security"
        made = run("dev-role", "ada", "--data-dir", str(tmp_path / "data"))
        assert made.returncode == 0, made.stderr
        ada = Someone(running.kafka, read(folder / "roles" / "ada.properties"))
        master = Someone(running.kafka, read(folder / "admin.properties"))
        with admin_of(running, folder) as admin:
            admin.scalable_topics.create_scalable_topic(TOPIC)
            known = AdminClient(master.told).list_topics(timeout=WAIT_S).topics
            (segment,) = (name for name in known if name.startswith("anabranch.segment."))
            assert ada.is_refused(segment)
            assert ada.is_refused(Topics("anabranch.").wal)
            assert master.append(segment) == 0
        stored = Someone(running.kafka, read(stores_of(folder / "admin", tmp_path)))
        assert stored.append(segment) == 0
        node = AdminClient(Someone(running.kafka, read(folder / "node.properties")).told)
        with pytest.raises(KafkaException) as refused:
            node.create_topics([NewTopic("others", 1, 1)])["others"].result(WAIT_S)
        assert refused.value.args[0].code() == REFUSED
        lines = (tmp_path / "data" / "kafka" / "server.properties").read_text().splitlines()
        (listeners,) = (line for line in lines if line.startswith("listeners="))
        ports = [int(each.rpartition(":")[2]) for each in listeners.split(",")]
        assert len(ports) == 2  # clients', and its controller's
        for port in ports:
            asks_for_a_certificate(port, folder / "authority.pem")
        forged = Authority(tmp_path / "other").issue("admin")
        told = {
            **master.told,
            "ssl.certificate.location": str(forged.certificate),
            "ssl.key.location": str(forged.key),
        }
        with pytest.raises(KafkaException):
            AdminClient(told).list_topics(timeout=5.0)


@pytest.mark.long
def test_a_cluster_without_starts_in_the_shell_of_one_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    security = DevSecurity(tmp_path / "security")
    for line in security.write_exports("https://127.0.0.1:1", "127.0.0.1:1").splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value)
    with dev(tmp_path, nodes=1) as running:
        running.await_line("ready: 1 node")
