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

A namespace or topic shares its names' beginning with no other. So it has one rule on that prefix,
and later names need none.

A rule that allows something beyond those prefixes of ours is taken to be made from grants, and is
removed if it is not. Rules that deny, rules on all that begins with `topicPrefix`, and principals
that no role can be, are somebody else's. So are all rules of a role that has another owner, such as
an operator on Kubernetes: two owners of one principal's rules would undo each other's for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum, unique
from functools import lru_cache
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.log.state import StateQueries
from anabranch.core.security.actions import Action
from anabranch.core.security.principal import check_role
from anabranch.core.topics.kafka_names import (
    groups_head,
    segments_head,
    stem,
    transactions_head,
)

_ROLE: Final = "{role}"
_EVERYBODY: Final = ("*", "ANONYMOUS")  # Kafka's names for everybody, with any type
_CLUSTER: Final = "kafka-cluster"  # Kafka's name of itself


@unique
class AclResource(StrEnum):
    """Kafka's kinds of subjects of rules, as far as ours need them."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"
    CLUSTER = "CLUSTER"


class Acl(msgspec.Struct, frozen=True, order=True):
    """A rule by which Kafka allows something. `operation`: Kafka's word; there may be new ones."""

    principal: str
    resource: AclResource
    name: str
    is_prefix: bool
    operation: str
    host: str = "*"

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
    messages. `elsewhere`: patterns of roles whose rules somebody else makes; in a pattern `*`
    stands for any text. Raises InvalidInputError.
    """

    template: str
    without: frozenset[str] = frozenset()
    elsewhere: tuple[str, ...] = ()

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

    def is_made_here(self, role: str) -> bool:
        """Tells whether nodes make this role's rules, and nobody else."""
        return not any(_pattern(each).fullmatch(role) for each in self.elsewhere)

    def may_own(self, principal: str) -> bool:
        """Tells whether some role, whose rules nodes make, could be this principal."""
        head, _, tail = self.template.partition(_ROLE)
        role = principal.removeprefix(head).removesuffix(tail)
        fits = bool(role) and principal == f"{head}{role}{tail}"
        return fits and self.is_made_here(role)


@lru_cache(maxsize=100)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


class WantedAcls(msgspec.Struct, frozen=True):
    """The ACLs that Kafka needs. `unmapped`: roles that have grants but no principal in Kafka."""

    acls: frozenset[Acl]
    unmapped: frozenset[str] = frozenset()


# On all names that begin with the prefix; docs/topics.md says the same.
_OF_NODES: Final[Mapping[AclResource, tuple[str, ...]]] = {
    AclResource.TOPIC: (
        *("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
        *("READ", "WRITE", "DELETE"),
    ),
    AclResource.GROUP: ("READ", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "DELETE"),
    AclResource.TRANSACTIONAL_ID: ("DESCRIBE", "WRITE"),
}
_OF_A_KEEPER: Final = ("ALTER", "DESCRIBE")  # of all rules: for whom makes those of grants


def spoken(operation: str) -> str:
    """An operation as Kafka's tools and pages spell it.

    >>> spoken("DESCRIBE_CONFIGS")
    'DescribeConfigs'
    """
    return operation.title().replace("_", "")


def node_rights() -> str:
    """What a node needs on names with the prefix, in words."""
    return "; ".join(
        f"on {resource.replace('_', ' ').lower()}s: {', '.join(map(spoken, operations))}"
        for resource, operations in _OF_NODES.items()
    )


def node_acls(principal: str, prefix: str, *, makes_acls: bool) -> frozenset[Acl]:
    """The ACLs of a node. `prefix` begins all of the cluster's names. `makes_acls`: from grants.

    Raises InvalidInputError for a principal that is none, or everybody.
    """
    kind, _, name = principal.partition(":")
    if not kind.isalnum() or not name or name in _EVERYBODY:
        raise InvalidInputError(
            f"{principal!r} is no principal that a node can have: write type:name, User:node"
        )
    found = {
        Acl(principal, resource, prefix, True, word)
        for resource, operations in _OF_NODES.items()
        for word in operations
    }
    if makes_acls:
        cluster = AclResource.CLUSTER
        found.update(Acl(principal, cluster, _CLUSTER, False, word) for word in _OF_A_KEEPER)
    return frozenset(found)


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


def wanted_acls(state: StateQueries, prefix: str, mapping: PrincipalMapping) -> WantedAcls:
    """Returns the ACLs that nodes make for the state's grants.

    `prefix` begins all of the cluster's names.
    """
    found: set[Acl] = set()
    unmapped: set[str] = set()

    def give(role: str, words: Iterable[str], scope: str) -> None:
        meant = [_OPERATIONS[action] for action in _OPERATIONS if action in words]
        if not meant or role in mapping.without or not mapping.is_made_here(role):
            return
        try:
            principal = mapping.principal(role)
        except InvalidInputError:
            unmapped.add(role)
            return
        for each in meant:
            for resource, operations in each.items():
                name = _HEADS[resource](prefix) + stem(scope)
                found.update(Acl(principal, resource, name, True, word) for word in operations)

    for tenant in state.tenants():
        known = state.tenant(tenant)
        for role in known.admin_roles if known is not None else ():
            for home in state.namespaces(tenant):
                give(role, _OPERATIONS, home)
    for scope, role, permission in state.grants():
        give(role, permission.actions, scope)
    return WantedAcls(frozenset(found), frozenset(unmapped))


class AclDifference(msgspec.Struct, frozen=True):
    """The changes to make, in this order: add what is missing, and take away what is surplus.

    One rule may come in the place of another, and the holder of the right must not be without it
    meanwhile.
    """

    missing: tuple[Acl, ...] = ()
    surplus: tuple[Acl, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus)


def difference(
    wanted: Collection[Acl], found: Iterable[Acl], prefix: str, mapping: PrincipalMapping
) -> AclDifference:
    """The way from Kafka's rules to the wanted ones; only our own are ever taken away."""
    known = frozenset(found)
    surplus = [each for each in known.difference(wanted) if is_ours(each, prefix, mapping)]
    return AclDifference(tuple(sorted(frozenset(wanted) - known)), tuple(sorted(surplus)))


def is_ours(acl: Acl, prefix: str, mapping: PrincipalMapping) -> bool:
    """Tells whether a rule can only be one that was made from grants, or ought to have been."""
    if acl.resource not in _HEADS:
        return False
    head = _HEADS[acl.resource](prefix)
    return acl.name.startswith(head) and acl.name != head and mapping.may_own(acl.principal)
