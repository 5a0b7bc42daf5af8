"""`SharedParts`: what all clients of a proxy share, whichever port they come by."""

from __future__ import annotations

import msgspec

from anabranch.broker.proxy.addresses import ProxyAddresses
from anabranch.broker.proxy.counts import ProxyCounts
from anabranch.broker.proxy.lists.shared import SharedLists
from anabranch.broker.proxy.nodes.known import KnownNodes
from anabranch.broker.proxy.security import ProxySecurity
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter


class SharedParts(msgspec.Struct, frozen=True):
    """Of one proxy."""

    nodes: KnownNodes
    addresses: ProxyAddresses
    limiter: AsyncDualMemoryLimiter
    lists: SharedLists
    counts: ProxyCounts
    security: ProxySecurity | None  # None: nobody has to say who they are
