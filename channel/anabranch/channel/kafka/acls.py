"""Kafka's ACLs, and changes of them. Blocking calls, all idempotent.

A final refusal by Kafka is a KafkaRefusedError with the remedy. Any other failure is tried again
until the deadline, and then is a KafkaUnreachableError.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from anabranch.channel.errors import KafkaAccessError, KafkaRefusedError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deadline import Deadline
from anabranch.core.security.acls import Acl, AclDifference, AclResource

# A node's rights on everything that begins with `topicPrefix`; docs/topics.md says the same.
NODE_RIGHTS: Final[Mapping[AclResource, tuple[str, ...]]] = {
    AclResource.TOPIC: (
        *("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
        *("READ", "WRITE", "DELETE"),
    ),
    AclResource.GROUP: ("READ", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "DELETE"),
    AclResource.TRANSACTIONAL_ID: ("DESCRIBE", "WRITE"),
}
# On the cluster it needs this where Kafka's brokers are in racks, by which copies are placed.
RACK_RIGHTS: Final = ("DESCRIBE_CONFIGS",)
# And what it needs there where it makes the ACLs of what is granted (kafkaAclsEnabled).
CLUSTER_RIGHTS: Final = ("ALTER", "DESCRIBE")

_AT_ONCE: Final = 1_000  # in one request; Kafka takes 10,000
_PATTERNS: Final = (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED)
_ALLOW: Final = AclPermissionType.ALLOW
_RIGHTS: Final = (
    "With kafkaAclsEnabled a node's principal needs Describe and Alter on the cluster (kafka-acls "
    "--add --cluster --operation Describe --operation Alter)"
)

_K = TypeVar("_K")


class KafkaAcls:
    """Asks and tells Kafka, from any thread."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._admin = connection.admin()
        self._changing = threading.Lock()

    def find(self, deadline_s: float) -> frozenset[Acl]:
        """The rules that allow something, on topics, groups and transactional ids; anybody's."""
        deadline = self._deadline(deadline_s)
        doing = "to describe its ACLs"
        found: set[Acl] = set()
        for kind in AclResource:
            asked = AclBindingFilter(
                ResourceType[kind],
                _ANY,
                ResourcePatternType.ANY,
                _ANY,
                _ANY,
                AclOperation.ANY,
                _ALLOW,
            )
            while True:
                answer = self._answer(deadline, self._admin.describe_acls(asked), doing)
                if not isinstance(answer, KafkaError):
                    break
                deadline.pause(doing)
            found.update(
                _acl(kind, each)
                for each in answer
                if each.resource_pattern_type in _PATTERNS
                and each.operation != AclOperation.UNKNOWN
            )
        return frozenset(found)

    def carry_out(self, change: AclDifference, deadline_s: float) -> None:
        """Adds and takes away.

        A failure does not keep the other steps from being done; the first failure is raised in the
        end.
        """
        failed: list[Exception] = []
        with self._changing:
            for acls, step in ((change.missing, self._create), (change.surplus, self._delete)):
                try:
                    step(acls, self._deadline(deadline_s))
                except Exception as error:  # noqa: BLE001 - raised below
                    failed = failed or [error]
        if failed:
            raise failed.pop()  # kept here, it would be a circle with this frame

    # --- steps --------------------------------------------------------------------------

    def _create(self, acls: Sequence[Acl], deadline: Deadline) -> None:
        self._each(
            {each: _binding(each) for each in acls},
            lambda left: self._admin.create_acls(left),
            "to create an ACL,",
            deadline,
        )

    def _delete(self, acls: Sequence[Acl], deadline: Deadline) -> None:
        self._each(
            {each: _exactly(each) for each in acls},
            lambda left: self._admin.delete_acls(left),
            "to delete an ACL,",
            deadline,
        )

    def _each(
        self,
        told: Mapping[Acl, _K],
        ask: Callable[[list[_K]], Mapping[_K, Future[Any]]],
        doing: str,
        deadline: Deadline,
    ) -> None:
        left: Collection[Acl] = list(told)
        while left:
            batch = list(left)[:_AT_ONCE]
            futures = ask([told[each] for each in batch])
            failed = set()
            for each in batch:
                answer = self._answer(deadline, futures[told[each]], f"{doing} {each}")
                if isinstance(answer, KafkaError):
                    failed.add(each)
            done = set(batch) - failed
            left = [each for each in left if each not in done]
            if failed:
                deadline.pause(doing)

    def _answer(self, deadline: Deadline, future: Future[Any], doing: str) -> Any:
        try:
            answer = deadline.answer(future, doing)
        except KafkaAccessError as error:
            raise KafkaRefusedError(f"{error.refusal}. {_RIGHTS}") from None
        if isinstance(answer, KafkaError) and answer.code() == KafkaError.SECURITY_DISABLED:
            raise KafkaRefusedError(
                f"Kafka at {self._connection.bootstrap_servers} refused {doing}: "
                f"{answer.str().rstrip('.')}. It asks nobody for rights: set authorizer.class.name "
                "on its brokers and controllers, or kafkaAclsEnabled=false here"
            )
        return answer

    def _deadline(self, seconds: float) -> Deadline:
        def refresh() -> None:
            self._admin.poll(0)  # it only says when asked that it is not let in

        return Deadline(self._connection, seconds, refresh)


_ANY: Final[Any] = None  # the types of the filter do not know it


def _acl(kind: AclResource, found: AclBinding) -> Acl:
    return Acl(
        found.principal,
        kind,
        found.name,
        found.resource_pattern_type is ResourcePatternType.PREFIXED,
        AclOperation(found.operation).name,
        found.host,
    )


def _parts(acl: Acl) -> tuple[Any, ...]:
    return (
        ResourceType[acl.resource],
        acl.name,
        _PATTERNS[acl.is_prefix],
        acl.principal,
        acl.host,
        AclOperation[acl.operation],
        _ALLOW,
    )


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(*_parts(acl))


def _exactly(acl: Acl) -> AclBindingFilter:
    return AclBindingFilter(*_parts(acl))
