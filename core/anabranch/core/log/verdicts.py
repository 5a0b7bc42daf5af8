"""The fold's possible answers. Statistics and reports store their numbers, so the numbers are
fixed.

The fold gives one reason. If several apply, it gives the first one in the order of `Verdict`, so
that every reader, Python or Spark, gives the same one. The guards of every arrow's row are in this
order. The fold checks NOT_PERMITTED last of all.
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class Verdict(IntEnum):
    """ACCEPTED, or the one reason why a record changed nothing."""

    ACCEPTED = 0
    UNREADABLE = 1  # no known schema, or a body that does not decode
    NO_CLUSTER = 2  # before the cluster's settings were logged
    REPEATED = 3  # this very proposal was accepted already
    UNKNOWN_UNIT = 4
    UNKNOWN_TENANT = 5
    UNKNOWN_NAMESPACE = 6
    STALE_VERSION = 7  # someone was faster
    VERSION_GAP = 8
    ILLEGAL_MOVE = 9  # no arrow starts in this state
    SESSION_OVER = 10  # the actor's session is not open, or not the one it names
    NOT_LEADER = 11  # fenced: the actor does not lead in this epoch
    TARGET_UNKNOWN = 12  # the destination has no open session
    TARGET_IS_OWNER = 13
    NO_TARGET = 14
    HAS_TARGET = 15
    NOT_OWNER = 16
    HOLDER_ALIVE = 17
    SOURCE_UNSETTLED = 18
    CHILDREN_INVALID = 19
    CHILD_EXISTS = 20
    TENANT_BUSY = 21  # it still has namespaces
    NAMESPACE_BUSY = 22  # one of its bundles is owned or moving
    INVALID_VALUE = 23
    CLUSTER_EXISTS = 24  # the cluster's settings are written already
    UNKNOWN_TOPIC = 25
    UNKNOWN_SUBSCRIPTION = 26
    OTHER_INCARNATION = 27  # meant for a topic of this name that is gone
    NOT_CONTROLLER = 28  # the actor does not hold the bundle of the topic's name
    SEGMENTS_INVALID = 29  # they cannot take the place they are meant for
    ENDS_INCOMPLETE = 30
    NOT_DRAINED = 31  # a subscription has still to read it, or what is above it
    UNKNOWN_CONSUMER = 32
    CONSUMER_EXISTS = 33
    TOPIC_BUSY = 34  # an operation is under way
    UNKNOWN_ARCHIVE = 35
    UNKNOWN_POLICY = 36
    BROKER_IN_DOMAIN = 37  # a broker that another failure domain has already
    UNKNOWN_OVERRIDE = 38  # a setting that nothing overrides
    TOO_MANY_OVERRIDES = 39
    UNKNOWN_PERMISSION = 40  # nothing is granted to the role there
    TOO_MANY_PERMISSIONS = 41
    NOT_PERMITTED = 42  # the caller has no right to it; the record is valid otherwise
    LIMIT_REACHED = 43  # the tenant has as many as it may have
    NOT_ADOPTABLE = 44  # no setting lets the namespace adopt the Kafka topic
    ALREADY_ADOPTED = 45  # another topic of the namespace has the Kafka topic
