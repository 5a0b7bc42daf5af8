"""Kafka's ACLs, and changes of them. Blocking calls, all idempotent.

A final refusal by Kafka is a KafkaRefusedError with the remedy. Any other failure is tried again
until the deadline, and then is a KafkaUnreachableError.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

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
from anabranch.channel.kafka.deadline import Deadline, asking_anew
from anabranch.core.security.acls import Acl, AclDifference, AclResource

_AT_ONCE: Final = 1_000  # in one request; Kafka takes 10,000
_KINDS: Final[Mapping[AclResource, ResourceType]] = {
    **{each: ResourceType[each] for each in AclResource if each is not AclResource.CLUSTER},
    AclResource.CLUSTER: ResourceType.BROKER,  # librdkafka's word
}
_PATTERNS: Final = (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED)
_ALLOW: Final = AclPermissionType.ALLOW
_RIGHTS: Final = (
    "With kafkaAclsEnabled a node's principal needs Describe and Alter on the cluster (kafka-acls "
    "--add --cluster --operation Describe --operation Alter)"
)


class KafkaAcls:
    """Asks and tells Kafka, from any thread. `topic`: any that it may describe."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._admin = connection.admin()
        self._topic = topic
        self._changing = threading.Lock()

    def find(self, deadline_s: float) -> frozenset[Acl]:
        """The rules that allow something, on what AclResource names; anybody's."""
        deadline = self._deadline(deadline_s)
        doing = "to describe its ACLs"
        found: set[Acl] = set()
        for kind, named in _KINDS.items():
            asked = AclBindingFilter(
                named,
                _ANY,
                ResourcePatternType.ANY,
                _ANY,
                _ANY,
                AclOperation.ANY,
                _ALLOW,
            )
            while True:
                with _explained():
                    answer = deadline.answer(self._admin.describe_acls(asked), doing)
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
        create, delete = self._admin.create_acls, self._admin.delete_acls
        steps: Sequence[tuple[Sequence[Acl], Callable[[Acl], Any], Callable[..., Any], str]] = (
            (change.missing, _binding, create, "to create an ACL,"),
            (change.surplus, _exactly, delete, "to delete an ACL,"),
        )
        failed: list[Exception] = []
        with self._changing:
            for acls, form, tell, doing in steps:
                try:
                    self._carry_out(acls, form, tell, doing, self._deadline(deadline_s))
                except Exception as error:  # noqa: BLE001 - raised below
                    failed = failed or [error]
        if failed:
            raise failed.pop()  # kept here, it would be a circle with this frame

    def _carry_out(
        self,
        acls: Sequence[Acl],
        form: Callable[[Acl], Any],
        tell: Callable[[list[Any]], Mapping[Any, Future[Any]]],
        doing: str,
        deadline: Deadline,
    ) -> None:
        def ask(left: list[Acl]) -> dict[Acl, Future[Any]]:
            told = {each: form(each) for each in left}
            futures = tell(list(told.values()))
            return {each: futures[told[each]] for each in left}

        for start in range(0, len(acls), _AT_ONCE):
            with _explained():
                deadline.answer_all(acls[start : start + _AT_ONCE], ask, doing)

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline(self._connection, seconds, asking_anew(self._admin, [self._topic]))


@contextmanager
def _explained() -> Iterator[None]:
    """Names the rights that only ACLs need."""
    try:
        yield
    except KafkaAccessError as error:
        raise KafkaRefusedError(f"{error.refusal}. {_RIGHTS}") from None


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
        _KINDS[acl.resource],
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
