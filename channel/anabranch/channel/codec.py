"""The bytes of all that the channel stores: records, entities, the horizon, heartbeats, loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, get_args

import msgspec

from anabranch.channel.avro import read_length
from anabranch.channel.balance_records import BrokerLoadRecord, TopBundlesRecord
from anabranch.channel.errors import DELETE_KEY, NewerSchemaError, UnreadableError
from anabranch.channel.registry import MARKER, PREFIX_LENGTH, SchemaSet, stored_family
from anabranch.core.autoscale.load import LoadRecord
from anabranch.core.entities.archive import Archive
from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.override import SettingOverride
from anabranch.core.entities.permission import Permission
from anabranch.core.entities.placement_policy import PlacementPolicy
from anabranch.core.entities.session import Session
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import Unit
from anabranch.core.log.records import (
    ArchiveChange,
    ClusterSettings,
    NamespaceChange,
    PermissionChange,
    PlacementPolicyChange,
    Record,
    SessionChange,
    SettingChange,
    SubscriptionChange,
    TenantChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.log.state import Entity
from anabranch.core.sessions.lease import Heartbeat

HORIZON_KEY: Final = "horizon"  # the snapshot topic's key that is no entity's
SCHEMA_HEADER: Final = "anabranch-schema"
HEADERS_MAX: Final = 4  # in a record that every reader looks at

Headers = Sequence[tuple[str, bytes | None]]


class Horizon(msgspec.Struct, frozen=True, gc=False):
    """The place in the WAL that a snapshot stands for.

    `keys`, `check`, `form`: the sums of its writer's state (`state_sums`).
    """

    next_offset: int
    digest: str  # the state's digest there, in hex
    timestamp_ms: int = 0  # the time of the last record that it holds
    writer: str = ""
    epoch: int = 0
    keys: int = 0
    check: int = 0
    form: int = 0


_RECORDS: Final = SchemaSet(
    (
        stored_family("unit-move", UnitMove),
        stored_family("session-change", SessionChange),
        stored_family("cluster-settings", ClusterSettings),
        stored_family("tenant-change", TenantChange),
        stored_family("namespace-change", NamespaceChange),
        stored_family("archive-change", ArchiveChange),
        stored_family("topic-change", TopicChange),
        stored_family("subscription-change", SubscriptionChange),
        stored_family("placement-policy-change", PlacementPolicyChange),
        stored_family("setting-change", SettingChange),
        stored_family("permission-change", PermissionChange),
    )
)
_ENTITIES: Final = SchemaSet(
    (
        stored_family("unit", Unit),
        stored_family("session", Session),
        stored_family("cluster", Cluster),
        stored_family("tenant", Tenant),
        stored_family("namespace-info", NamespaceInfo),
        stored_family("archive", Archive),
        stored_family("scalable-topic", ScalableTopic),
        stored_family("subscription", Subscription),
        stored_family("placement-policy", PlacementPolicy),
        stored_family("setting-override", SettingOverride),
        stored_family("permission", Permission),
    )
)
ENTITY_PREFIXES: Final = tuple(map(_ENTITIES.prefix, get_args(Entity)))
"""The first bytes of every kind of state as this release writes it."""
_OF_ARCHIVES: Final = _RECORDS.prefixes(ArchiveChange)
_NAMED_ARCHIVES: Final = b"archive-change/"
_HORIZONS: Final = SchemaSet((stored_family("horizon", Horizon),))
_HEARTBEATS: Final = SchemaSet((stored_family("heartbeat", Heartbeat),))
LOADS: Final = SchemaSet((stored_family("segment-load", LoadRecord),))
BROKER_LOADS: Final = SchemaSet((stored_family("broker-load", BrokerLoadRecord),))
TOP_BUNDLES: Final = SchemaSet((stored_family("top-bundles", TopBundlesRecord),))
STORED: Final = (
    _RECORDS,
    _ENTITIES,
    _HORIZONS,
    _HEARTBEATS,
    LOADS,
    BROKER_LOADS,
    TOP_BUNDLES,
)
"""All that is stored, each kind with its schemas."""

encode_record: Final[Callable[[Record], bytes]] = _RECORDS.encode
encode_entity: Final[Callable[[Entity], bytes]] = _ENTITIES.encode
encode_horizon: Final[Callable[[Horizon], bytes]] = _HORIZONS.encode
encode_heartbeat: Final[Callable[[Heartbeat], bytes]] = _HEARTBEATS.encode
decode_record: Final[Callable[[bytes], Record]] = _RECORDS.decode
"""The record of a WAL value. Raises UnreadableError."""
knows_record: Final = _RECORDS.knows


def schema_header(record: Record) -> tuple[str, bytes]:
    """The Kafka header that names a record's schema to releases that do not know it."""
    return SCHEMA_HEADER, _RECORDS.header(record)


def header_of(headers: Headers | None) -> bytes | None:
    """The schema header's value, if one of the first headers is it: Spark looks at no more."""
    for name, value in (headers or ())[:HEADERS_MAX]:
        if name == SCHEMA_HEADER and value is not None:
            return value
    return None


def read_entry(
    key: bytes | None, value: bytes | None, headers: Callable[[], Headers | None] | None = None
) -> Record | None:
    """Returns what a WAL entry proposes; None for what every reader alike calls unreadable.

    `headers` is called only for a value of no known schema. Raises NewerSchemaError.
    """
    if value is None or key is None:
        return None
    try:
        record = decode_record(value)
    except UnreadableError:
        header = header_of(headers()) if headers is not None else None
        if header is not None and _RECORDS.is_newer(value, header):
            name = header.decode(errors="replace")
            raise NewerSchemaError(name, f"the log entry of {key!r}") from None
        return None
    return record if record.key.encode() == key else None


def is_about_archives(value: bytes | None, schema: bytes | None) -> bool:
    """Tells whether a WAL value, by its first bytes or its header, is a record on an archive."""
    known = value is not None and value[:PREFIX_LENGTH] in _OF_ARCHIVES
    return known or (schema is not None and schema.startswith(_NAMED_ARCHIVES))


def decode_own(schemas: SchemaSet, place: str, value: bytes) -> Any:
    """Decodes what only nodes write, so that a strange fingerprint is a newer release's.

    Raises NewerSchemaError or, for damage, UnreadableError.
    """
    try:
        return schemas.decode(value)
    except UnreadableError:
        if value.startswith(MARKER) and not schemas.knows(value):
            schema = value[len(MARKER) : PREFIX_LENGTH].hex()
            raise NewerSchemaError(f"fingerprint {schema}", place, DELETE_KEY) from None
        raise


decode_entity: Final[Callable[[bytes], Entity]] = partial(
    decode_own, _ENTITIES, "a snapshot's value"
)
decode_horizon: Final[Callable[[bytes], Horizon]] = partial(
    decode_own, _HORIZONS, "a snapshot's horizon"
)
decode_heartbeat: Final[Callable[[bytes], Heartbeat]] = partial(
    decode_own, _HEARTBEATS, "a heartbeat"
)


def read_state(key: bytes, value: bytes) -> tuple[str, Entity]:
    """A row of a snapshot. Raises NewerSchemaError or UnreadableError for any other row."""
    try:
        name = key.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"key {key!r} is not UTF-8") from error
    return name, decode_entity(value)


_UNIT_PREFIX: Final = _ENTITIES.prefix(Unit)


def peek_unit(value: bytes) -> tuple[int, str, str]:
    """State, broker and source of an encoded Unit, without decoding the rest of it.

    Raises UnreadableError or NewerSchemaError as `decode_entity` does, or UnreadableError for
    another kind of entity.
    """
    if value[:PREFIX_LENGTH] != _UNIT_PREFIX:
        unit = decode_entity(value)
        if not isinstance(unit, Unit):
            raise UnreadableError(f"a {type(unit).__name__} where a unit was expected")
        return unit.state, unit.broker, unit.source
    try:
        size = value[11]
        at = 12
        if size & 129:
            size, at = read_length(value, 11)
        else:
            size >>= 1
        end = at + size
        broker = value[at:end].decode()
        size = value[end]
        at = end + 1
        if size & 129:
            size, at = read_length(value, end)
        else:
            size >>= 1
        if at + size > len(value):
            raise ValueError("it ends too early")
        return value[10] >> 1, broker, value[at : at + size].decode()
    except (IndexError, ValueError) as error:
        raise UnreadableError(f"a damaged unit: {error}") from error
