"""Lists of topics, and their changes, as the payloads of the protocol's answers.

A payload is made once for all clients that are told the same at the same generation of a list. It
is kept for those that ask later, as long as there is room.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from typing import Final

from anabranch.broker.topics.kept_list import KeptList
from anabranch.core.names import Namespace
from anabranch.core.topic_lists.selection import Selection
from anabranch.core.topic_lists.sorted_names import names_of
from anabranch.core.topic_lists.topic_list import Difference
from anabranch.wire.anabranch_pb2 import (
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchScalableTopicsUpdate,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
    ScalableTopicsDiff,
    ScalableTopicsSnapshot,
)
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter
from anabranch.wire.memory.shared import SharedPayload
from anabranch.wire.varint import nested

_KEPT_MAX: Final = 256
_IDLE_BYTES_MAX: Final = 16 << 20  # of all that nobody is sent at the moment
_PIECES_AT_ONCE: Final = 4  # before others have their turn


class Form(Enum):
    """The answer that carries the names."""

    RESPONSE = auto()  # 33
    SUCCESS = auto()  # 65
    UPDATE = auto()  # 66
    SNAPSHOT = auto()  # 77
    DIFF = auto()  # 77


_Encode = Callable[[list[str]], bytes]
_NAMES: Final[dict[Form, _Encode]] = {
    Form.RESPONSE: lambda names: CommandGetTopicsOfNamespaceResponse(
        topics=names
    ).SerializePartialToString(),
    Form.SUCCESS: lambda names: CommandWatchTopicListSuccess(
        topic=names
    ).SerializePartialToString(),
    Form.SNAPSHOT: lambda names: ScalableTopicsSnapshot(topics=names).SerializeToString(),
}

_Key = tuple[Namespace, Selection, Form, int]


class Payloads:
    """The payloads of one node's lists, for use in its event loop."""

    def __init__(self, limiter: AsyncDualMemoryLimiter) -> None:
        self._limiter = limiter
        self._known: OrderedDict[_Key, tuple[KeptList, int, SharedPayload]] = OrderedDict()
        # The payload that was sent last stands at the end.
        self._idle: OrderedDict[SharedPayload, int] = OrderedDict()
        self.idle_bytes = 0

    def names(self, kept: KeptList, form: Form) -> SharedPayload:
        """All names, as they are at this moment."""
        pieces = kept.list.names.pieces
        return self._shared(
            (kept.home, kept.selection, form, -1),
            kept,
            kept.list.names.names_bytes,
            lambda: _encoded(pieces, form),
        )

    def difference(
        self, kept: KeptList, since: int, difference: Difference, form: Form
    ) -> SharedPayload:
        """Returns the changes of a list since that generation."""

        async def make() -> bytes:
            return _changes(difference, form)

        size = sum(map(len, difference.added)) + sum(map(len, difference.removed))
        return self._shared((kept.home, kept.selection, form, since), kept, size, make)

    def _shared(
        self, key: _Key, kept: KeptList, size: int, make: Callable[[], Awaitable[bytes]]
    ) -> SharedPayload:
        known = self._known.get(key)
        if known is not None and known[0] is kept and known[1] == kept.list.generation:
            self._known.move_to_end(key)
            return known[2]
        payload = SharedPayload(self._limiter, size, make, partial(self._keep, key))
        self._known[key] = (kept, kept.list.generation, payload)
        self._known.move_to_end(key)
        if known is not None:
            self._forget(known[2])
        while len(self._known) > _KEPT_MAX:
            _, (_, _, oldest) = self._known.popitem(last=False)
            self._forget(oldest)
        return payload

    def _keep(self, key: _Key, payload: SharedPayload, size: int) -> bool:
        """Returns whether the next client that asks finds the payload; if so, the oldest make room
        for it.
        """
        self.idle_bytes -= self._idle.pop(payload, 0)
        known = self._known.get(key)
        if size > _IDLE_BYTES_MAX or known is None or known[2] is not payload:
            return False
        self._idle[payload] = size
        self.idle_bytes += size
        while self.idle_bytes > _IDLE_BYTES_MAX:
            self._forget(next(iter(self._idle)))
        return True

    def _forget(self, payload: SharedPayload) -> None:
        self.idle_bytes -= self._idle.pop(payload, 0)
        payload.forget()


async def _encoded(pieces: tuple[bytes, ...], form: Form) -> bytes:
    encode = _NAMES[form]
    parts: list[bytes] = []
    for number, piece in enumerate(pieces):
        if number % _PIECES_AT_ONCE == _PIECES_AT_ONCE - 1:
            await asyncio.sleep(0)
        parts.append(encode(names_of(piece)))
    encoded = b"".join(parts)
    if form is Form.SNAPSHOT:
        field = CommandWatchScalableTopicsUpdate.SNAPSHOT_FIELD_NUMBER
        return nested(field, encoded)
    return encoded


def _changes(difference: Difference, form: Form) -> bytes:
    if form is Form.UPDATE:
        return CommandWatchTopicUpdate(
            new_topics=difference.added,
            deleted_topics=difference.removed,
            topics_hash=difference.topics_hash,
        ).SerializePartialToString()
    return CommandWatchScalableTopicsUpdate(
        diff=ScalableTopicsDiff(added=difference.added, removed=difference.removed)
    ).SerializePartialToString()
