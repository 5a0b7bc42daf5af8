"""`ListServing`: the part of topic lists that all clients of a node share."""

from __future__ import annotations

import msgspec

from anabranch.broker.binary.list_payloads import Payloads
from anabranch.broker.binary.pace import PushPace
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.lists import TopicLists
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter


class ListServing(msgspec.Struct, frozen=True):
    """One node's, for use in its event loop."""

    access: TopicAccess
    lists: TopicLists
    limiter: AsyncDualMemoryLimiter
    payloads: Payloads
    pace: PushPace
    guard: AccessGuard | None  # ends watches whose right is gone; None: of none
