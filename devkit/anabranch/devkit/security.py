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

import os
import re
import secrets
import shlex
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from anabranch.channel.kafka.acls import KafkaAcls
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.errors import InvalidInputError
from anabranch.core.security.acls import AclDifference, node_acls
from anabranch.devkit.kafka.settings import Differences

ADMIN: Final = "admin"  # the superuser, of Kafka too
NODE: Final = "node"  # the role of nodes: it asks nodes for others, and Kafka for itself
_KAFKA: Final = "kafka"  # the role of Kafka itself
_SECRET_BYTES: Final = 64
_CERTIFICATE_DAYS: Final = 365
_ROLE_DAYS: Final = 30
_ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # a file's name, and a certificate's
OF_SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
OF_CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
_HOSTS: Final = ("127.0.0.1", "::1")
_AUTHORITY_DAYS: Final = 3_650
_EARLIER: Final = timedelta(minutes=5)  # clocks differ

_Key = ec.EllipticCurvePrivateKey
_ANSWER_S_MAX: Final = 120.0  # nodes may take as long to start
_LOOK_S: Final = 0.02


class DevAuthority:
    """The authority in a folder, made if it is not there. Raises InvalidInputError."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "authority.pem"
        self._key_file = folder / "authority.key"
        self._certificate, self._key = self._found() or self._made()

    def issue(
        self, name: str, days: int, usages: Sequence[ObjectIdentifier]
    ) -> tuple[bytes, bytes]:
        """Returns a certificate for that common name, and its key, as PEM.

        A certificate for servers is for this machine.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        begun = (
            _begun(_name(name), key, self._certificate.subject, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(signer, critical=False)
        )
        if OF_SERVER in usages:
            names = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(h)) for h in _HOSTS)]
            begun = begun.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return begun.sign(self._key, SHA256()).public_bytes(Encoding.PEM), _pem(key)

    def _found(self) -> tuple[x509.Certificate, _Key] | None:
        if not (self.file.exists() and self._key_file.exists()):
            return None
        try:
            found = x509.load_pem_x509_certificate(self.file.read_bytes())
            key = load_pem_private_key(self._key_file.read_bytes(), None)
        except ValueError:
            raise self._not_ours() from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise self._not_ours()
        return found, key

    def _made(self) -> tuple[x509.Certificate, _Key]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Anabranch dev")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            _begun(name, key, name, _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, SHA256())
        )
        write_whole(self._key_file, _pem(key))
        write_whole(self.file, made.public_bytes(Encoding.PEM), 0o644)
        return made, key

    def _not_ours(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self.file} and {self._key_file} are no authority of `anabranch dev --secure`: "
            f"remove {self.file.parent}, and it is made anew"
        )


def write_whole(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Writes the file beside its place, and moves it there at once. It replaces a former file."""
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(content)
    beside.replace(file)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _begun(subject: x509.Name, key: _Key, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _pem(key: _Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


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
        """Gives the nodes the rights that docs/topics.md names, and no others, on such a Kafka.

        It returns once Kafka applies them, at once if it has them already. Raises
        KafkaRefusedError, KafkaUnreachableError.
        """
        connection = KafkaConnection(bootstrap_servers, self.kafka_properties, "anabranch-dev")
        keeper = KafkaAcls(connection, f"{topic_prefix}wal")
        wanted = node_acls(f"User:{NODE}", topic_prefix, makes_acls=True)
        keeper.carry_out(AclDifference(missing=tuple(sorted(wanted))), _ANSWER_S_MAX)
        deadline = time.monotonic() + _ANSWER_S_MAX
        # Its controller has them; its broker follows.
        while not wanted <= keeper.find(_ANSWER_S_MAX):
            if time.monotonic() > deadline:
                raise connection.unreachable("to give nodes their rights")
            time.sleep(_LOOK_S)

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
