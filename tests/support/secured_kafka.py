"""A Kafka that asks its clients for TLS and a password, and has rules on who may do what."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from anabranch.devkit import ports
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import HOST, Differences
from support.authority import Authority
from support.kafka_files import written
from support.quiet import QUIET
from support.tcp_proxy import TcpProxy
from support.waiting import WAIT_S

# Who may do everything, and who only what an ACL says.
MASTER: Final = "master"
LIMITED: Final = "limited"
NODE: Final = "node"  # likewise
SCRAM: Final = "SCRAM-SHA-512"
PASSWORDS: Final = {MASTER: "open-sesame-71", LIMITED: "little-key-72", NODE: "harbour-gate-74"}

_STORE_PASSWORD: Final = "deep-drawer-75"

_KINDS: Final = {
    "topics": ResourceType.TOPIC,
    "groups": ResourceType.GROUP,
    "transactions": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}

Right = tuple[str, str, str]  # kind, first part of the names, operation


CLUSTER: Final = "kafka-cluster"


def rights_of_a_node(prefix: str) -> list[Right]:
    """All that a node needs, as its errors say."""
    common = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "DELETE")
    needed = {
        "topics": (*common, "CREATE", "WRITE"),
        "groups": common,
        "transactions": ("DESCRIBE", "WRITE"),
    }
    return [(kind, prefix, each) for kind, operations in needed.items() for each in operations]


def rights_of_a_leader(prefix: str) -> list[Right]:
    """All that a node may need: also to make ACLs of grants (`kafkaAclsEnabled`)."""
    of_cluster = (("cluster", CLUSTER, each) for each in ("ALTER", "DESCRIBE"))
    return [*rights_of_a_node(prefix), *of_cluster]


class SecuredKafka:
    """A running one. Its clients come through a proxy; the test has a door of its own, `open_at`.

    Used as a context manager.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.authority = folder / "authority.pem"
        listens = ports.free_port(HOST)
        self.proxy = TcpProxy(listens)
        users = " ".join(f'user_{name}="{word}"' for name, word in PASSWORDS.items())
        of_listener = "listener.name.second"
        server = {
            "listener.security.protocol.map": (
                "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECOND:SASL_SSL"
            ),
            f"{of_listener}.ssl.keystore.type": "PEM",
            f"{of_listener}.ssl.keystore.location": str(folder / "server-and-key.pem"),
            f"{of_listener}.sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
            f"{of_listener}.{SCRAM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            f"{of_listener}.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required " + users + ";"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{MASTER}",
        }
        self._kafka = EmbeddedKafka(
            folder / "kafka",
            second_listener=(listens, self.proxy.port),
            differences=Differences(server),
        )

    @property
    def bootstrap_servers(self) -> str:
        """Where clients with TLS and a password connect to."""
        return f"{HOST}:{self.proxy.port}"

    @property
    def open_at(self) -> str:
        """Where anybody may do anything."""
        return self._kafka.bootstrap_servers

    def security(
        self, user: str = MASTER, password: str = "", mechanism: str = "PLAIN"
    ) -> dict[str, str]:
        """librdkafka's properties of a client."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or PASSWORDS[user],
        }

    def properties_file(self, security: Mapping[str, str]) -> Path:
        """The same as a file."""
        path = self._folder / f"{len(list(self._folder.iterdir()))}.properties"
        return written(path, security)

    def javas_file(self, user: str = MASTER) -> Path:
        """The same as Kafka's own tools have it, with a truststore of two authorities."""
        certificates = [
            x509.load_pem_x509_certificate(each)
            for each in (
                Authority(self._folder / "another", "another authority").pem,
                self.authority.read_bytes(),
            )
        ]
        store = self._folder / "truststore.jks"  # PKCS12 all the same
        store.write_bytes(
            pkcs12.serialize_java_truststore(
                [pkcs12.PKCS12Certificate(each, b"ca") for each in certificates],
                BestAvailableEncryption(_STORE_PASSWORD.encode()),
            )
        )
        path = self._folder / f"{user}.java.properties"
        path.write_text(
            f"# {user}\n"
            f"bootstrap.servers: SASL_SSL://{self.bootstrap_servers}\n"
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={SCRAM}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
            f'    username="{user}" \\\n    password="{PASSWORDS[user]}";\n'
            f"ssl.truststore.location={store}\n"
            f"ssl.truststore.password={_STORE_PASSWORD}\n"
            "acks=all\n"
        )
        return path

    def allow(self, *rights: Right, user: str = LIMITED) -> None:
        """Gives the user these rights."""
        admin = self._admin()
        allowed = [AclBinding(*_rule(right, user)) for right in rights]
        for future in admin.create_acls(allowed).values():
            future.result(WAIT_S)
        self._await(rights, user, are_there=True)

    def forbid(self, *rights: Right, user: str = LIMITED) -> None:
        """Takes these rights from the user."""
        admin = self._admin()
        allowed = [AclBindingFilter(*_rule(right, user)) for right in rights]
        for future in admin.delete_acls(allowed).values():
            future.result(WAIT_S)
        self._await(rights, user, are_there=False)

    def _await(self, rights: Sequence[Right], user: str, *, are_there: bool) -> None:
        """Returns once the broker goes by it: its controller has told it by then."""
        admin = self._admin()
        for right in rights:
            asked = AclBindingFilter(*_rule(right, user))
            while bool(admin.describe_acls(asked).result(WAIT_S)) is not are_there:
                time.sleep(0.01)

    def _tell_passwords(self) -> None:
        """Kafka keeps those of SCRAM itself, and not in its settings."""
        told: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(
                name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), word.encode()
            )
            for name, word in PASSWORDS.items()
        ]
        admin = self._admin()
        for future in admin.alter_user_scram_credentials(told).values():
            future.result(WAIT_S)

    def _admin(self) -> AdminClient:
        return AdminClient({**QUIET, "bootstrap.servers": self.open_at})

    def __enter__(self) -> Self:
        authority = Authority(self._folder)
        shown = authority.issue("server", server=True)
        parts = (each.read_bytes() for each in (shown.key, shown.certificate))
        (self._folder / "server-and-key.pem").write_bytes(b"".join(parts))
        self.proxy.__enter__()
        try:
            self._kafka.start()
            self._tell_passwords()
        except BaseException:
            self._kafka.kill()
            self.proxy.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kafka.kill()
        self.proxy.__exit__()


def _rule(right: Right, user: str) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
    kind, prefix, operation = right
    types = ResourcePatternType
    pattern = types.LITERAL if kind == "cluster" else types.PREFIXED
    yes = AclPermissionType.ALLOW
    return _KINDS[kind], prefix, pattern, f"User:{user}", "*", AclOperation[operation], yes
