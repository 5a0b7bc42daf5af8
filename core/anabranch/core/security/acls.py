"""The ACLs that Kafka needs, so that a grant is enforced on the path of messages as well.

Messages go from clients straight to Kafka, which knows its own principals and its own rules. A node
tells Kafka a role's rights as rules for the role's principal in Kafka:

- `produce`: Write and Describe on the Kafka topics of the segments. Also both on transactional ids
  of the topic's stem, for producers with a client of Kafka's own. An idempotent producer needs no
  more than Write.
- `consume`: Read and Describe on the same topics; Read, Describe and DescribeConfigs on the groups
  of the subscriptions, which consumers of queues ask for.
- A tenant's administrators may both, on all of its namespaces. Superusers have no rules: Kafka has
  superusers of its own.

A namespace or topic may share its names' beginning with no other (`kafka_stems`). It then has one
rule on that prefix, and later names need none. Otherwise each segment and group has a rule of its
own.

A rule that allows something beyond those prefixes of ours is taken to be made from grants, and is
removed if it is not. Rules that deny, rules on all that begins with `topicPrefix`, and principals
that no role can be, are somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum, unique
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.log.state import StateQueries
from anabranch.core.security.actions import Action
from anabranch.core.security.kafka_stems import KafkaStems
from anabranch.core.security.principal import check_role
from anabranch.core.topics.kafka_names import (
    groups_head,
    kafka_group,
    kafka_topic,
    segments_head,
    stem,
    transactions_head,
)

_ROLE: Final = "{role}"
_EVERYBODY: Final = ("*", "ANONYMOUS")  # Kafka's names for everybody, with any type


@unique
class AclResource(StrEnum):
    """Kafka's kinds of subjects of rules, as far as ours need them."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


class Acl(msgspec.Struct, frozen=True, order=True):
    """A rule by which Kafka allows something. `operation`: Kafka's word; there may be new ones."""

    principal: str
    resource: AclResource
    name: str
    is_prefix: bool
    operation: str
    host: str = "*"

    def covers(self, name: str) -> bool:
        """Tells whether the rule is about the name."""
        return name.startswith(self.name) if self.is_prefix else name == self.name

    def __str__(self) -> str:
        """For people: a principal and its right.

        >>> str(Acl("User:ada", AclResource.GROUP, "anabranch.subscription.acme.", True, "READ"))
        'User:ada READ GROUP anabranch.subscription.acme.*'
        """
        what = f"{self.resource} {self.name}{'*' if self.is_prefix else ''}"
        where = "" if self.host == "*" else f" from {self.host}"
        return f"{self.principal} {self.operation} {what}{where}"


class PrincipalMapping(msgspec.Struct, frozen=True):
    """The principal of a role in Kafka: `template`, with the role for `{role}`.

    `without`: roles that have nothing there, whatever their grants: proxies, which carry no
    messages. Raises InvalidInputError.
    """

    template: str
    without: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        kind, _, name = self.template.partition(":")
        if not kind.isalnum() or name.count(_ROLE) != 1:
            raise InvalidInputError(
                f"{self.template!r} names no principal: write type:name with {_ROLE} once in the "
                f"name, such as User:{_ROLE}"
            )

    def principal(self, role: str) -> str:
        """The role's principal. Raises InvalidInputError for one that would be everybody, and for a
        text that is no role, because a text ends at its first zero for Kafka's clients.
        """
        found = self.template.replace(_ROLE, check_role(role))
        if found.partition(":")[2] in _EVERYBODY:
            raise InvalidInputError(
                f"role {role!r} cannot be given rights on Kafka, where {found} is everybody: call "
                "it otherwise"
            )
        return found

    def may_be(self, principal: str) -> bool:
        """Tells whether some role could be this principal."""
        head, _, tail = self.template.partition(_ROLE)
        fits = principal.startswith(head) and principal.endswith(tail)
        return fits and len(principal) > len(head) + len(tail)


class WantedAcls(msgspec.Struct, frozen=True):
    """The ACLs that Kafka needs. `unmapped`: roles that have grants but no principal in Kafka."""

    acls: frozenset[Acl]
    unmapped: frozenset[str] = frozenset()


_PRODUCING: Final = {
    AclResource.TOPIC: ("DESCRIBE", "WRITE"),
    AclResource.TRANSACTIONAL_ID: ("DESCRIBE", "WRITE"),
}
_CONSUMING: Final = {
    AclResource.TOPIC: ("DESCRIBE", "READ"),
    AclResource.GROUP: ("DESCRIBE", "DESCRIBE_CONFIGS", "READ"),
}
_OPERATIONS: Final[Mapping[Action, Mapping[AclResource, tuple[str, ...]]]] = {
    Action.PRODUCE: _PRODUCING,
    Action.CONSUME: _CONSUMING,
}
_HEADS: Final[dict[AclResource, Callable[[str], str]]] = {
    AclResource.TOPIC: segments_head,
    AclResource.GROUP: groups_head,
    AclResource.TRANSACTIONAL_ID: transactions_head,
}
_Pattern = tuple[AclResource, str, bool]  # the subject of a rule


def wanted_acls(state: StateQueries, stems: KafkaStems, mapping: PrincipalMapping) -> WantedAcls:
    """Returns the ACLs for the state's grants. `stems`: those of the same state."""
    return _Wanted(state, stems, mapping).all()


class _Wanted:
    """One computation."""

    def __init__(self, state: StateQueries, stems: KafkaStems, mapping: PrincipalMapping) -> None:
        self._state = state
        self._stems = stems
        self._mapping = mapping
        self._patterns: dict[str, tuple[_Pattern, ...]] = {}  # by namespace or topic
        self._found: set[Acl] = set()
        self._unmapped: set[str] = set()

    def all(self) -> WantedAcls:
        for tenant in self._state.tenants():
            known = self._state.tenant(tenant)
            for role in known.admin_roles if known is not None else ():
                for home in self._state.namespaces(tenant):
                    self._give(role, _OPERATIONS, home)
        for scope in self._stems.scopes():
            for role, permission in self._state.permissions(scope):
                self._give(role, permission.actions, scope)
        return WantedAcls(frozenset(self._found), frozenset(self._unmapped))

    def _give(self, role: str, words: Iterable[str], scope: str) -> None:
        meant = [_OPERATIONS[action] for action in _OPERATIONS if action in words]
        if not meant or role in self._mapping.without:
            return
        try:
            principal = self._mapping.principal(role)
        except InvalidInputError:
            self._unmapped.add(role)
            return
        for resource, name, is_prefix in self._of(scope):
            for operations in meant:
                for operation in operations.get(resource, ()):
                    self._found.add(Acl(principal, resource, name, is_prefix, operation))

    def _of(self, scope: str) -> tuple[_Pattern, ...]:
        if scope not in self._patterns:
            self._patterns[scope] = (*self._topics_of(scope), *self._groups_of(scope))
        return self._patterns[scope]

    def _topics_of(self, scope: str) -> Iterator[_Pattern]:
        prefix = self._stems.prefix
        if self._stems.is_alone(scope):
            for resource in _PRODUCING:
                yield resource, _HEADS[resource](prefix) + stem(scope), True
            return
        if _is_namespace(scope):
            for topic in self._stems.topics(scope):
                yield from self._topics_of(topic)
            return
        known = self._state.topic(scope)
        if known is not None:
            number = known.incarnation
            for part in (*known.segments, *known.children):
                yield AclResource.TOPIC, kafka_topic(prefix, scope, number, part), False
            own = f"{transactions_head(prefix)}{number}"
            yield AclResource.TRANSACTIONAL_ID, own, False

    def _groups_of(self, scope: str) -> Iterator[_Pattern]:
        prefix = self._stems.prefix
        if self._stems.has_groups_alone(scope):
            yield AclResource.GROUP, groups_head(prefix) + stem(scope), True
        elif _is_namespace(scope):
            for topic in self._stems.topics(scope):
                yield from self._groups_of(topic)
        else:
            for name, each in self._state.subscriptions(scope):
                yield (
                    AclResource.GROUP,
                    kafka_group(prefix, scope, name, each.group_offset),
                    False,
                )


def _is_namespace(scope: str) -> bool:
    return scope.count("/") == 1


class AclDifference(msgspec.Struct, frozen=True):
    """The changes to make, in this order: take away, add, and take away the replaced rules.

    Another rule may replace a rule for the same things. The old one stays until the new one is
    there, because the holder of the right must not be without it meanwhile. The rules of `revoked`
    have no right behind them.
    """

    revoked: tuple[Acl, ...] = ()
    missing: tuple[Acl, ...] = ()
    replaced: tuple[Acl, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.revoked or self.missing or self.replaced)

    def about(self, topics: Collection[str]) -> AclDifference:
        """The part of it that matters for these Kafka topics, with its replacements elsewhere."""
        revoked = _about(self.revoked, topics)
        replaced = _about(self.replaced, topics)
        missing = {
            *_about(self.missing, topics),
            *(each for each in self.missing if any(_replaces(each, old) for old in replaced)),
        }
        return AclDifference(revoked, tuple(sorted(missing)), replaced)


def difference(
    wanted: Collection[Acl], found: Iterable[Acl], prefix: str, mapping: PrincipalMapping
) -> AclDifference:
    """The way from Kafka's rules to the wanted ones; only our own are ever taken away."""
    known = frozenset(found)
    surplus = [each for each in known.difference(wanted) if is_ours(each, prefix, mapping)]
    missing = frozenset(wanted) - known
    ways: dict[tuple[str, AclResource, str], list[Acl]] = {}
    for each in missing:
        ways.setdefault((each.principal, each.resource, each.operation), []).append(each)

    def is_replaced(old: Acl) -> bool:
        news = ways.get((old.principal, old.resource, old.operation), ())
        return any(_replaces(new, old) for new in news)

    replaced = {each for each in surplus if is_replaced(each)}
    return AclDifference(
        tuple(sorted(set(surplus) - replaced)), tuple(sorted(missing)), tuple(sorted(replaced))
    )


def is_ours(acl: Acl, prefix: str, mapping: PrincipalMapping) -> bool:
    """Tells whether a rule can only be one that was made from grants, or ought to have been."""
    head = _HEADS[acl.resource](prefix)
    return acl.name.startswith(head) and acl.name != head and mapping.may_be(acl.principal)


def _replaces(new: Acl, old: Acl) -> bool:
    """Tells whether a rule is about some of the same names as another one, for the same right."""
    same = (new.principal, new.resource, new.operation) == (
        old.principal,
        old.resource,
        old.operation,
    )
    return same and (new.covers(old.name) or old.covers(new.name))


def _about(acls: Iterable[Acl], topics: Collection[str]) -> tuple[Acl, ...]:
    return tuple(
        each
        for each in acls
        if each.resource is AclResource.TOPIC and any(map(each.covers, topics))
    )
