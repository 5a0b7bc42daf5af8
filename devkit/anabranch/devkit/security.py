"""The files of `anabranch dev --secure`: an authority, certificates, a secret, tokens.

All are in one folder, which a later run goes on with, so that a client's trust in its authority
lasts. The certificates and the tokens of the superuser and of the nodes are made again each time. A
role shows its token to nodes, and a certificate to Kafka, whose common name is the role. So Kafka
accepts any role that was made here, without being told of it, and its ACLs tell the role's rights.
Only its owner can read the secrets.

Tried and dropped: the token for Kafka as well (OAUTHBEARER). Python's client of Kafka (2.16) waits
a whole second for its first token whenever a client is made, and there is one for each segment.
"""

from __future__ import annotations

import re
import secrets
import shlex
import ssl
import time
from pathlib import Path
from typing import Final

import jwt

from anabranch.core.errors import InvalidInputError
from anabranch.devkit.authority import OF_CLIENT, OF_SERVER, DevAuthority, write_whole
from anabranch.devkit.kafka.node_rights import allow_node
from anabranch.devkit.kafka.settings import Differences

ADMIN: Final = "admin"  # the superuser, of Kafka too
NODE: Final = "node"  # the role of nodes: it asks nodes for others, and Kafka for itself
_KAFKA: Final = "kafka"  # the role of Kafka itself
_SECRET_BYTES: Final = 64
_CERTIFICATE_DAYS: Final = 365
_ROLE_DAYS: Final = 30
_ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # a file's name, and a certificate's


class DevRole:
    """The files of a role: a token for nodes, a certificate for Kafka."""

    def __init__(self, folder: Path, role: str) -> None:
        self.name = role
        self.token_file = folder / f"{role}.token"
        self.kafka_file = folder / f"{role}.properties"  # librdkafka's
        self._certificate_file = folder / f"{role}-kafka.pem"
        self._key_file = folder / f"{role}-kafka.key"

    def make(self, authority: DevAuthority, secret: bytes) -> None:
        """Makes all of them again."""
        now = int(time.time())
        claims = {"sub": self.name, "iat": now, "exp": now + _ROLE_DAYS * 86_400}
        write_whole(self.token_file, jwt.encode(claims, secret, "HS256").encode())
        certificate, key = authority.issue(self.name, _ROLE_DAYS, [OF_CLIENT])
        write_whole(self._key_file, key)
        write_whole(self._certificate_file, certificate, 0o644)
        properties = self.kafka_properties(authority)
        lines = (f"{name}={value}\n" for name, value in properties.items())
        write_whole(self.kafka_file, "".join(lines).encode())

    def kafka_properties(self, authority: DevAuthority) -> dict[str, str]:
        """Returns librdkafka's properties with which Kafka accepts the role."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.file),
            "ssl.certificate.location": str(self._certificate_file),
            "ssl.key.location": str(self._key_file),
        }

    @property
    def exports(self) -> str:
        """Returns lines with which commands of a shell have that role."""
        return _exports(
            {
                "ANABRANCH_TOKEN_FILE": str(self.token_file),
                "ANABRANCH_KAFKA_PROPERTIES_FILE": str(self.kafka_file),
            }
        )


class DevSecurity:
    """The folder with the files of a secured cluster on this machine, made if it is not there.
    Raises InvalidInputError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exports_file = folder / "environment.sh"
        self.secret_file = folder / "secret.key"
        self._certificate_file, self._key_file = folder / "node.pem", folder / "node.key"
        self._kafka_file = folder / "kafka.pem"
        folder.mkdir(parents=True, exist_ok=True)
        if not self.secret_file.exists():
            write_whole(self.secret_file, secrets.token_bytes(_SECRET_BYTES))
        self._authority = DevAuthority(folder)
        self.authority_file = self._authority.file
        self._issue()
        self._admin, self._node = DevRole(folder, ADMIN), DevRole(folder, NODE)
        for role in (self._admin, self._node):
            role.make(self._authority, self.secret_file.read_bytes())
        self.token_file = self._admin.token_file

    @property
    def settings(self) -> tuple[str, ...]:
        """Returns the settings of each node, except its ports and its Kafka."""
        return (
            f"tlsCertificateFilePath={self._certificate_file}",
            f"tlsKeyFilePath={self._key_file}",
            "authenticationEnabled=true",
            "authenticationProviders=token",
            f"tokenSecretKey={self.secret_file}",
            "authorizationEnabled=true",
            f"superuserRoles={ADMIN},{NODE}",  # a node may ask for whoever may
            f"proxyRoles={NODE}",
            "brokerClientAuthenticationPlugin=token",
            f"brokerClientAuthenticationParameters=file://{self._node.token_file}",
            f"brokerClientTrustCertsFilePath={self.authority_file}",
        )

    @property
    def kafka_settings(self) -> tuple[str, ...]:
        """Returns the settings of each node with a Kafka that differs by `kafka`."""
        return ("kafkaAclsEnabled=true", f"kafkaPropertiesFile={self._node.kafka_file}")

    @property
    def kafka(self) -> Differences:
        """Returns the settings of a Kafka that accepts certificates of the authority, and lets
        nobody do anything.

        Its controller's port is guarded like any other, because anybody with access to it could
        make ACLs.
        """
        server = {
            "listener.security.protocol.map": "BROKER:SSL,CONTROLLER:SSL",
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._kafka_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority_file),
            "ssl.principal.mapping.rules": "RULE:^CN=([A-Za-z0-9._-]+)$/$1/",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{_KAFKA};User:{ADMIN}",
        }
        return Differences(server, client=self.kafka_properties)

    @property
    def kafka_properties(self) -> dict[str, str]:
        """Returns the properties with which Kafka accepts the superuser."""
        return self._admin.kafka_properties(self._authority)

    def let_nodes_in(self, bootstrap_servers: str, topic_prefix: str) -> None:
        """Gives the nodes only the rights that they need on such a Kafka, which has started.

        Raises KafkaRefusedError, KafkaUnreachableError.
        """
        allow_node(bootstrap_servers, self.kafka_properties, f"User:{NODE}", topic_prefix)

    @property
    def context(self) -> ssl.SSLContext:
        """Returns the TLS of a client of such a node."""
        return ssl.create_default_context(cafile=str(self.authority_file))

    @property
    def authorization(self) -> str:
        """Returns the header Authorization of the superuser."""
        return f"Bearer {self.token_file.read_text()}"

    def write_exports(self, url: str, bootstrap_servers: str) -> str:
        """Returns the lines with which commands of a shell ask that node, and writes them to a file
        as well.
        """
        named = {
            "ANABRANCH_URL": url,
            "ANABRANCH_BOOTSTRAP_SERVERS": bootstrap_servers,
            "ANABRANCH_TLS_CA": str(self.authority_file),
        }
        lines = _exports(named) + self._admin.exports
        write_whole(self.exports_file, lines.encode())
        return lines

    def _issue(self) -> None:
        """Issues the certificates of the nodes and of Kafka, which are all on this machine."""
        certificate, key = self._authority.issue("node", _CERTIFICATE_DAYS, [OF_SERVER])
        write_whole(self._key_file, key)
        write_whole(self._certificate_file, certificate, 0o644)
        both = (OF_SERVER, OF_CLIENT)  # it is a client of its own, too
        certificate, key = self._authority.issue(_KAFKA, _CERTIFICATE_DAYS, both)
        write_whole(self._kafka_file, key + certificate)


def make_role(folder: Path, role: str) -> Path:
    """Makes the files of that role, or makes them again. Returns a file for the shell.

    `folder` is that of a DevSecurity. Raises InvalidInputError.
    """
    if not _ROLE.fullmatch(role) or role in (ADMIN, NODE, _KAFKA):
        raise InvalidInputError(
            f"{role!a} cannot be made: give 1 to 64 letters, digits, dots, dashes and underscores, "
            f"a letter or digit first, and none of {ADMIN}, {NODE} and {_KAFKA}"
        )
    secret_file, begun = folder / "secret.key", folder / "environment.sh"
    if not (secret_file.exists() and begun.exists()):
        raise InvalidInputError(
            f"{folder} is not of a cluster that has begun: start `anabranch dev --secure` first, "
            "and give the same --data-dir"
        )
    of_roles = folder / "roles"
    of_roles.mkdir(exist_ok=True)
    made = DevRole(of_roles, role)
    made.make(DevAuthority(folder), secret_file.read_bytes())
    file = of_roles / f"{role}.sh"
    write_whole(file, f". {shlex.quote(str(begun))}\n{made.exports}".encode())
    return file


def _exports(named: dict[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in named.items())
