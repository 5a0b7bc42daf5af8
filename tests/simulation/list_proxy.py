"""A proxy before the nodes of a simulated cluster: the product's own server, sessions and links, on
an event loop in simulated time. Its HTTP is not simulated: which nodes there are, its settings say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.broker.proxy.addresses import ProxyAddresses
from anabranch.broker.proxy.clients.server import ProxyServer, client_limits
from anabranch.broker.proxy.counts import ProxyCounts
from anabranch.broker.proxy.lists.shared import SharedLists
from anabranch.broker.proxy.nodes.known import KnownNodes
from anabranch.broker.proxy.parts import SharedParts
from anabranch.broker.settings.proxy import load_proxy_settings
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter
from simulation.list_clients import Follower, ListClient, Lister, Mute
from simulation.list_host import WIRE_LIMITS, scaled
from simulation.list_plan import SELECTIONS

if TYPE_CHECKING:
    from simulation.list_world import ListWorld

PROXY = "proxy"
PORT = 6650
MEMORY = 40  # of each kind; a question alone takes 10


class ListProxy(ListClient):
    """To nodes a client like others, to its clients a node."""

    name = PROXY
    server: ProxyServer
    limiter: AsyncDualMemoryLimiter

    def __init__(self, world: ListWorld, number: int) -> None:
        super().__init__(world, number)
        self.address = PROXY

    def __repr__(self) -> str:
        return f"{self.name}#{self.life}"

    @property
    def paused(self) -> bool:
        """Whether it does nothing for now."""
        return self._stop.is_on

    def crash(self) -> None:
        """Its process ends, and with it all connections on either side."""
        super().crash()
        self._world.process_ended(self)

    def begin(self) -> None:
        own: dict[str, object] = {
            "brokerServiceURL": self._world.url,
            "advertisedAddress": PROXY,
            "maxTopicListInFlightHeapMemSizeMB": MEMORY,
            "maxTopicListInFlightDirectMemSizeMB": MEMORY,
        }
        settings = load_proxy_settings(None, {}, own)
        self.limiter = AsyncDualMemoryLimiter(scaled(settings.topic_list_limits))
        self.lists = SharedLists(self.limiter)
        shared = SharedParts(
            KnownNodes(settings, self.local_now),
            ProxyAddresses(settings.web_url, settings.service_url),
            self.limiter,
            self.lists,
            ProxyCounts(),
            security=None,
        )
        self.server = ProxyServer(shared, "simulated", client_limits(WIRE_LIMITS))


def behind_proxy(
    world: ListWorld, numbers: Iterator[int]
) -> tuple[ListProxy, list[Follower], list[ListClient]]:
    """One proxy, the followers behind it, and the others there."""
    plan, proxy = world.plan, ListProxy(world, next(numbers))
    url = f"pulsar://{PROXY}:{PORT}"
    followers = [
        # Those by properties come first.
        Follower(world, next(numbers), SELECTIONS[-1 - each % len(SELECTIONS)], url)
        for each in range(plan.proxied)
    ]
    others: list[ListClient] = [
        *(Lister(world, next(numbers)) for _ in range(plan.listers)),
        *(Mute(world, next(numbers)) for _ in range(min(1, plan.mute))),
    ]
    for client in (*followers, *others):
        client.is_proxied = True
    return proxy, followers, others
