"""Gives a node's principal its rights on a Kafka of ours that lets nobody do anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from anabranch.channel.kafka.acls import CLUSTER_RIGHTS, NODE_RIGHTS, RACK_RIGHTS
from anabranch.channel.kafka.connection import KafkaConnection

_CLUSTER: Final = "kafka-cluster"  # Kafka's name of itself in its ACLs
_ANSWER_S_MAX: Final = 120.0  # nodes may take as long to start
_LOOK_S: Final = 0.02


def allow_node(
    bootstrap_servers: str, security: Mapping[str, str], principal: str, topic_prefix: str
) -> None:
    """Gives the rights that docs/topics.md names. Returns once Kafka applies them, at once if it
    has them already.

    `security` has the properties of a superuser of Kafka. Raises KafkaRefusedError,
    KafkaUnreachableError.
    """
    connection = KafkaConnection(bootstrap_servers, security, "anabranch-dev")
    admin = connection.admin()
    prefixed, literal = ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    allow = AclPermissionType.ALLOW
    rights = [
        (ResourceType[kind], topic_prefix, prefixed, principal, "*", AclOperation[each], allow)
        for kind, operations in NODE_RIGHTS.items()
        for each in operations
    ]
    rights += [
        (ResourceType.BROKER, _CLUSTER, literal, principal, "*", AclOperation[each], allow)
        for each in (*RACK_RIGHTS, *CLUSTER_RIGHTS)
    ]
    doing = "to give nodes their rights"
    deadline = time.monotonic() + _ANSWER_S_MAX
    try:
        bindings = [AclBinding(*each) for each in rights]
        for future in admin.create_acls(bindings, request_timeout=_ANSWER_S_MAX).values():
            future.result(_ANSWER_S_MAX)
        # Its controller has them; its broker follows.
        for each in rights:
            asked = AclBindingFilter(*each)
            while not admin.describe_acls(asked, request_timeout=_ANSWER_S_MAX).result():
                if time.monotonic() > deadline:
                    raise connection.unreachable(doing)
                time.sleep(_LOOK_S)
    except KafkaException as error:
        raise connection.explained(error, doing) from None
