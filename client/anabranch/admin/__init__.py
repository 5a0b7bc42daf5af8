"""The administration of a cluster from Python, over its REST interface (docs/admin.md)."""

from anabranch.admin.admin import Admin, AsyncAdmin
from anabranch.admin.brokers import (
    Explanation,
    LeaderBroker,
    MoveNow,
    NamespaceOwnershipStatus,
    NodeStatus,
)
from anabranch.admin.bundles import BundleOwnership, NamespaceOwnership, TopicHashPositions
from anabranch.admin.errors import (
    AdminError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    NodeFailedError,
    NoNodeError,
    NotFoundError,
    PreconditionError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
    UnreachableError,
)
from anabranch.admin.lookups import LookupData
from anabranch.admin.namespaces import BundlesData, Policies
from anabranch.admin.scalable_models import (
    AutoScaleOverride,
    AutoScaleStats,
    ConsumerStats,
    DeadLetterPolicy,
    Decision,
    HashRange,
    Layout,
    LoadStats,
    PolicyField,
    Segment,
    SegmentDetail,
    SegmentStats,
    SubscriptionStats,
    SubscriptionType,
    TopicStats,
)
from anabranch.admin.scalable_topics import Place
from anabranch.admin.tenants import ClusterData, TenantInfo
from anabranch.core.errors import InvalidInputError

__all__ = [
    "Admin",
    "AdminError",
    "AsyncAdmin",
    "AutoScaleOverride",
    "AutoScaleStats",
    "BundleOwnership",
    "BundlesData",
    "ClusterData",
    "ConflictError",
    "ConsumerStats",
    "DeadLetterPolicy",
    "Decision",
    "Explanation",
    "ForbiddenError",
    "HashRange",
    "InvalidInputError",
    "InvalidRequestError",
    "Layout",
    "LeaderBroker",
    "LoadStats",
    "LookupData",
    "MoveNow",
    "NamespaceOwnership",
    "NamespaceOwnershipStatus",
    "NoNodeError",
    "NodeFailedError",
    "NodeStatus",
    "NotFoundError",
    "Place",
    "Policies",
    "PolicyField",
    "PreconditionError",
    "RefusedError",
    "Segment",
    "SegmentDetail",
    "SegmentStats",
    "SubscriptionStats",
    "SubscriptionType",
    "TenantInfo",
    "TopicHashPositions",
    "TopicStats",
    "UnavailableError",
    "UnknownOutcomeError",
    "UnreachableError",
]
