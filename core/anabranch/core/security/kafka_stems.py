"""`KafkaStems`: common beginnings of names in Kafka, so that a Kafka rule for one prefix fits.

A rule on a prefix covers all segments of a topic, or all topics of a namespace, later ones
included. But `acme/shop` and `acme/shop.eu` begin alike there. So do the topics `orders` and
`orders.eu`, and a subscription of `orders` whose name is `eu`. So a namespace or topic has a rule
of its own only while nobody else's name begins with its stem.

Namespaces, topics and subscriptions are counted as the log says, change by change. A look into an
ordered list, of any length, says whether a stem is somebody's alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Self

from anabranch.core.entities.permission import PERMISSIONS_PREFIX
from anabranch.core.log.state import Change, StateQueries
from anabranch.core.names import namespace_of
from anabranch.core.topics.kafka_names import (
    ends_like_a_segment,
    groups_head,
    is_whole,
    segments_head,
    stem,
    transactions_head,
)

_LEFT_MAX: Final = 10_000  # stems that are remembered of what is gone
_BEHIND_ALL: Final = "\x7f"  # sorts behind all that a name in Kafka may hold
_NAMESPACE: Final = "namespace:"
_TOPIC: Final = "topic:"
_SUBSCRIPTION: Final = "subscription:"
_TENANT: Final = "tenant:"


class _Ordered:
    """Stems, with repetitions."""

    def __init__(self) -> None:
        self._stems: list[str] = []

    def change(self, each: str, *, present: bool) -> None:
        if present:
            insort(self._stems, each)
        else:
            del self._stems[bisect_left(self._stems, each)]

    def beginning_with(self, start: str) -> int:
        """The number of stems that begin so."""
        end = bisect_left(self._stems, start + _BEHIND_ALL)
        return end - bisect_left(self._stems, start)

    def __contains__(self, each: str) -> bool:
        at = bisect_left(self._stems, each)
        return at < len(self._stems) and self._stems[at] == each


class KafkaStems:
    """The stems of one state. `prefix` begins the names of everything that the cluster has in
    Kafka.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._namespaces: dict[str, set[str]] = {}  # and their topics
        self._subscriptions: dict[str, set[str]] = {}  # by topic
        self._subscribed: Counter[str] = Counter()  # by namespace
        self._granted: dict[str, set[str]] = {}  # roles by namespace or topic
        self._of_namespaces: Counter[str] = Counter()
        self._of_topics = _Ordered()
        self._of_groups = _Ordered()
        # Stems of gone things with rights on them, as every namespace has; longest known first.
        self._left: dict[str, None] = {}

    @classmethod
    def of(cls, state: StateQueries, prefix: str) -> Self:
        """Those of a state as it is."""
        made = cls(prefix)
        for tenant in state.tenants():
            for home in state.namespaces(tenant):
                made._namespace(home, present=True)
                for role, _ in state.permissions(home):
                    made._permission(home, role, present=True)
                for topic in state.topics(home):
                    made._add_topic(state, topic)
        return made

    def _add_topic(self, state: StateQueries, topic: str) -> None:
        self._topic(topic, present=True)
        for role, _ in state.permissions(topic):
            self._permission(topic, role, present=True)
        for name, _ in state.subscriptions(topic):
            self._subscription(topic, name, present=True)

    # --- changes ------------------------------------------------------------------------

    def apply(self, changes: Iterable[Change]) -> bool:
        """Takes the changes of a record; tells whether the wanted rules may be others now.

        A topic's segments and a subscription's group matter if rules name them one by one.
        """
        matters = False
        for key, entity in changes:
            present = entity is not None
            if key.startswith(_TOPIC):
                name = key[len(_TOPIC) :]
                matters |= self._topic(name, present=present) or not self.is_alone(name)
            elif key.startswith(_SUBSCRIPTION):
                topic, _, name = key[len(_SUBSCRIPTION) :].rpartition("/")
                new = self._subscription(topic, name, present=present)
                matters |= new or not self.has_groups_alone(topic)
            elif key.startswith(PERMISSIONS_PREFIX):
                scope, _, role = key[len(PERMISSIONS_PREFIX) :].partition(":")
                self._permission(scope, role, present=present)
                matters = True
            elif key.startswith(_NAMESPACE):
                matters |= self._namespace(key[len(_NAMESPACE) :], present=present)
            elif key.startswith(_TENANT):
                matters = True
        return matters

    def _namespace(self, name: str, *, present: bool) -> bool:
        if present is (name in self._namespaces):
            return False
        if present:
            self._namespaces[name] = set()
        else:
            del self._namespaces[name]
            self._leave(name)
        self._of_namespaces[stem(name)] += 1 if present else -1
        return True

    def _topic(self, name: str, *, present: bool) -> bool:
        topics = self._namespaces.get(namespace_of(name), set())
        if present is (name in topics):
            return False
        (topics.add if present else topics.discard)(name)
        if not present and name in self._granted:
            self._leave(name)
        self._of_topics.change(stem(name), present=present)
        return True

    def _leave(self, scope: str) -> None:
        """It is gone, and all rights on it: Kafka may have its rules for a while."""
        self._left[stem(scope)] = None
        if len(self._left) > _LEFT_MAX:
            del self._left[next(iter(self._left))]

    def _subscription(self, topic: str, name: str, *, present: bool) -> bool:
        names = self._subscriptions.setdefault(topic, set())
        is_new = present is not (name in names)
        if is_new:
            (names.add if present else names.discard)(name)
            self._subscribed[namespace_of(topic)] += 1 if present else -1
            self._of_groups.change(stem(f"{topic}/{name}"), present=present)
        if not names:
            del self._subscriptions[topic]
        return is_new

    def _permission(self, scope: str, role: str, *, present: bool) -> None:
        roles = self._granted.setdefault(scope, set())
        (roles.add if present else roles.discard)(role)
        if not roles:
            del self._granted[scope]

    # --- questions ----------------------------------------------------------------------

    def topics(self, namespace: str) -> Iterator[str]:
        """The namespace's topics, in no order."""
        yield from self._namespaces.get(namespace, ())

    def scopes(self) -> Iterator[str]:
        """The namespaces and topics on which something is granted."""
        yield from self._granted

    def is_alone(self, scope: str) -> bool:
        """Tells whether a rule on its stem covers the segments of this namespace or topic, and no
        more.

        The same goes for transactional ids.
        """
        return self._is_alone(scope, segments_head(self.prefix)) and self._is_alone(
            scope, transactions_head(self.prefix)
        )

    def _is_alone(self, scope: str, head: str) -> bool:
        own, topics = stem(scope), self._namespaces.get(scope)
        count = 1 if topics is None else len(topics)
        return (
            is_whole(head, own)
            and not ends_like_a_segment(own)
            and self._of_topics.beginning_with(own) == count
        )

    def has_groups_alone(self, scope: str) -> bool:
        """Tells whether a rule on its stem covers the groups of its subscriptions, and no more."""
        own = stem(scope)
        if scope in self._namespaces:
            count = self._subscribed[scope]
        else:
            count = len(self._subscriptions.get(scope, ()))
        return (
            is_whole(groups_head(self.prefix), own) and self._of_groups.beginning_with(own) == count
        )

    def is_apart(self, topic: str) -> bool:
        """Tells whether nothing needs doing before the topic's segments are made. That is so if a
        rule for its namespace covers them, and no rule for anything else did before this topic.

        Nor may Kafka have a rule left of something gone, such as of a topic of this name.
        """
        home, whole = namespace_of(topic), stem(topic)
        if not self.is_alone(home) or self._of_topics.beginning_with(whole) > 1:
            return False
        parts = whole.split(".")[:-1]
        starts = [".".join(parts[:end]) + "." for end in range(1, len(parts))]
        if any(start in self._left for start in (*starts, whole)):
            return False
        own = stem(home)
        return not any(start in self._of_topics for start in starts) and not any(
            self._of_namespaces[start] > (start == own) for start in (*starts, whole)
        )
