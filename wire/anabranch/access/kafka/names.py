"""The table of what becomes of each name that a file for Kafka's clients may have.

Sources: librdkafka's CONFIGURATION.md, and the configurations of Kafka's producer, consumer and
administrator. `translation` reads the names that belong together: a login, a trust, an identity.
"""

from __future__ import annotations

import difflib
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Taken under librdkafka's own name.
TAKEN: Final = _words("""
client.dns.lookup client.id enable.sasl.oauthbearer.unsecure.jwt
enable.ssl.certificate.verification https.ca.location https.ca.pem sasl.kerberos.keytab
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
sasl.kerberos.service.name sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location
ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location
ssl.key.password ssl.key.pem ssl.providers ssl.sigalgs.list
""")
# `translation` makes others of them.
READ: Final = _words("""
bootstrap.servers sasl.client.callback.handler.class sasl.jaas.config
sasl.login.callback.handler.class sasl.mechanism sasl.oauthbearer.access.token.retriever.class
sasl.oauthbearer.jwt.retriever.class ssl.keystore.certificate.chain ssl.keystore.key
ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type
""")
ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
}
# Variables of nais on Aiven, and files of Aiven, Strimzi's users and its Access Operator.
OF_A_PLATFORM: Final = {
    "KAFKA_BOOTSTRAP_SERVERS": "bootstrap.servers",
    "KAFKA_BROKERS": "bootstrap.servers",
    "KAFKA_CA": "ssl.ca.pem",
    "KAFKA_CA_PATH": "ssl.ca.location",
    "KAFKA_CERTIFICATE": "ssl.certificate.pem",
    "KAFKA_CERTIFICATE_PATH": "ssl.certificate.location",
    "KAFKA_PRIVATE_KEY": "ssl.key.pem",
    "KAFKA_PRIVATE_KEY_PATH": "ssl.key.location",
    "ca.crt": "ssl.ca.pem",
    "ca.pem": "ssl.ca.pem",
    "service.cert": "ssl.certificate.pem",
    "service.key": "ssl.key.pem",
    "ssl.keystore.crt": "ssl.certificate.pem",
    "ssl.truststore.crt": "ssl.ca.pem",
    "user.crt": "ssl.certificate.pem",
    "user.key": "ssl.key.pem",
}
# In folders of theirs: said by other files, too, or nothing to Kafka's clients.
BESIDE_IN_FOLDERS: Final = _words(
    "ca.p12 ca.password password provider type user user.p12 user.password username"
)
# Decided by Anabranch, or of no meaning to librdkafka; with a dot at its end: all that begin so.
_IGNORED: Final = _words("""
KAFKA_CREDSTORE_PASSWORD KAFKA_KEYSTORE_PATH KAFKA_SCHEMA_REGISTRY
KAFKA_SCHEMA_REGISTRY_PASSWORD KAFKA_SCHEMA_REGISTRY_USER KAFKA_SECRET_UPDATED
KAFKA_TRUSTSTORE_PATH acks admin. allow.auto.create.topics api.version. auto. basic.auth. batch.
bootstrap.controllers broker.address. broker.version. buffer.memory builtin.features check.crcs
client.rack client.software. compression. config.providers confluent. connections. consume.
consumer. coordinator. debug default.api.timeout.ms delivery. enable.auto.
enable.gapless.guarantee enable.idempotence enable.metrics.push enable.partition.eof
enable.random.seed enable.sparse.connections exclude.internal.topics fetch. group.
heartbeat.interval.ms interceptor. internal. isolation.level key. linger.ms log. log_level max.
message. metadata. metric.reporters metrics. offset.store. partition.assignment.strategy
partitioner partitioner. producer. queue. queued. queuing. receive. reconnect. request. retries
retry. sasl.kerberos.ticket.renew. sasl.login. sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected. sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.
sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name schema.registry.
security.providers send. session.timeout.ms share. socket. specific.avro.reader
ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm statistics. sticky.partitioning.
topic. transaction. transactional.id use.latest.version value.
""")
_FAMILIES: Final = tuple(name for name in _IGNORED if name.endswith("."))
_REFUSED: Final = {
    "ssl.engine.factory.class": "a Java class makes the TLS, and may have the identity: give "
    "ssl.truststore.* and ssl.keystore.*, or PEM",
    "export": "it is a shell's file: write name=value without export",
}
_PREFIXES: Final = ("spring.kafka.properties.", "spring.kafka.", "quarkus.kafka.", "kafka.")
# A later source's name takes the place of another form of the same.
_FORMS: Final = (
    _words("sasl.jaas.config sasl.username"),
    _words("sasl.jaas.config sasl.password"),
    _words("ssl.ca.location ssl.ca.pem ssl.truststore.location ssl.truststore.certificates"),
    _words("ssl.key.location ssl.key.pem ssl.keystore.location ssl.keystore.key"),
    _words(
        "ssl.certificate.location ssl.certificate.pem ssl.keystore.location "
        "ssl.keystore.certificate.chain"
    ),
)
_SECRET: Final = ("password", "secret", "passphrase", "jaas.config", "key")


def displaced(name: str) -> frozenset[str]:
    """Returns the names in whose place a later source's name comes."""
    if name in ("sasl.username", "sasl.password"):
        return frozenset()  # one of them goes before a part of a login
    return frozenset().union(*(forms for forms in _FORMS if name in forms)) - {name}


def shown(name: str) -> str:
    """Returns how to call a name: one that is none of Kafka's may be a part of a password."""
    return name if name in TAKEN or name in READ or is_ignored(name) else "a name (not shown)"


def is_ignored(name: str) -> bool:
    """Returns whether the name has no effect here, by intention."""
    return name in _IGNORED or name.startswith(_FAMILIES)


def is_secret(name: str) -> bool:
    """Returns whether white space at the end of its value may belong to a password."""
    return name.endswith(_SECRET)


def refusal(name: str) -> tuple[str, str]:
    """Returns how to call a name that is neither known nor ignored, and why it is refused, with a
    remedy. A name that is like none of Kafka's may be a part of a password, and is not shown.
    """
    if name in _REFUSED:
        return name, _REFUSED[name]
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, "take this prefix away from the names of the file"
    wanted = name.removeprefix("KAFKA_").lower().replace("_", ".").replace("-", ".")
    near = difflib.get_close_matches(wanted, sorted(TAKEN | READ | _IGNORED), n=1, cutoff=0.7)
    if near:
        return name, f"Kafka's clients have no such name: write {near[0]}, or leave it out"
    return (
        "its name (not shown)",
        "Kafka's clients have none like it: write name=value, or leave it out",
    )
