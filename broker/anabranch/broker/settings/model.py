"""A node's settings: a TOML file, overruled by the environment, overruled by flags.

Names are those of PIP-192 and of Pulsar's broker.conf where those have one; ours are written the
same way.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from anabranch.access.kafka import read_access
from anabranch.broker.settings.autoscale import AutoScaleFields
from anabranch.broker.settings.balance import BalanceFields
from anabranch.broker.settings.broker_client import BrokerClientFields
from anabranch.broker.settings.fields import AtRunTime, field
from anabranch.broker.settings.limits import LogFields, TenantLimitFields
from anabranch.broker.settings.ports import PortFields
from anabranch.broker.settings.security import SecurityFields
from anabranch.broker.settings.sources import SettingsError as SettingsError
from anabranch.broker.settings.sources import names_of, read_settings, written_name
from anabranch.broker.settings.tls import TlsFields
from anabranch.broker.settings.topic_lists import TopicListFields
from anabranch.core.adoption.adoptable import parse_adoptable
from anabranch.core.autoscale.policy import fault_of
from anabranch.core.balance import settings as balance_settings
from anabranch.core.effects import NodeSettings
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import PORT_MAX, BrokerId, broker_id
from anabranch.core.ring import BUNDLES_MAX

# Clocks may differ by this in rate, and a heartbeat may be late by this share of the lease.
_LIVENESS_MARGIN: Final = 1.2
_BEATS_PER_LEASE_MIN: Final = 3
WEB, WEB_TLS = "web_service_port", "web_service_port_tls"
BINARY, BINARY_TLS = "broker_service_port", "broker_service_port_tls"
PORTS: Final = (WEB, WEB_TLS, BINARY, BINARY_TLS)


def _adoptable_fault(text: str) -> str:
    try:
        parse_adoptable(text)
    except InvalidInputError as error:
        return str(error)
    return ""


class Settings(
    PortFields,
    TlsFields,
    SecurityFields,
    BrokerClientFields,
    LogFields,
    TopicListFields,
    TenantLimitFields,
    AutoScaleFields,
    BalanceFields,
):
    """A node's settings. People write the names in camelCase: `name_of`."""

    cluster_name: str = field("standalone", min_length=1, description="Name of the cluster.")
    bootstrap_servers: str = field(
        "localhost:9092", min_length=1, description="Kafka nodes to connect to first, host:port,..."
    )
    kafka_properties_file: Path | None = field(
        None, description="File or folder of a Kafka client's properties, Java's or librdkafka's."
    )
    kafka_token_provider: str | None = field(
        None,
        description=(
            "Provider of Kafka's tokens (OAUTHBEARER): aws, gcp, azure, file:PATH or "
            "module:function."
        ),
    )
    topic_prefix: str = field(
        "anabranch.",
        pattern=r"^[a-zA-Z0-9._-]{1,40}$",
        description="First part of the names of the cluster's Kafka topics.",
    )
    replication_factor: int = field(
        3, ge=1, le=32767, description="Copies of each Kafka topic, when it is created."
    )
    min_insync_replicas: int = field(
        2, ge=1, le=32767, description="Copies that must hold a record before it counts as written."
    )
    data_dir: Path = field(Path("data"), description="Directory of this node's view of the log.")
    bind_address: str = field("0.0.0.0", description="Address to listen on.")  # noqa: S104
    advertised_address: str = field(
        computed=socket.gethostname,
        pattern=r"^[-.\w:\[\]]+$",
        description="Host name or address of this node for others; by default the host's own.",
    )
    web_service_port: int | None = field(
        8080,
        ge=1,
        le=PORT_MAX,
        description="Port of look-ups, administration and metrics; empty: none without TLS.",
    )
    web_service_port_tls: int | None = field(
        None, ge=1, le=PORT_MAX, description="Port like webServicePort, with TLS; empty: none."
    )
    broker_service_port: int | None = field(
        6650,
        ge=0,
        le=PORT_MAX,
        description="Port of the binary protocol for clients; 0: any free one; empty: none without "
        "TLS.",
    )
    broker_service_port_tls: int | None = field(
        None,
        ge=0,
        le=PORT_MAX,
        description="Port like brokerServicePort, with TLS; 0: any free one; empty: none.",
    )
    default_number_of_namespace_bundles: AtRunTime[int] = field(
        4, ge=1, le=BUNDLES_MAX, description="Bundles of a namespace that is created without any."
    )
    broker_shutdown_timeout_ms: AtRunTime[int] = field(
        60_000, ge=0, description="Time for a graceful stop; then the node just ends."
    )
    heartbeat_interval_millis: int = field(
        500, ge=10, description="Time between a node's heartbeats; the same on every node."
    )
    lease_millis: int = field(
        4_000,
        ge=100,
        description="Time for which a heartbeat lets its node act; the same everywhere.",
    )
    liveness_timeout_millis: int = field(
        6_000,
        ge=200,
        description="Silence after which a node counts as dead; the same on every node.",
    )
    lookup_timeout_millis: AtRunTime[int] = field(
        10_000, ge=1, description="Time that a look-up waits for a moving bundle."
    )
    operation_timeout_millis: AtRunTime[int] = field(
        30_000, ge=1, description="Time that an administrative request waits to be done."
    )
    max_concurrent_lookup_request: AtRunTime[int] = field(
        50_000, ge=1, description="Look-ups that may wait for bundles at once; more are refused."
    )
    snapshot_interval_seconds: AtRunTime[float] = field(
        60.0, ge=0.1, description="Time after which the leader writes a snapshot of changes."
    )
    archive_stalled_seconds: float = field(
        3_600.0,
        gt=0,
        description="Time without progress, while the log goes on, after which an archive is "
        "reported.",
    )
    passed_over_log_offsets: str = field(
        "",
        pattern=r"^([0-9]{1,18}(,[0-9]{1,18})*)?$",
        description="Offsets (a,b,...) of log records that falsely claim to be of a newer release, "
        "and are skipped; the same on every node.",
    )
    scalable_topic_enabled: bool = field(
        True, description="Topics are made, watched, consumed and scaled."
    )
    scalable_topic_consumer_session_grace_period_seconds: float = field(
        60.0,
        gt=0,
        le=86_400,
        description="Time that an absent consumer keeps its share of a topic.",
    )
    scalable_topic_consumer_session_timeout_seconds: float = field(
        10.0,
        ge=2,  # else there would be no time in which a commit may begin
        le=3_600,
        description="Time without an answer after which a consumer stops serving.",
    )
    scalable_topic_retention_seconds: int = field(
        604_800,
        ge=-1,
        le=3_153_600_000,
        description="Time that messages read by every subscription are kept; -1: for ever.",
    )
    scalable_topic_sealed_retention_seconds: int = field(
        130,
        ge=0,
        le=3_153_600_000,
        description="Least time that a sealed segment is kept: producers' delivery_timeout_s, "
        "and 10 s.",
    )
    scalable_topic_unread_retention_seconds: int = field(
        -1,
        ge=-1,
        le=3_153_600_000,
        description="Time that messages unread by some subscription are kept; -1: for ever.",
    )
    scalable_topic_unread_retention_bytes: int = field(
        -1,
        ge=-1,
        description="Bytes of an entry bucket from which its oldest messages go, read or not; "
        "-1: any number.",
    )
    scalable_topic_subscription_expiry_seconds: int = field(
        -1,
        ge=-1,
        le=3_153_600_000,
        description="Time that an unused subscription is kept; -1: for ever.",
    )
    scalable_topic_survey_interval_seconds: float = field(
        60.0,
        ge=0.1,
        le=3_600,
        description="Time between looks at each subscription's progress.",
    )
    adoptable_topics: AtRunTime[str] = field(
        "",
        check=_adoptable_fault,
        description="Kafka topics that namespaces may adopt: tenant/namespace=name,...; * at a "
        "name's end stands for any rest. None by default.",
    )
    max_message_size: int = field(
        1_048_588,
        ge=1_024,
        le=1 << 30,
        description="Most bytes of a batch of messages that Kafka takes on a scalable topic.",
    )

    @property
    def broker_id(self) -> BrokerId:
        """host:webPort, this node's name in the cluster; the port is that with TLS if there is no
        other.
        """
        port = self.web_service_port or self.web_service_port_tls
        return broker_id(f"{self.advertised_address}:{port}")

    @property
    def web_url(self) -> str:
        """The address for others' HTTP requests; "" if there is none."""
        return self._url("http", self.web_service_port)

    @property
    def web_url_tls(self) -> str:
        """The same with TLS."""
        return self._url("https", self.web_service_port_tls)

    @property
    def service_url(self) -> str:
        """The address for clients; "" if there is none, or if the port is not known yet."""
        return self._url("pulsar", self.broker_service_port)

    @property
    def service_url_tls(self) -> str:
        """The same with TLS."""
        return self._url("pulsar+ssl", self.broker_service_port_tls)

    def _url(self, scheme: str, port: int | None) -> str:
        return f"{scheme}://{self.advertised_address}:{port}" if port else ""

    @property
    def lookup_timeout_s(self) -> float:
        """The longest time that a look-up waits."""
        return self.lookup_timeout_millis / 1000

    @property
    def operation_timeout_s(self) -> float:
        """The longest time that an administrative request waits."""
        return self.operation_timeout_millis / 1000

    @property
    def view_dir(self) -> Path:
        """Directory of the RocksDB view."""
        return self.data_dir / "view"

    @property
    def passed_over(self) -> frozenset[int]:
        """`passed_over_log_offsets` as numbers."""
        return frozenset(map(int, filter(None, self.passed_over_log_offsets.split(","))))

    def node_settings(self) -> NodeSettings:
        """The part that the core decides by."""
        balance = self.balance
        return NodeSettings(
            broker=self.broker_id,
            cluster=self.cluster_name,
            web_url=self.web_url,
            service_url=self.service_url,
            web_url_tls=self.web_url_tls,
            service_url_tls=self.service_url_tls,
            authorizes=self.authorization_enabled,
            superusers=tuple(sorted(self.superusers)),
            heartbeat_s=self.heartbeat_interval_millis / 1000,
            lease_s=self.lease_millis / 1000,
            liveness_timeout_s=self.liveness_timeout_millis / 1000,
            default_bundles=self.default_number_of_namespace_bundles,
            stuck_after_s=balance.in_flight_service_unit_state_waiting_time_in_millis / 1000,
            monitor_interval_s=balance.service_unit_state_monitor_interval_in_seconds,
            tombstone_delay_s=balance.service_unit_state_tombstone_delay_time_in_seconds,
            balance=balance,
        )


def name_of(field: str) -> str:
    """Returns people's name of a field of the settings."""
    return written_name(Settings, field)


SETTING_NAMES: Final = names_of(Settings)
_GRACE: Final = "scalableTopicConsumerSessionGracePeriodSeconds"
_SESSION: Final = "scalableTopicConsumerSessionTimeoutSeconds"
_READ: Final = "scalableTopicRetentionSeconds"
_UNREAD: Final = "scalableTopicUnreadRetentionSeconds"
_SESSION_SHARE_MAX: Final = 0.75


def load_settings(
    file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object]
) -> Settings:
    """Settings from all three sources; `overrides` are flags, by their camelCase names.

    Kafka's own client file tells Kafka's address where nothing else does. Raises SettingsError with
    every problem found.
    """
    settings = read_settings(Settings, file, environment, overrides, contradictions)
    if "bootstrap_servers" in settings.given:
        return settings
    try:
        servers = read_access(settings.kafka_properties_file, environment).bootstrap_servers
    except InvalidInputError as error:
        raise SettingsError([str(error)]) from None
    if servers is None:
        return settings
    named = {**overrides, "bootstrapServers": servers}
    return read_settings(Settings, file, environment, named, contradictions)


def contradictions(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Settings that are fine alone but not together: the names involved and what to do."""
    yield from _port_problems(settings)
    beat = settings.heartbeat_interval_millis
    lease = settings.lease_millis
    timeout = settings.liveness_timeout_millis
    if beat * _BEATS_PER_LEASE_MIN > lease:
        yield (
            ("heartbeatIntervalMillis", "leaseMillis"),
            (
                f"leaseMillis is {lease}, too short for heartbeatIntervalMillis of {beat}: give at "
                f"least {_BEATS_PER_LEASE_MIN} heartbeats, {beat * _BEATS_PER_LEASE_MIN}"
            ),
        )
    if lease * _LIVENESS_MARGIN > timeout:
        yield (
            ("leaseMillis", "livenessTimeoutMillis"),
            (
                f"livenessTimeoutMillis is {timeout}, too close to leaseMillis of {lease}: clocks "
                f"may run at different rates, give at least {round(lease * _LIVENESS_MARGIN)}"
            ),
        )
    grace = settings.scalable_topic_consumer_session_grace_period_seconds
    session = settings.scalable_topic_consumer_session_timeout_seconds
    if session > grace * _SESSION_SHARE_MAX:
        yield (
            (_GRACE, _SESSION),
            (
                f"{_SESSION} is {session:g}, too long for {_GRACE} of {grace:g}: a consumer must "
                "have stopped before its share is given away; give at most "
                f"{grace * _SESSION_SHARE_MAX:g}"
            ),
        )
    read = settings.scalable_topic_retention_seconds
    unread = settings.scalable_topic_unread_retention_seconds
    if unread >= 0 and not 0 <= read <= unread:
        yield (
            (_READ, _UNREAD),
            (
                f"{_UNREAD} is {unread}, less than {_READ}, {'for ever' if read < 0 else read}: "
                "unread messages must be kept as long as read ones, at least"
            ),
        )
    wrong = fault_of(settings.auto_scale_policy)
    if wrong:
        yield tuple(map(name_of, AutoScaleFields.fields)), f"scalableTopic...: {wrong}"
    yield from balance_settings.contradictions(settings.balance)
    if settings.min_insync_replicas > settings.replication_factor:
        yield (
            ("minInsyncReplicas", "replicationFactor"),
            (
                f"minInsyncReplicas is {settings.min_insync_replicas}, more than "
                f"replicationFactor, {settings.replication_factor}: nothing could ever be written"
            ),
        )


def _port_problems(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    with_tls = [port for port in PORTS[1::2] if getattr(settings, port) is not None]
    trusts = settings.tls_trust_certs_file_path is not None
    yield from settings.security_problems(trusts_certificates=trusts)
    yield from settings.broker_client_problems()
    yield from settings.tls_problems(name_of(with_tls[0]) if with_tls else "")
    for plain, tls in (PORTS[:2], PORTS[2:]):
        if getattr(settings, plain) is None and getattr(settings, tls) is None:
            names = name_of(plain), name_of(tls)
            yield names, f"neither {names[0]} nor {names[1]} is given: a node needs one of them"
