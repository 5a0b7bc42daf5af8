"""The stored state and the queries on it, with the changes of the running batch laid on top.

Decoded entities are kept in a bounded cache, topics by their number of segments. Changes in a batch
stay in it until the batch is written. Sessions, the cluster's settings and leadership, which every
verdict or assignment asks for, are few and stay in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Final

from anabranch.channel.codec import decode_entity
from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.permission import PERMISSIONS_PREFIX, Permission
from anabranch.core.entities.session import Session
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import LEADERSHIP, Unit, UnitState
from anabranch.core.log.state import Entity, StateQueries
from anabranch.core.ring import after_bundles, split_bundle_name
from anabranch.projections.owners import groups_of
from anabranch.projections.store import Family, Store, family_of

# Decoded entities, of about 500 bytes each: 20,000 topics in use, each with a subscription.
RECENT_MAX: Final = 40_000
SEGMENTS_MAX: Final = 40_000  # in the topics among them, about 400 bytes each


class StoredState(StateQueries):
    """The state over a store. Called from one thread.

    The queries that no verdict depends on (`units_of`, `unit_count`, `unsettled`,
    `restless_topics`) are for between batches: they show the stored state.
    """

    def __init__(self, store: Store) -> None:
        self._attach(store)

    def _attach(self, store: Store) -> None:
        """Forgets everything in memory and reads from this store."""
        self._store = store
        self._recent: dict[str, Entity | None] = {}
        self._before: dict[str, Entity | None] = {}  # old values of this batch's changed keys
        self._born: dict[str, list[str]] = {}  # namespace -> bundles new in this batch, in order
        self._segment_counts: dict[
            str, int
        ] = {}  # by recent key of a topic: its number of segments
        self._segments = 0  # the sum of all those
        # The stored rows add this to digest and sums, for some of the recent keys.
        self._hashes: dict[str, tuple[int, int]] = {}
        self._counts: dict[str, int] = {}
        self._sessions = dict(super().sessions())
        self._cluster = super().cluster()
        self._leadership = super().unit(LEADERSHIP)

    # --- single entities ----------------------------------------------------------------

    def entity(self, key: str) -> Entity | None:
        found = self._recent.get(key)
        if found is None and key not in self._recent:
            value = self._store.get(family_of(key), key.encode())
            found = None if value is None else decode_entity(value)
            if not self._before:
                self._trim()
            self._recent[key] = found
            if type(found) is ScalableTopic:
                self._weigh(key, found)
        return found

    def _weigh(self, key: str, topic: ScalableTopic) -> None:
        weight = len(topic.segments) + len(topic.children) + len(topic.garbage)
        self._segments += weight - self._segment_counts.pop(key, 0)
        self._segment_counts[key] = weight

    def _trim(self) -> None:
        """Lets go of the oldest cached entities; not while a batch runs."""
        excess = len(self._recent) - RECENT_MAX
        if excess > 0:
            for key in list(islice(self._recent, excess + RECENT_MAX // 4)):
                self._let_go(key)
        if self._segments > SEGMENTS_MAX:
            for key in list(self._segment_counts):
                self._let_go(key)
                if self._segments <= SEGMENTS_MAX * 3 // 4:
                    break

    def _let_go(self, key: str) -> None:
        del self._recent[key]
        self._hashes.pop(key, None)
        self._segments -= self._segment_counts.pop(key, 0)

    def unit(self, name: str) -> Unit | None:
        if name == LEADERSHIP:
            return self._leadership
        found = self.entity(name)  # nearly every verdict asks
        return found if isinstance(found, Unit) else None

    def session(self, broker: str) -> Session | None:
        return self._sessions.get(broker)

    def cluster(self) -> Cluster | None:
        return self._cluster

    # --- ranges -------------------------------------------------------------------------

    def entities_of(self, prefix: str) -> Iterator[tuple[str, Entity]]:
        if self._before:
            yield from super().entities_of(prefix)
            return
        recent = self._recent
        for key, value in self._store.rows(family_of(prefix), prefix.encode()):
            name = key.decode()
            yield name, recent.get(name) or decode_entity(value)

    def keys(self, prefix: str) -> Iterator[str]:
        """Any prefix will do; the running batch is included."""
        stored = (key.decode() for key, _ in self._store.rows(family_of(prefix), prefix.encode()))
        if not self._before:
            yield from stored
            return
        names = dict.fromkeys(stored)
        names.update((key, None) for key in self._before if key.startswith(prefix))
        for name in sorted(names):
            if name not in self._before or self._recent[name] is not None:
                yield name

    def sessions(self) -> Iterator[tuple[str, Session]]:
        yield from sorted(self._sessions.items())

    def grants(self) -> Iterator[tuple[str, str, Permission]]:
        for name, found in self._all(Permission, PERMISSIONS_PREFIX):
            scope, _, role = name.partition(":")
            yield scope, role, found

    def bundle_at(self, namespace: str, hash32: int) -> tuple[str, Unit] | None:
        """The live bundle that holds a hash; None when the namespace does not exist.

        Names sort by lower end, and live bundles tile the ring, so it is the last live one that
        begins at or before the hash; deleted parents, which stay until their tombstone, lie in
        between. One that the running batch has made is not stored yet.
        """
        prefix = f"{namespace}/"
        last = after_bundles(namespace, hash32)
        born = self._born.get(namespace, ())
        for name in reversed(born[: bisect_right(born, last)]):
            unit = self._live(name)
            if unit is not None and hash32 in split_bundle_name(name)[1]:
                return name, unit
        cursor = self._store.cursor(Family.UNITS)
        cursor.seek_for_prev(last.encode())
        while cursor.valid():
            name = cursor.key().decode()
            if not name.startswith(prefix):
                return None
            unit = self._live(name)
            if unit is not None:
                return name, unit
            cursor.prev()
        self._store.check(cursor)
        return None

    def _live(self, name: str) -> Unit | None:
        unit = self.unit(name)
        return None if unit is None or unit.state is UnitState.DELETED else unit

    # --- indexes ------------------------------------------------------------------------

    def units_of(self, broker: str) -> Iterator[tuple[str, Unit]]:
        needle = broker.encode()
        for group in groups_of(self._store, broker):
            if not group.endswith("/"):
                unit = self.unit(group)
                if unit is not None:
                    yield group, unit
                continue
            for key, value in self._store.rows(Family.UNITS, group.encode()):
                if needle in value:
                    name = key.decode()
                    entity = self._recent.get(name) or decode_entity(value)
                    if isinstance(entity, Unit) and broker in (entity.broker, entity.source):
                        yield name, entity

    def unit_count(self, broker: str) -> int:
        return self._counts.get(broker, 0)

    def unsettled(self) -> Iterator[tuple[str, Unit]]:
        for key, _ in self._store.rows(Family.UNSETTLED):
            name = key.decode()
            unit = self.unit(name)
            if unit is not None:
                yield name, unit

    def restless_topics(self) -> Iterator[str]:
        for key, _ in self._store.rows(Family.RESTLESS):
            yield key.decode()
