from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ServerError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UnknownError: _ClassVar[ServerError]
    MetadataError: _ClassVar[ServerError]
    PersistenceError: _ClassVar[ServerError]
    AuthenticationError: _ClassVar[ServerError]
    AuthorizationError: _ClassVar[ServerError]
    ConsumerBusy: _ClassVar[ServerError]
    ServiceNotReady: _ClassVar[ServerError]
    ProducerBlockedQuotaExceededError: _ClassVar[ServerError]
    ProducerBlockedQuotaExceededException: _ClassVar[ServerError]
    ChecksumError: _ClassVar[ServerError]
    UnsupportedVersionError: _ClassVar[ServerError]
    TopicNotFound: _ClassVar[ServerError]
    SubscriptionNotFound: _ClassVar[ServerError]
    ConsumerNotFound: _ClassVar[ServerError]
    TooManyRequests: _ClassVar[ServerError]
    TopicTerminatedError: _ClassVar[ServerError]
    ProducerBusy: _ClassVar[ServerError]
    InvalidTopicName: _ClassVar[ServerError]
    IncompatibleSchema: _ClassVar[ServerError]
    ConsumerAssignError: _ClassVar[ServerError]
    TransactionCoordinatorNotFound: _ClassVar[ServerError]
    InvalidTxnStatus: _ClassVar[ServerError]
    NotAllowedError: _ClassVar[ServerError]
    TransactionConflict: _ClassVar[ServerError]
    TransactionNotFound: _ClassVar[ServerError]
    ProducerFenced: _ClassVar[ServerError]
    ConsumerFenced: _ClassVar[ServerError]

class SegmentState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTIVE: _ClassVar[SegmentState]
    SEALED: _ClassVar[SegmentState]

class ScalableConsumerType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM: _ClassVar[ScalableConsumerType]
    CHECKPOINT: _ClassVar[ScalableConsumerType]
    QUEUE: _ClassVar[ScalableConsumerType]
UnknownError: ServerError
MetadataError: ServerError
PersistenceError: ServerError
AuthenticationError: ServerError
AuthorizationError: ServerError
ConsumerBusy: ServerError
ServiceNotReady: ServerError
ProducerBlockedQuotaExceededError: ServerError
ProducerBlockedQuotaExceededException: ServerError
ChecksumError: ServerError
UnsupportedVersionError: ServerError
TopicNotFound: ServerError
SubscriptionNotFound: ServerError
ConsumerNotFound: ServerError
TooManyRequests: ServerError
TopicTerminatedError: ServerError
ProducerBusy: ServerError
InvalidTopicName: ServerError
IncompatibleSchema: ServerError
ConsumerAssignError: ServerError
TransactionCoordinatorNotFound: ServerError
InvalidTxnStatus: ServerError
NotAllowedError: ServerError
TransactionConflict: ServerError
TransactionNotFound: ServerError
ProducerFenced: ServerError
ConsumerFenced: ServerError
ACTIVE: SegmentState
SEALED: SegmentState
STREAM: ScalableConsumerType
CHECKPOINT: ScalableConsumerType
QUEUE: ScalableConsumerType

class KeyValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class IntRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class SegmentBuckets(_message.Message):
    __slots__ = ("segment_id", "buckets", "committed")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    buckets: _containers.RepeatedScalarFieldContainer[int]
    committed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segment_id: _Optional[int] = ..., buckets: _Optional[_Iterable[int]] = ..., committed: _Optional[_Iterable[int]] = ...) -> None: ...

class FeatureFlags(_message.Message):
    __slots__ = ("supports_auth_refresh", "supports_broker_entry_metadata", "supports_partial_producer", "supports_topic_watchers", "supports_get_partitioned_metadata_without_auto_creation", "supports_repl_dedup_by_lid_and_eid", "supports_topic_watcher_reconcile", "supports_scalable_topics", "supports_tc_metadata_discovery", "reads_kafka", "resets")
    SUPPORTS_AUTH_REFRESH_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_BROKER_ENTRY_METADATA_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_PARTIAL_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_TOPIC_WATCHERS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_GET_PARTITIONED_METADATA_WITHOUT_AUTO_CREATION_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_REPL_DEDUP_BY_LID_AND_EID_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_TOPIC_WATCHER_RECONCILE_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_SCALABLE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_TC_METADATA_DISCOVERY_FIELD_NUMBER: _ClassVar[int]
    READS_KAFKA_FIELD_NUMBER: _ClassVar[int]
    RESETS_FIELD_NUMBER: _ClassVar[int]
    supports_auth_refresh: bool
    supports_broker_entry_metadata: bool
    supports_partial_producer: bool
    supports_topic_watchers: bool
    supports_get_partitioned_metadata_without_auto_creation: bool
    supports_repl_dedup_by_lid_and_eid: bool
    supports_topic_watcher_reconcile: bool
    supports_scalable_topics: bool
    supports_tc_metadata_discovery: bool
    reads_kafka: bool
    resets: bool
    def __init__(self, supports_auth_refresh: _Optional[bool] = ..., supports_broker_entry_metadata: _Optional[bool] = ..., supports_partial_producer: _Optional[bool] = ..., supports_topic_watchers: _Optional[bool] = ..., supports_get_partitioned_metadata_without_auto_creation: _Optional[bool] = ..., supports_repl_dedup_by_lid_and_eid: _Optional[bool] = ..., supports_topic_watcher_reconcile: _Optional[bool] = ..., supports_scalable_topics: _Optional[bool] = ..., supports_tc_metadata_discovery: _Optional[bool] = ..., reads_kafka: _Optional[bool] = ..., resets: _Optional[bool] = ...) -> None: ...

class CommandConnect(_message.Message):
    __slots__ = ("client_version", "auth_data", "protocol_version", "auth_method_name", "original_principal", "feature_flags")
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    AUTH_METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    FEATURE_FLAGS_FIELD_NUMBER: _ClassVar[int]
    client_version: str
    auth_data: bytes
    protocol_version: int
    auth_method_name: str
    original_principal: str
    feature_flags: FeatureFlags
    def __init__(self, client_version: _Optional[str] = ..., auth_data: _Optional[bytes] = ..., protocol_version: _Optional[int] = ..., auth_method_name: _Optional[str] = ..., original_principal: _Optional[str] = ..., feature_flags: _Optional[_Union[FeatureFlags, _Mapping]] = ...) -> None: ...

class CommandConnected(_message.Message):
    __slots__ = ("server_version", "protocol_version", "max_message_size", "feature_flags")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    FEATURE_FLAGS_FIELD_NUMBER: _ClassVar[int]
    server_version: str
    protocol_version: int
    max_message_size: int
    feature_flags: FeatureFlags
    def __init__(self, server_version: _Optional[str] = ..., protocol_version: _Optional[int] = ..., max_message_size: _Optional[int] = ..., feature_flags: _Optional[_Union[FeatureFlags, _Mapping]] = ...) -> None: ...

class AuthData(_message.Message):
    __slots__ = ("auth_method_name", "auth_data")
    AUTH_METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    auth_method_name: str
    auth_data: bytes
    def __init__(self, auth_method_name: _Optional[str] = ..., auth_data: _Optional[bytes] = ...) -> None: ...

class CommandAuthChallenge(_message.Message):
    __slots__ = ("server_version", "challenge", "protocol_version")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    server_version: str
    challenge: AuthData
    protocol_version: int
    def __init__(self, server_version: _Optional[str] = ..., challenge: _Optional[_Union[AuthData, _Mapping]] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class CommandAuthResponse(_message.Message):
    __slots__ = ("client_version", "response", "protocol_version")
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    client_version: str
    response: AuthData
    protocol_version: int
    def __init__(self, client_version: _Optional[str] = ..., response: _Optional[_Union[AuthData, _Mapping]] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class CommandPing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandPong(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandSuccess(_message.Message):
    __slots__ = ("request_id", "kept")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    kept: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[int] = ..., kept: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandError(_message.Message):
    __slots__ = ("request_id", "error", "message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: ServerError
    message: str
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class CommandLookupTopic(_message.Message):
    __slots__ = ("topic", "request_id", "authoritative", "original_principal")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHORITATIVE_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    request_id: int
    authoritative: bool
    original_principal: str
    def __init__(self, topic: _Optional[str] = ..., request_id: _Optional[int] = ..., authoritative: _Optional[bool] = ..., original_principal: _Optional[str] = ...) -> None: ...

class CommandLookupTopicResponse(_message.Message):
    __slots__ = ("brokerServiceUrl", "brokerServiceUrlTls", "response", "request_id", "authoritative", "error", "message", "proxy_through_service_url")
    class LookupType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Redirect: _ClassVar[CommandLookupTopicResponse.LookupType]
        Connect: _ClassVar[CommandLookupTopicResponse.LookupType]
        Failed: _ClassVar[CommandLookupTopicResponse.LookupType]
    Redirect: CommandLookupTopicResponse.LookupType
    Connect: CommandLookupTopicResponse.LookupType
    Failed: CommandLookupTopicResponse.LookupType
    BROKERSERVICEURL_FIELD_NUMBER: _ClassVar[int]
    BROKERSERVICEURLTLS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHORITATIVE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROXY_THROUGH_SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    brokerServiceUrl: str
    brokerServiceUrlTls: str
    response: CommandLookupTopicResponse.LookupType
    request_id: int
    authoritative: bool
    error: ServerError
    message: str
    proxy_through_service_url: bool
    def __init__(self, brokerServiceUrl: _Optional[str] = ..., brokerServiceUrlTls: _Optional[str] = ..., response: _Optional[_Union[CommandLookupTopicResponse.LookupType, str]] = ..., request_id: _Optional[int] = ..., authoritative: _Optional[bool] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ..., proxy_through_service_url: _Optional[bool] = ...) -> None: ...

class SegmentInfoProto(_message.Message):
    __slots__ = ("segment_id", "hash_start", "hash_end", "state", "parent_ids", "child_ids", "created_at_epoch", "sealed_at_epoch", "created_at_ms", "sealed_at_ms", "legacy_topic_name", "entry_bucket_splits", "kafka_topic", "end_offsets", "partitioner", "start_offsets")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    HASH_START_FIELD_NUMBER: _ClassVar[int]
    HASH_END_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PARENT_IDS_FIELD_NUMBER: _ClassVar[int]
    CHILD_IDS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEALED_AT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SEALED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEGACY_TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    ENTRY_BUCKET_SPLITS_FIELD_NUMBER: _ClassVar[int]
    KAFKA_TOPIC_FIELD_NUMBER: _ClassVar[int]
    END_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONER_FIELD_NUMBER: _ClassVar[int]
    START_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    hash_start: int
    hash_end: int
    state: SegmentState
    parent_ids: _containers.RepeatedScalarFieldContainer[int]
    child_ids: _containers.RepeatedScalarFieldContainer[int]
    created_at_epoch: int
    sealed_at_epoch: int
    created_at_ms: int
    sealed_at_ms: int
    legacy_topic_name: str
    entry_bucket_splits: _containers.RepeatedScalarFieldContainer[int]
    kafka_topic: str
    end_offsets: _containers.RepeatedScalarFieldContainer[int]
    partitioner: str
    start_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segment_id: _Optional[int] = ..., hash_start: _Optional[int] = ..., hash_end: _Optional[int] = ..., state: _Optional[_Union[SegmentState, str]] = ..., parent_ids: _Optional[_Iterable[int]] = ..., child_ids: _Optional[_Iterable[int]] = ..., created_at_epoch: _Optional[int] = ..., sealed_at_epoch: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., sealed_at_ms: _Optional[int] = ..., legacy_topic_name: _Optional[str] = ..., entry_bucket_splits: _Optional[_Iterable[int]] = ..., kafka_topic: _Optional[str] = ..., end_offsets: _Optional[_Iterable[int]] = ..., partitioner: _Optional[str] = ..., start_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class SegmentBrokerAddress(_message.Message):
    __slots__ = ("segment_id", "broker_url", "broker_url_tls")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_URL_FIELD_NUMBER: _ClassVar[int]
    BROKER_URL_TLS_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    broker_url: str
    broker_url_tls: str
    def __init__(self, segment_id: _Optional[int] = ..., broker_url: _Optional[str] = ..., broker_url_tls: _Optional[str] = ...) -> None: ...

class ScalableTopicDAG(_message.Message):
    __slots__ = ("epoch", "segments", "segment_brokers", "controller_broker_url", "controller_broker_url_tls", "bootstrap_servers", "children", "parents_under_way", "incarnation", "sealing", "max_message_bytes", "deleted", "version", "adopted_from")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BROKERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_BROKER_URL_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_BROKER_URL_TLS_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_SERVERS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    PARENTS_UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEALING_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FROM_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentInfoProto]
    segment_brokers: _containers.RepeatedCompositeFieldContainer[SegmentBrokerAddress]
    controller_broker_url: str
    controller_broker_url_tls: str
    bootstrap_servers: str
    children: _containers.RepeatedCompositeFieldContainer[SegmentInfoProto]
    parents_under_way: _containers.RepeatedScalarFieldContainer[int]
    incarnation: int
    sealing: bool
    max_message_bytes: int
    deleted: bool
    version: int
    adopted_from: str
    def __init__(self, epoch: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentInfoProto, _Mapping]]] = ..., segment_brokers: _Optional[_Iterable[_Union[SegmentBrokerAddress, _Mapping]]] = ..., controller_broker_url: _Optional[str] = ..., controller_broker_url_tls: _Optional[str] = ..., bootstrap_servers: _Optional[str] = ..., children: _Optional[_Iterable[_Union[SegmentInfoProto, _Mapping]]] = ..., parents_under_way: _Optional[_Iterable[int]] = ..., incarnation: _Optional[int] = ..., sealing: _Optional[bool] = ..., max_message_bytes: _Optional[int] = ..., deleted: _Optional[bool] = ..., version: _Optional[int] = ..., adopted_from: _Optional[str] = ...) -> None: ...

class CommandScalableTopicLookup(_message.Message):
    __slots__ = ("session_id", "topic", "create_if_missing")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATE_IF_MISSING_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    topic: str
    create_if_missing: bool
    def __init__(self, session_id: _Optional[int] = ..., topic: _Optional[str] = ..., create_if_missing: _Optional[bool] = ...) -> None: ...

class CommandScalableTopicUpdate(_message.Message):
    __slots__ = ("session_id", "dag", "error", "message", "resolved_topic_name")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DAG_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    dag: ScalableTopicDAG
    error: ServerError
    message: str
    resolved_topic_name: str
    def __init__(self, session_id: _Optional[int] = ..., dag: _Optional[_Union[ScalableTopicDAG, _Mapping]] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ..., resolved_topic_name: _Optional[str] = ...) -> None: ...

class CommandScalableTopicClose(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    def __init__(self, session_id: _Optional[int] = ...) -> None: ...

class CommandScalableTopicLineage(_message.Message):
    __slots__ = ("request_id", "topic", "segment_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic: str
    segment_id: int
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[str] = ..., segment_id: _Optional[int] = ...) -> None: ...

class CommandScalableTopicLineageResponse(_message.Message):
    __slots__ = ("request_id", "epoch", "incarnation", "segments")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    epoch: int
    incarnation: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentInfoProto]
    def __init__(self, request_id: _Optional[int] = ..., epoch: _Optional[int] = ..., incarnation: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentInfoProto, _Mapping]]] = ...) -> None: ...

class ScalableAssignedSegment(_message.Message):
    __slots__ = ("segment_id", "hash_start", "hash_end", "segment_topic", "bucket_ranges", "kafka_topic", "buckets", "end_offsets", "start_offsets", "fences")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    HASH_START_FIELD_NUMBER: _ClassVar[int]
    HASH_END_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_TOPIC_FIELD_NUMBER: _ClassVar[int]
    BUCKET_RANGES_FIELD_NUMBER: _ClassVar[int]
    KAFKA_TOPIC_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    FENCES_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    hash_start: int
    hash_end: int
    segment_topic: str
    bucket_ranges: _containers.RepeatedCompositeFieldContainer[IntRange]
    kafka_topic: str
    buckets: _containers.RepeatedScalarFieldContainer[int]
    end_offsets: _containers.RepeatedScalarFieldContainer[int]
    start_offsets: _containers.RepeatedScalarFieldContainer[int]
    fences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segment_id: _Optional[int] = ..., hash_start: _Optional[int] = ..., hash_end: _Optional[int] = ..., segment_topic: _Optional[str] = ..., bucket_ranges: _Optional[_Iterable[_Union[IntRange, _Mapping]]] = ..., kafka_topic: _Optional[str] = ..., buckets: _Optional[_Iterable[int]] = ..., end_offsets: _Optional[_Iterable[int]] = ..., start_offsets: _Optional[_Iterable[int]] = ..., fences: _Optional[_Iterable[int]] = ...) -> None: ...

class ScalablePrunedSegment(_message.Message):
    __slots__ = ("segment_id", "end_offsets")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    END_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    end_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segment_id: _Optional[int] = ..., end_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class DeadLetterPolicy(_message.Message):
    __slots__ = ("topic", "deliveries_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    deliveries_max: int
    def __init__(self, topic: _Optional[str] = ..., deliveries_max: _Optional[int] = ...) -> None: ...

class ScalableConsumerAssignment(_message.Message):
    __slots__ = ("layout_epoch", "segments", "incarnation", "group_id", "session_timeout_ms", "bootstrap_servers", "sequence", "dead_letter", "pruned", "begun_at", "commits_again")
    LAYOUT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_SERVERS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    BEGUN_AT_FIELD_NUMBER: _ClassVar[int]
    COMMITS_AGAIN_FIELD_NUMBER: _ClassVar[int]
    layout_epoch: int
    segments: _containers.RepeatedCompositeFieldContainer[ScalableAssignedSegment]
    incarnation: int
    group_id: str
    session_timeout_ms: int
    bootstrap_servers: str
    sequence: int
    dead_letter: DeadLetterPolicy
    pruned: _containers.RepeatedCompositeFieldContainer[ScalablePrunedSegment]
    begun_at: int
    commits_again: bool
    def __init__(self, layout_epoch: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[ScalableAssignedSegment, _Mapping]]] = ..., incarnation: _Optional[int] = ..., group_id: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., bootstrap_servers: _Optional[str] = ..., sequence: _Optional[int] = ..., dead_letter: _Optional[_Union[DeadLetterPolicy, _Mapping]] = ..., pruned: _Optional[_Iterable[_Union[ScalablePrunedSegment, _Mapping]]] = ..., begun_at: _Optional[int] = ..., commits_again: _Optional[bool] = ...) -> None: ...

class CommandScalableTopicSubscribe(_message.Message):
    __slots__ = ("request_id", "topic", "subscription", "consumer_name", "consumer_id", "consumer_type", "holdings", "drained", "begun_at", "instance", "start", "dead_letter")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_TYPE_FIELD_NUMBER: _ClassVar[int]
    HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    BEGUN_AT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic: str
    subscription: str
    consumer_name: str
    consumer_id: int
    consumer_type: ScalableConsumerType
    holdings: _containers.RepeatedCompositeFieldContainer[SegmentBuckets]
    drained: _containers.RepeatedCompositeFieldContainer[SegmentBuckets]
    begun_at: int
    instance: int
    start: int
    dead_letter: DeadLetterPolicy
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer_name: _Optional[str] = ..., consumer_id: _Optional[int] = ..., consumer_type: _Optional[_Union[ScalableConsumerType, str]] = ..., holdings: _Optional[_Iterable[_Union[SegmentBuckets, _Mapping]]] = ..., drained: _Optional[_Iterable[_Union[SegmentBuckets, _Mapping]]] = ..., begun_at: _Optional[int] = ..., instance: _Optional[int] = ..., start: _Optional[int] = ..., dead_letter: _Optional[_Union[DeadLetterPolicy, _Mapping]] = ...) -> None: ...

class CommandScalableTopicSubscribeResponse(_message.Message):
    __slots__ = ("request_id", "error", "message", "assignment")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: ServerError
    message: str
    assignment: ScalableConsumerAssignment
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ..., assignment: _Optional[_Union[ScalableConsumerAssignment, _Mapping]] = ...) -> None: ...

class CommandScalableTopicAssignmentUpdate(_message.Message):
    __slots__ = ("consumer_id", "assignment")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    assignment: ScalableConsumerAssignment
    def __init__(self, consumer_id: _Optional[int] = ..., assignment: _Optional[_Union[ScalableConsumerAssignment, _Mapping]] = ...) -> None: ...

class CommandScalableTopicUnsubscribe(_message.Message):
    __slots__ = ("request_id", "consumer_id", "keep_share")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_SHARE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    consumer_id: int
    keep_share: bool
    def __init__(self, request_id: _Optional[int] = ..., consumer_id: _Optional[int] = ..., keep_share: _Optional[bool] = ...) -> None: ...

class CommandScalableConsumerReport(_message.Message):
    __slots__ = ("request_id", "consumer_id", "released", "drained", "also_kept", "dead_letters_waiting")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    ALSO_KEPT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_WAITING_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    consumer_id: int
    released: _containers.RepeatedCompositeFieldContainer[SegmentBuckets]
    drained: _containers.RepeatedCompositeFieldContainer[SegmentBuckets]
    also_kept: _containers.RepeatedScalarFieldContainer[int]
    dead_letters_waiting: int
    def __init__(self, request_id: _Optional[int] = ..., consumer_id: _Optional[int] = ..., released: _Optional[_Iterable[_Union[SegmentBuckets, _Mapping]]] = ..., drained: _Optional[_Iterable[_Union[SegmentBuckets, _Mapping]]] = ..., also_kept: _Optional[_Iterable[int]] = ..., dead_letters_waiting: _Optional[int] = ...) -> None: ...

class CommandCloseConsumer(_message.Message):
    __slots__ = ("consumer_id", "request_id", "reason", "error")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    reason: str
    error: ServerError
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., reason: _Optional[str] = ..., error: _Optional[_Union[ServerError, str]] = ...) -> None: ...

class SegmentTraffic(_message.Message):
    __slots__ = ("segment_id", "subscription", "messages", "bytes", "told_messages", "told_bytes")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOLD_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    subscription: str
    messages: int
    bytes: int
    told_messages: int
    told_bytes: int
    def __init__(self, segment_id: _Optional[int] = ..., subscription: _Optional[str] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., told_messages: _Optional[int] = ..., told_bytes: _Optional[int] = ...) -> None: ...

class CommandScalableTrafficReport(_message.Message):
    __slots__ = ("request_id", "topic", "incarnation", "client_id", "since_ms", "segments")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic: str
    incarnation: int
    client_id: int
    since_ms: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentTraffic]
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[str] = ..., incarnation: _Optional[int] = ..., client_id: _Optional[int] = ..., since_ms: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentTraffic, _Mapping]]] = ...) -> None: ...

class CommandScalableTrafficReportResponse(_message.Message):
    __slots__ = ("request_id", "interval_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    interval_ms: int
    def __init__(self, request_id: _Optional[int] = ..., interval_ms: _Optional[int] = ...) -> None: ...

class CommandGetTopicsOfNamespace(_message.Message):
    __slots__ = ("request_id", "namespace", "mode", "topics_pattern", "topics_hash", "properties")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PERSISTENT: _ClassVar[CommandGetTopicsOfNamespace.Mode]
        NON_PERSISTENT: _ClassVar[CommandGetTopicsOfNamespace.Mode]
        ALL: _ClassVar[CommandGetTopicsOfNamespace.Mode]
    PERSISTENT: CommandGetTopicsOfNamespace.Mode
    NON_PERSISTENT: CommandGetTopicsOfNamespace.Mode
    ALL: CommandGetTopicsOfNamespace.Mode
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_PATTERN_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    namespace: str
    mode: CommandGetTopicsOfNamespace.Mode
    topics_pattern: str
    topics_hash: str
    properties: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, request_id: _Optional[int] = ..., namespace: _Optional[str] = ..., mode: _Optional[_Union[CommandGetTopicsOfNamespace.Mode, str]] = ..., topics_pattern: _Optional[str] = ..., topics_hash: _Optional[str] = ..., properties: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class CommandGetTopicsOfNamespaceResponse(_message.Message):
    __slots__ = ("request_id", "topics", "filtered", "topics_hash", "changed")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    filtered: bool
    topics_hash: str
    changed: bool
    def __init__(self, request_id: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., filtered: _Optional[bool] = ..., topics_hash: _Optional[str] = ..., changed: _Optional[bool] = ...) -> None: ...

class CommandWatchTopicList(_message.Message):
    __slots__ = ("request_id", "watcher_id", "namespace", "topics_pattern", "topics_hash")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_PATTERN_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    watcher_id: int
    namespace: str
    topics_pattern: str
    topics_hash: str
    def __init__(self, request_id: _Optional[int] = ..., watcher_id: _Optional[int] = ..., namespace: _Optional[str] = ..., topics_pattern: _Optional[str] = ..., topics_hash: _Optional[str] = ...) -> None: ...

class CommandWatchTopicListSuccess(_message.Message):
    __slots__ = ("request_id", "watcher_id", "topic", "topics_hash")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    watcher_id: int
    topic: _containers.RepeatedScalarFieldContainer[str]
    topics_hash: str
    def __init__(self, request_id: _Optional[int] = ..., watcher_id: _Optional[int] = ..., topic: _Optional[_Iterable[str]] = ..., topics_hash: _Optional[str] = ...) -> None: ...

class CommandWatchTopicUpdate(_message.Message):
    __slots__ = ("watcher_id", "new_topics", "deleted_topics", "topics_hash")
    WATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    watcher_id: int
    new_topics: _containers.RepeatedScalarFieldContainer[str]
    deleted_topics: _containers.RepeatedScalarFieldContainer[str]
    topics_hash: str
    def __init__(self, watcher_id: _Optional[int] = ..., new_topics: _Optional[_Iterable[str]] = ..., deleted_topics: _Optional[_Iterable[str]] = ..., topics_hash: _Optional[str] = ...) -> None: ...

class CommandWatchTopicListClose(_message.Message):
    __slots__ = ("request_id", "watcher_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    watcher_id: int
    def __init__(self, request_id: _Optional[int] = ..., watcher_id: _Optional[int] = ...) -> None: ...

class CommandWatchScalableTopics(_message.Message):
    __slots__ = ("watch_id", "namespace", "property_filters", "current_hash")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_FILTERS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_HASH_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    namespace: str
    property_filters: _containers.RepeatedCompositeFieldContainer[KeyValue]
    current_hash: str
    def __init__(self, watch_id: _Optional[int] = ..., namespace: _Optional[str] = ..., property_filters: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., current_hash: _Optional[str] = ...) -> None: ...

class ScalableTopicsSnapshot(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ScalableTopicsDiff(_message.Message):
    __slots__ = ("added", "removed")
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    added: _containers.RepeatedScalarFieldContainer[str]
    removed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, added: _Optional[_Iterable[str]] = ..., removed: _Optional[_Iterable[str]] = ...) -> None: ...

class CommandWatchScalableTopicsUpdate(_message.Message):
    __slots__ = ("watch_id", "snapshot", "diff", "error", "message", "topics_hash")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    snapshot: ScalableTopicsSnapshot
    diff: ScalableTopicsDiff
    error: ServerError
    message: str
    topics_hash: str
    def __init__(self, watch_id: _Optional[int] = ..., snapshot: _Optional[_Union[ScalableTopicsSnapshot, _Mapping]] = ..., diff: _Optional[_Union[ScalableTopicsDiff, _Mapping]] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ..., topics_hash: _Optional[str] = ...) -> None: ...

class CommandWatchScalableTopicsClose(_message.Message):
    __slots__ = ("watch_id",)
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    def __init__(self, watch_id: _Optional[int] = ...) -> None: ...

class Unserved(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Unserved1(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    def __init__(self, request_id: _Optional[int] = ...) -> None: ...

class Unserved2(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    def __init__(self, request_id: _Optional[int] = ...) -> None: ...

class Unserved3(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    def __init__(self, request_id: _Optional[int] = ...) -> None: ...

class Unserved5(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    def __init__(self, request_id: _Optional[int] = ...) -> None: ...

class UnservedSend(_message.Message):
    __slots__ = ("producer_id", "sequence_id")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    sequence_id: int
    def __init__(self, producer_id: _Optional[int] = ..., sequence_id: _Optional[int] = ...) -> None: ...

class UnservedAck(_message.Message):
    __slots__ = ("consumer_id", "request_id")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ...) -> None: ...

class UnservedWatch(_message.Message):
    __slots__ = ("watch_id",)
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    def __init__(self, watch_id: _Optional[int] = ...) -> None: ...

class RefusedPartitions(_message.Message):
    __slots__ = ("request_id", "response", "error", "message")
    class Response(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Success: _ClassVar[RefusedPartitions.Response]
        Failed: _ClassVar[RefusedPartitions.Response]
    Success: RefusedPartitions.Response
    Failed: RefusedPartitions.Response
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    response: RefusedPartitions.Response
    error: ServerError
    message: str
    def __init__(self, request_id: _Optional[int] = ..., response: _Optional[_Union[RefusedPartitions.Response, str]] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Refused23(_message.Message):
    __slots__ = ("request_id", "error", "message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: ServerError
    message: str
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Refused45(_message.Message):
    __slots__ = ("request_id", "error", "message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: ServerError
    message: str
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class RefusedSend(_message.Message):
    __slots__ = ("producer_id", "sequence_id", "error", "message")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    sequence_id: int
    error: ServerError
    message: str
    def __init__(self, producer_id: _Optional[int] = ..., sequence_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class RefusedAck(_message.Message):
    __slots__ = ("consumer_id", "error", "message", "request_id")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    error: ServerError
    message: str
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ..., request_id: _Optional[int] = ...) -> None: ...

class RefusedTcWatch(_message.Message):
    __slots__ = ("watch_id", "error", "message")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    error: ServerError
    message: str
    def __init__(self, watch_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class BaseCommand(_message.Message):
    __slots__ = ("type", "connect", "connected", "success", "error", "close_consumer", "ping", "pong", "lookupTopic", "lookupTopicResponse", "getTopicsOfNamespace", "getTopicsOfNamespaceResponse", "authChallenge", "authResponse", "watchTopicList", "watchTopicListSuccess", "watchTopicUpdate", "watchTopicListClose", "scalableTopicLookup", "scalableTopicUpdate", "scalableTopicClose", "scalableTopicSubscribe", "scalableTopicSubscribeResponse", "scalableTopicAssignmentUpdate", "watchScalableTopics", "watchScalableTopicsUpdate", "watchScalableTopicsClose", "scalableTopicUnsubscribe", "scalableConsumerReport", "scalableTrafficReport", "scalableTrafficReportResponse", "scalableTopicLineage", "scalableTopicLineageResponse", "subscribe", "producer", "send", "message", "ack", "flow", "unsubscribe", "close_producer", "redeliverUnacknowledgedMessages", "partitionMetadata", "consumerStats", "seek", "getLastMessageId", "getSchema", "getOrCreateSchema", "newTxn", "addPartitionToTxn", "addSubscriptionToTxn", "endTxn", "endTxnOnPartition", "endTxnOnSubscription", "tcClientConnectRequest", "watchTcAssignments", "watchTcAssignmentsClose", "send_error", "partitionMetadataResponse", "consumerStatsResponse", "getSchemaResponse", "ackResponse", "getOrCreateSchemaResponse", "newTxnResponse", "addPartitionToTxnResponse", "addSubscriptionToTxnResponse", "endTxnResponse", "endTxnOnPartitionResponse", "endTxnOnSubscriptionResponse", "tcClientConnectResponse", "watchTcAssignmentsUpdate")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONNECT: _ClassVar[BaseCommand.Type]
        CONNECTED: _ClassVar[BaseCommand.Type]
        SUBSCRIBE: _ClassVar[BaseCommand.Type]
        PRODUCER: _ClassVar[BaseCommand.Type]
        SEND: _ClassVar[BaseCommand.Type]
        SEND_RECEIPT: _ClassVar[BaseCommand.Type]
        SEND_ERROR: _ClassVar[BaseCommand.Type]
        MESSAGE: _ClassVar[BaseCommand.Type]
        ACK: _ClassVar[BaseCommand.Type]
        FLOW: _ClassVar[BaseCommand.Type]
        UNSUBSCRIBE: _ClassVar[BaseCommand.Type]
        SUCCESS: _ClassVar[BaseCommand.Type]
        ERROR: _ClassVar[BaseCommand.Type]
        CLOSE_PRODUCER: _ClassVar[BaseCommand.Type]
        CLOSE_CONSUMER: _ClassVar[BaseCommand.Type]
        PRODUCER_SUCCESS: _ClassVar[BaseCommand.Type]
        PING: _ClassVar[BaseCommand.Type]
        PONG: _ClassVar[BaseCommand.Type]
        REDELIVER_UNACKNOWLEDGED_MESSAGES: _ClassVar[BaseCommand.Type]
        PARTITIONED_METADATA: _ClassVar[BaseCommand.Type]
        PARTITIONED_METADATA_RESPONSE: _ClassVar[BaseCommand.Type]
        LOOKUP: _ClassVar[BaseCommand.Type]
        LOOKUP_RESPONSE: _ClassVar[BaseCommand.Type]
        CONSUMER_STATS: _ClassVar[BaseCommand.Type]
        CONSUMER_STATS_RESPONSE: _ClassVar[BaseCommand.Type]
        REACHED_END_OF_TOPIC: _ClassVar[BaseCommand.Type]
        SEEK: _ClassVar[BaseCommand.Type]
        GET_LAST_MESSAGE_ID: _ClassVar[BaseCommand.Type]
        GET_LAST_MESSAGE_ID_RESPONSE: _ClassVar[BaseCommand.Type]
        ACTIVE_CONSUMER_CHANGE: _ClassVar[BaseCommand.Type]
        GET_TOPICS_OF_NAMESPACE: _ClassVar[BaseCommand.Type]
        GET_TOPICS_OF_NAMESPACE_RESPONSE: _ClassVar[BaseCommand.Type]
        GET_SCHEMA: _ClassVar[BaseCommand.Type]
        GET_SCHEMA_RESPONSE: _ClassVar[BaseCommand.Type]
        AUTH_CHALLENGE: _ClassVar[BaseCommand.Type]
        AUTH_RESPONSE: _ClassVar[BaseCommand.Type]
        ACK_RESPONSE: _ClassVar[BaseCommand.Type]
        GET_OR_CREATE_SCHEMA: _ClassVar[BaseCommand.Type]
        GET_OR_CREATE_SCHEMA_RESPONSE: _ClassVar[BaseCommand.Type]
        NEW_TXN: _ClassVar[BaseCommand.Type]
        NEW_TXN_RESPONSE: _ClassVar[BaseCommand.Type]
        ADD_PARTITION_TO_TXN: _ClassVar[BaseCommand.Type]
        ADD_PARTITION_TO_TXN_RESPONSE: _ClassVar[BaseCommand.Type]
        ADD_SUBSCRIPTION_TO_TXN: _ClassVar[BaseCommand.Type]
        ADD_SUBSCRIPTION_TO_TXN_RESPONSE: _ClassVar[BaseCommand.Type]
        END_TXN: _ClassVar[BaseCommand.Type]
        END_TXN_RESPONSE: _ClassVar[BaseCommand.Type]
        END_TXN_ON_PARTITION: _ClassVar[BaseCommand.Type]
        END_TXN_ON_PARTITION_RESPONSE: _ClassVar[BaseCommand.Type]
        END_TXN_ON_SUBSCRIPTION: _ClassVar[BaseCommand.Type]
        END_TXN_ON_SUBSCRIPTION_RESPONSE: _ClassVar[BaseCommand.Type]
        TC_CLIENT_CONNECT_REQUEST: _ClassVar[BaseCommand.Type]
        TC_CLIENT_CONNECT_RESPONSE: _ClassVar[BaseCommand.Type]
        WATCH_TOPIC_LIST: _ClassVar[BaseCommand.Type]
        WATCH_TOPIC_LIST_SUCCESS: _ClassVar[BaseCommand.Type]
        WATCH_TOPIC_UPDATE: _ClassVar[BaseCommand.Type]
        WATCH_TOPIC_LIST_CLOSE: _ClassVar[BaseCommand.Type]
        TOPIC_MIGRATED: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_LOOKUP: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_UPDATE: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_CLOSE: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_SUBSCRIBE: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_ASSIGNMENT_UPDATE: _ClassVar[BaseCommand.Type]
        WATCH_SCALABLE_TOPICS: _ClassVar[BaseCommand.Type]
        WATCH_SCALABLE_TOPICS_UPDATE: _ClassVar[BaseCommand.Type]
        WATCH_SCALABLE_TOPICS_CLOSE: _ClassVar[BaseCommand.Type]
        WATCH_TC_ASSIGNMENTS: _ClassVar[BaseCommand.Type]
        WATCH_TC_ASSIGNMENTS_UPDATE: _ClassVar[BaseCommand.Type]
        WATCH_TC_ASSIGNMENTS_CLOSE: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_UNSUBSCRIBE: _ClassVar[BaseCommand.Type]
        SCALABLE_CONSUMER_REPORT: _ClassVar[BaseCommand.Type]
        SCALABLE_TRAFFIC_REPORT: _ClassVar[BaseCommand.Type]
        SCALABLE_TRAFFIC_REPORT_RESPONSE: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_LINEAGE: _ClassVar[BaseCommand.Type]
        SCALABLE_TOPIC_LINEAGE_RESPONSE: _ClassVar[BaseCommand.Type]
    CONNECT: BaseCommand.Type
    CONNECTED: BaseCommand.Type
    SUBSCRIBE: BaseCommand.Type
    PRODUCER: BaseCommand.Type
    SEND: BaseCommand.Type
    SEND_RECEIPT: BaseCommand.Type
    SEND_ERROR: BaseCommand.Type
    MESSAGE: BaseCommand.Type
    ACK: BaseCommand.Type
    FLOW: BaseCommand.Type
    UNSUBSCRIBE: BaseCommand.Type
    SUCCESS: BaseCommand.Type
    ERROR: BaseCommand.Type
    CLOSE_PRODUCER: BaseCommand.Type
    CLOSE_CONSUMER: BaseCommand.Type
    PRODUCER_SUCCESS: BaseCommand.Type
    PING: BaseCommand.Type
    PONG: BaseCommand.Type
    REDELIVER_UNACKNOWLEDGED_MESSAGES: BaseCommand.Type
    PARTITIONED_METADATA: BaseCommand.Type
    PARTITIONED_METADATA_RESPONSE: BaseCommand.Type
    LOOKUP: BaseCommand.Type
    LOOKUP_RESPONSE: BaseCommand.Type
    CONSUMER_STATS: BaseCommand.Type
    CONSUMER_STATS_RESPONSE: BaseCommand.Type
    REACHED_END_OF_TOPIC: BaseCommand.Type
    SEEK: BaseCommand.Type
    GET_LAST_MESSAGE_ID: BaseCommand.Type
    GET_LAST_MESSAGE_ID_RESPONSE: BaseCommand.Type
    ACTIVE_CONSUMER_CHANGE: BaseCommand.Type
    GET_TOPICS_OF_NAMESPACE: BaseCommand.Type
    GET_TOPICS_OF_NAMESPACE_RESPONSE: BaseCommand.Type
    GET_SCHEMA: BaseCommand.Type
    GET_SCHEMA_RESPONSE: BaseCommand.Type
    AUTH_CHALLENGE: BaseCommand.Type
    AUTH_RESPONSE: BaseCommand.Type
    ACK_RESPONSE: BaseCommand.Type
    GET_OR_CREATE_SCHEMA: BaseCommand.Type
    GET_OR_CREATE_SCHEMA_RESPONSE: BaseCommand.Type
    NEW_TXN: BaseCommand.Type
    NEW_TXN_RESPONSE: BaseCommand.Type
    ADD_PARTITION_TO_TXN: BaseCommand.Type
    ADD_PARTITION_TO_TXN_RESPONSE: BaseCommand.Type
    ADD_SUBSCRIPTION_TO_TXN: BaseCommand.Type
    ADD_SUBSCRIPTION_TO_TXN_RESPONSE: BaseCommand.Type
    END_TXN: BaseCommand.Type
    END_TXN_RESPONSE: BaseCommand.Type
    END_TXN_ON_PARTITION: BaseCommand.Type
    END_TXN_ON_PARTITION_RESPONSE: BaseCommand.Type
    END_TXN_ON_SUBSCRIPTION: BaseCommand.Type
    END_TXN_ON_SUBSCRIPTION_RESPONSE: BaseCommand.Type
    TC_CLIENT_CONNECT_REQUEST: BaseCommand.Type
    TC_CLIENT_CONNECT_RESPONSE: BaseCommand.Type
    WATCH_TOPIC_LIST: BaseCommand.Type
    WATCH_TOPIC_LIST_SUCCESS: BaseCommand.Type
    WATCH_TOPIC_UPDATE: BaseCommand.Type
    WATCH_TOPIC_LIST_CLOSE: BaseCommand.Type
    TOPIC_MIGRATED: BaseCommand.Type
    SCALABLE_TOPIC_LOOKUP: BaseCommand.Type
    SCALABLE_TOPIC_UPDATE: BaseCommand.Type
    SCALABLE_TOPIC_CLOSE: BaseCommand.Type
    SCALABLE_TOPIC_SUBSCRIBE: BaseCommand.Type
    SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: BaseCommand.Type
    SCALABLE_TOPIC_ASSIGNMENT_UPDATE: BaseCommand.Type
    WATCH_SCALABLE_TOPICS: BaseCommand.Type
    WATCH_SCALABLE_TOPICS_UPDATE: BaseCommand.Type
    WATCH_SCALABLE_TOPICS_CLOSE: BaseCommand.Type
    WATCH_TC_ASSIGNMENTS: BaseCommand.Type
    WATCH_TC_ASSIGNMENTS_UPDATE: BaseCommand.Type
    WATCH_TC_ASSIGNMENTS_CLOSE: BaseCommand.Type
    SCALABLE_TOPIC_UNSUBSCRIBE: BaseCommand.Type
    SCALABLE_CONSUMER_REPORT: BaseCommand.Type
    SCALABLE_TRAFFIC_REPORT: BaseCommand.Type
    SCALABLE_TRAFFIC_REPORT_RESPONSE: BaseCommand.Type
    SCALABLE_TOPIC_LINEAGE: BaseCommand.Type
    SCALABLE_TOPIC_LINEAGE_RESPONSE: BaseCommand.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    LOOKUPTOPIC_FIELD_NUMBER: _ClassVar[int]
    LOOKUPTOPICRESPONSE_FIELD_NUMBER: _ClassVar[int]
    GETTOPICSOFNAMESPACE_FIELD_NUMBER: _ClassVar[int]
    GETTOPICSOFNAMESPACERESPONSE_FIELD_NUMBER: _ClassVar[int]
    AUTHCHALLENGE_FIELD_NUMBER: _ClassVar[int]
    AUTHRESPONSE_FIELD_NUMBER: _ClassVar[int]
    WATCHTOPICLIST_FIELD_NUMBER: _ClassVar[int]
    WATCHTOPICLISTSUCCESS_FIELD_NUMBER: _ClassVar[int]
    WATCHTOPICUPDATE_FIELD_NUMBER: _ClassVar[int]
    WATCHTOPICLISTCLOSE_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICLOOKUP_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICUPDATE_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICCLOSE_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICSUBSCRIBERESPONSE_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICASSIGNMENTUPDATE_FIELD_NUMBER: _ClassVar[int]
    WATCHSCALABLETOPICS_FIELD_NUMBER: _ClassVar[int]
    WATCHSCALABLETOPICSUPDATE_FIELD_NUMBER: _ClassVar[int]
    WATCHSCALABLETOPICSCLOSE_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICUNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    SCALABLECONSUMERREPORT_FIELD_NUMBER: _ClassVar[int]
    SCALABLETRAFFICREPORT_FIELD_NUMBER: _ClassVar[int]
    SCALABLETRAFFICREPORTRESPONSE_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICLINEAGE_FIELD_NUMBER: _ClassVar[int]
    SCALABLETOPICLINEAGERESPONSE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    REDELIVERUNACKNOWLEDGEDMESSAGES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONMETADATA_FIELD_NUMBER: _ClassVar[int]
    CONSUMERSTATS_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    GETLASTMESSAGEID_FIELD_NUMBER: _ClassVar[int]
    GETSCHEMA_FIELD_NUMBER: _ClassVar[int]
    GETORCREATESCHEMA_FIELD_NUMBER: _ClassVar[int]
    NEWTXN_FIELD_NUMBER: _ClassVar[int]
    ADDPARTITIONTOTXN_FIELD_NUMBER: _ClassVar[int]
    ADDSUBSCRIPTIONTOTXN_FIELD_NUMBER: _ClassVar[int]
    ENDTXN_FIELD_NUMBER: _ClassVar[int]
    ENDTXNONPARTITION_FIELD_NUMBER: _ClassVar[int]
    ENDTXNONSUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TCCLIENTCONNECTREQUEST_FIELD_NUMBER: _ClassVar[int]
    WATCHTCASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    WATCHTCASSIGNMENTSCLOSE_FIELD_NUMBER: _ClassVar[int]
    SEND_ERROR_FIELD_NUMBER: _ClassVar[int]
    PARTITIONMETADATARESPONSE_FIELD_NUMBER: _ClassVar[int]
    CONSUMERSTATSRESPONSE_FIELD_NUMBER: _ClassVar[int]
    GETSCHEMARESPONSE_FIELD_NUMBER: _ClassVar[int]
    ACKRESPONSE_FIELD_NUMBER: _ClassVar[int]
    GETORCREATESCHEMARESPONSE_FIELD_NUMBER: _ClassVar[int]
    NEWTXNRESPONSE_FIELD_NUMBER: _ClassVar[int]
    ADDPARTITIONTOTXNRESPONSE_FIELD_NUMBER: _ClassVar[int]
    ADDSUBSCRIPTIONTOTXNRESPONSE_FIELD_NUMBER: _ClassVar[int]
    ENDTXNRESPONSE_FIELD_NUMBER: _ClassVar[int]
    ENDTXNONPARTITIONRESPONSE_FIELD_NUMBER: _ClassVar[int]
    ENDTXNONSUBSCRIPTIONRESPONSE_FIELD_NUMBER: _ClassVar[int]
    TCCLIENTCONNECTRESPONSE_FIELD_NUMBER: _ClassVar[int]
    WATCHTCASSIGNMENTSUPDATE_FIELD_NUMBER: _ClassVar[int]
    type: BaseCommand.Type
    connect: CommandConnect
    connected: CommandConnected
    success: CommandSuccess
    error: CommandError
    close_consumer: CommandCloseConsumer
    ping: CommandPing
    pong: CommandPong
    lookupTopic: CommandLookupTopic
    lookupTopicResponse: CommandLookupTopicResponse
    getTopicsOfNamespace: CommandGetTopicsOfNamespace
    getTopicsOfNamespaceResponse: CommandGetTopicsOfNamespaceResponse
    authChallenge: CommandAuthChallenge
    authResponse: CommandAuthResponse
    watchTopicList: CommandWatchTopicList
    watchTopicListSuccess: CommandWatchTopicListSuccess
    watchTopicUpdate: CommandWatchTopicUpdate
    watchTopicListClose: CommandWatchTopicListClose
    scalableTopicLookup: CommandScalableTopicLookup
    scalableTopicUpdate: CommandScalableTopicUpdate
    scalableTopicClose: CommandScalableTopicClose
    scalableTopicSubscribe: CommandScalableTopicSubscribe
    scalableTopicSubscribeResponse: CommandScalableTopicSubscribeResponse
    scalableTopicAssignmentUpdate: CommandScalableTopicAssignmentUpdate
    watchScalableTopics: CommandWatchScalableTopics
    watchScalableTopicsUpdate: CommandWatchScalableTopicsUpdate
    watchScalableTopicsClose: CommandWatchScalableTopicsClose
    scalableTopicUnsubscribe: CommandScalableTopicUnsubscribe
    scalableConsumerReport: CommandScalableConsumerReport
    scalableTrafficReport: CommandScalableTrafficReport
    scalableTrafficReportResponse: CommandScalableTrafficReportResponse
    scalableTopicLineage: CommandScalableTopicLineage
    scalableTopicLineageResponse: CommandScalableTopicLineageResponse
    subscribe: Unserved5
    producer: Unserved3
    send: UnservedSend
    message: Unserved
    ack: UnservedAck
    flow: Unserved
    unsubscribe: Unserved2
    close_producer: Unserved2
    redeliverUnacknowledgedMessages: Unserved
    partitionMetadata: Unserved2
    consumerStats: Unserved1
    seek: Unserved2
    getLastMessageId: Unserved2
    getSchema: Unserved1
    getOrCreateSchema: Unserved1
    newTxn: Unserved1
    addPartitionToTxn: Unserved1
    addSubscriptionToTxn: Unserved1
    endTxn: Unserved1
    endTxnOnPartition: Unserved1
    endTxnOnSubscription: Unserved1
    tcClientConnectRequest: Unserved1
    watchTcAssignments: UnservedWatch
    watchTcAssignmentsClose: Unserved
    send_error: RefusedSend
    partitionMetadataResponse: RefusedPartitions
    consumerStatsResponse: Refused23
    getSchemaResponse: Refused23
    ackResponse: RefusedAck
    getOrCreateSchemaResponse: Refused23
    newTxnResponse: Refused45
    addPartitionToTxnResponse: Refused45
    addSubscriptionToTxnResponse: Refused45
    endTxnResponse: Refused45
    endTxnOnPartitionResponse: Refused45
    endTxnOnSubscriptionResponse: Refused45
    tcClientConnectResponse: Refused23
    watchTcAssignmentsUpdate: RefusedTcWatch
    def __init__(self, type: _Optional[_Union[BaseCommand.Type, str]] = ..., connect: _Optional[_Union[CommandConnect, _Mapping]] = ..., connected: _Optional[_Union[CommandConnected, _Mapping]] = ..., success: _Optional[_Union[CommandSuccess, _Mapping]] = ..., error: _Optional[_Union[CommandError, _Mapping]] = ..., close_consumer: _Optional[_Union[CommandCloseConsumer, _Mapping]] = ..., ping: _Optional[_Union[CommandPing, _Mapping]] = ..., pong: _Optional[_Union[CommandPong, _Mapping]] = ..., lookupTopic: _Optional[_Union[CommandLookupTopic, _Mapping]] = ..., lookupTopicResponse: _Optional[_Union[CommandLookupTopicResponse, _Mapping]] = ..., getTopicsOfNamespace: _Optional[_Union[CommandGetTopicsOfNamespace, _Mapping]] = ..., getTopicsOfNamespaceResponse: _Optional[_Union[CommandGetTopicsOfNamespaceResponse, _Mapping]] = ..., authChallenge: _Optional[_Union[CommandAuthChallenge, _Mapping]] = ..., authResponse: _Optional[_Union[CommandAuthResponse, _Mapping]] = ..., watchTopicList: _Optional[_Union[CommandWatchTopicList, _Mapping]] = ..., watchTopicListSuccess: _Optional[_Union[CommandWatchTopicListSuccess, _Mapping]] = ..., watchTopicUpdate: _Optional[_Union[CommandWatchTopicUpdate, _Mapping]] = ..., watchTopicListClose: _Optional[_Union[CommandWatchTopicListClose, _Mapping]] = ..., scalableTopicLookup: _Optional[_Union[CommandScalableTopicLookup, _Mapping]] = ..., scalableTopicUpdate: _Optional[_Union[CommandScalableTopicUpdate, _Mapping]] = ..., scalableTopicClose: _Optional[_Union[CommandScalableTopicClose, _Mapping]] = ..., scalableTopicSubscribe: _Optional[_Union[CommandScalableTopicSubscribe, _Mapping]] = ..., scalableTopicSubscribeResponse: _Optional[_Union[CommandScalableTopicSubscribeResponse, _Mapping]] = ..., scalableTopicAssignmentUpdate: _Optional[_Union[CommandScalableTopicAssignmentUpdate, _Mapping]] = ..., watchScalableTopics: _Optional[_Union[CommandWatchScalableTopics, _Mapping]] = ..., watchScalableTopicsUpdate: _Optional[_Union[CommandWatchScalableTopicsUpdate, _Mapping]] = ..., watchScalableTopicsClose: _Optional[_Union[CommandWatchScalableTopicsClose, _Mapping]] = ..., scalableTopicUnsubscribe: _Optional[_Union[CommandScalableTopicUnsubscribe, _Mapping]] = ..., scalableConsumerReport: _Optional[_Union[CommandScalableConsumerReport, _Mapping]] = ..., scalableTrafficReport: _Optional[_Union[CommandScalableTrafficReport, _Mapping]] = ..., scalableTrafficReportResponse: _Optional[_Union[CommandScalableTrafficReportResponse, _Mapping]] = ..., scalableTopicLineage: _Optional[_Union[CommandScalableTopicLineage, _Mapping]] = ..., scalableTopicLineageResponse: _Optional[_Union[CommandScalableTopicLineageResponse, _Mapping]] = ..., subscribe: _Optional[_Union[Unserved5, _Mapping]] = ..., producer: _Optional[_Union[Unserved3, _Mapping]] = ..., send: _Optional[_Union[UnservedSend, _Mapping]] = ..., message: _Optional[_Union[Unserved, _Mapping]] = ..., ack: _Optional[_Union[UnservedAck, _Mapping]] = ..., flow: _Optional[_Union[Unserved, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unserved2, _Mapping]] = ..., close_producer: _Optional[_Union[Unserved2, _Mapping]] = ..., redeliverUnacknowledgedMessages: _Optional[_Union[Unserved, _Mapping]] = ..., partitionMetadata: _Optional[_Union[Unserved2, _Mapping]] = ..., consumerStats: _Optional[_Union[Unserved1, _Mapping]] = ..., seek: _Optional[_Union[Unserved2, _Mapping]] = ..., getLastMessageId: _Optional[_Union[Unserved2, _Mapping]] = ..., getSchema: _Optional[_Union[Unserved1, _Mapping]] = ..., getOrCreateSchema: _Optional[_Union[Unserved1, _Mapping]] = ..., newTxn: _Optional[_Union[Unserved1, _Mapping]] = ..., addPartitionToTxn: _Optional[_Union[Unserved1, _Mapping]] = ..., addSubscriptionToTxn: _Optional[_Union[Unserved1, _Mapping]] = ..., endTxn: _Optional[_Union[Unserved1, _Mapping]] = ..., endTxnOnPartition: _Optional[_Union[Unserved1, _Mapping]] = ..., endTxnOnSubscription: _Optional[_Union[Unserved1, _Mapping]] = ..., tcClientConnectRequest: _Optional[_Union[Unserved1, _Mapping]] = ..., watchTcAssignments: _Optional[_Union[UnservedWatch, _Mapping]] = ..., watchTcAssignmentsClose: _Optional[_Union[Unserved, _Mapping]] = ..., send_error: _Optional[_Union[RefusedSend, _Mapping]] = ..., partitionMetadataResponse: _Optional[_Union[RefusedPartitions, _Mapping]] = ..., consumerStatsResponse: _Optional[_Union[Refused23, _Mapping]] = ..., getSchemaResponse: _Optional[_Union[Refused23, _Mapping]] = ..., ackResponse: _Optional[_Union[RefusedAck, _Mapping]] = ..., getOrCreateSchemaResponse: _Optional[_Union[Refused23, _Mapping]] = ..., newTxnResponse: _Optional[_Union[Refused45, _Mapping]] = ..., addPartitionToTxnResponse: _Optional[_Union[Refused45, _Mapping]] = ..., addSubscriptionToTxnResponse: _Optional[_Union[Refused45, _Mapping]] = ..., endTxnResponse: _Optional[_Union[Refused45, _Mapping]] = ..., endTxnOnPartitionResponse: _Optional[_Union[Refused45, _Mapping]] = ..., endTxnOnSubscriptionResponse: _Optional[_Union[Refused45, _Mapping]] = ..., tcClientConnectResponse: _Optional[_Union[Refused23, _Mapping]] = ..., watchTcAssignmentsUpdate: _Optional[_Union[RefusedTcWatch, _Mapping]] = ...) -> None: ...
