"""A secured cluster under traffic, whose certificates, keys and tokens are replaced on disk.

Two nodes and a proxy as processes. Their clients: one asks the nodes and one the proxy, and each
has a producer and a consumer of the same topic.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from anabranch.access import Tls, Token
from anabranch.client import Client, Message
from anabranch.devkit.ports import free_port
from support import secured_proxy
from support.authority import Authority, Issued
from support.kafka_cluster import KafkaCluster
from support.node_process import NodeProcess, node_process
from support.proxy_process import ProxyProcess, proxy_process
from support.tokens import token
from support.topic_cluster import Servers
from support.traffic import Traffic, wrong
from support.waiting import WAIT_S, until
from support.wire import HOST, hang_up

SECRETS: Final = {
    "people": secured_proxy.PEOPLE,
    "proxies": secured_proxy.PROXIES,
    "later": b"l" * 64,
}
_TOPIC: Final = "topic://acme/shop/orders"
_OPEN: Final = "brokerServicePort", "webServicePortTls", "brokerServicePortTls"


def signed(role: str, kid: str) -> str:
    """A role's token by one of the keys."""
    return token(role, SECRETS[kid], kid=kid)


class Rotating:
    """The running cluster, and its files."""

    def __init__(
        self, around: secured_proxy.Surroundings, nodes: list[NodeProcess], proxy: ProxyProcess
    ) -> None:
        self.around = around
        self.nodes = nodes
        self.proxy = proxy
        self.ports: dict[str, int] = {}  # all of those with TLS
        self.binary: dict[str, int] = {}  # of those, the binary ones

    @property
    def texts(self) -> list[str]:
        """What each process has logged."""
        return [*(node.text() for node in self.nodes), self.proxy.text()]

    def told(self, *words: str) -> list[int]:
        """How many lines of each process have all of these words."""
        return [
            sum(all(word in line for word in words) for line in text.splitlines())
            for text in self.texts
        ]

    async def until_told(self, before: list[int], *words: str) -> None:
        """Returns once every process has one more such line than before."""
        await until(lambda: all(a > b for a, b in zip(self.told(*words), before, strict=True)))

    def put(self, issued: Issued) -> None:
        """Nodes and proxy have this certificate from now on, and its key.

        The two are not replaced at the same instant.
        """
        _replace(self.around.server.certificate, issued.certificate.read_bytes())
        _replace(self.around.server.key, issued.key.read_bytes())

    @property
    def url(self) -> str:
        """Of the nodes, for clients."""
        ports = [port for name, port in self.binary.items() if name != "proxy"]
        return "pulsar+ssl://" + ",".join(f"{HOST}:{port}" for port in ports)

    async def ask(
        self, method: str, path: str, role: str = secured_proxy.ROOT, json: object = None
    ) -> httpx.Response:
        """Asks the proxy over HTTP."""
        headers = {"Authorization": f"Bearer {signed(role, 'people')}"} if role else {}
        async with httpx.AsyncClient(verify=self.around.authority.client(), timeout=WAIT_S) as http:
            url = f"{self.proxy.web_url_tls}{path}"
            return await http.request(method, url, headers=headers, json=json)

    async def furnish(self) -> None:
        """Makes the topic, which the reader may produce to, too."""
        await secured_proxy.furnished(self.ask)
        rights = f"{secured_proxy.ADMIN}/namespaces/acme/shop/permissions/{secured_proxy.READER}"
        answer = await self.ask("POST", rights, secured_proxy.BOSS, ["produce", "consume"])
        assert answer.status_code == 204, answer.text

    def trust(self, *authorities: Authority) -> None:
        """Proxy and nodes, who ask nodes, and the test itself trust these from now on."""
        own = self.around.authority.file
        _replace(own, b"".join({each.file: each.pem for each in authorities}.values()))

    async def shown_by(self, port: int) -> bytes:
        """The certificate that a new connection to a port is shown."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection(HOST, port, ssl=context)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        await hang_up(writer)
        assert isinstance(found, bytes)
        return found


def _replace(file: Path, content: bytes) -> None:
    """As whoever is careful does: a reader finds the one or the other."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_bytes(content)
    beside.replace(file)


@contextmanager
def rotating(kafka: Servers, prefix: str, folder: Path) -> Iterator[Rotating]:
    """The processes, while the block runs; each looks at its files all the time."""
    around = secured_proxy.Surroundings(folder)
    eager = {"tlsCertRefreshCheckDurationSec": 0.1}
    cluster = KafkaCluster(kafka, prefix, folder)
    settings = [
        cluster.settings(**around.of_nodes, **eager, **{name: free_port(HOST) for name in _OPEN})
        for _ in range(2)
    ]
    own: dict[str, object] = {
        **around.asking,
        **around.showing,
        **eager,
        "brokerListRefreshSeconds": 0.1,
        "webServicePortTls": 0,
        "servicePortTls": 0,
    }
    given = [f"{name}={str(told).lower() if told is True else told}" for name, told in own.items()]
    with ExitStack() as stack:
        nodes = [stack.enter_context(node_process(each)) for each in settings]
        named = [f"{HOST}:{each.web_service_port_tls}" for each in settings]
        proxy = stack.enter_context(proxy_process("proxy", named, folder, given, "https"))
        found = Rotating(around, nodes, proxy)
        found.binary = {
            **{f"node-{n}": each.broker_service_port_tls or 0 for n, each in enumerate(settings)},
            "proxy": urlsplit(proxy.service_url_tls).port or 0,
        }
        found.ports = {
            **found.binary,
            **{f"web-{n}": each.web_service_port_tls or 0 for n, each in enumerate(settings)},
            "web-proxy": urlsplit(proxy.web_url_tls).port or 0,
        }
        yield found


class Follower:
    """Reads all messages of a topic in order, and keeps them."""

    def __init__(self, client: Client, subscription: str) -> None:
        self.found: dict[bytes, list[bytes]] = defaultdict(list)
        self.count = 0
        self._client = client
        self._subscription = subscription
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with await self._client.subscribe(_TOPIC, self._subscription) as consumer:
            async for message in consumer:
                self._take(message)
                consumer.acknowledge(message)

    def _take(self, message: Message) -> None:
        self.found[message.key].append(message.value)
        self.count += 1

    async def has_more(self, count: int) -> None:
        """Returns when so many more have come. Raises what the consumer ended with."""
        wanted = self.count + count
        await until(lambda: self.count >= wanted or self.task.done())
        if self.task.done():
            self.task.result()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Clients:
    """Two clients' producers and consumers, all at work."""

    def __init__(self, traffic: list[Traffic], followers: list[Follower]) -> None:
        self._traffic = traffic
        self._followers = followers

    async def go_on(self, count: int = 100) -> None:
        """Returns when each consumer has got so many more messages."""
        await asyncio.gather(*(each.has_more(count) for each in self._followers))

    async def all_is_right(self, *others: Follower) -> None:
        """Ends the producers: every consumer gets each of their messages, once and in order."""
        sent: dict[bytes, list[bytes]] = {}
        for each in self._traffic:
            sent |= await each.stop()
        total = sum(map(len, sent.values()))
        for follower in (*self._followers, *others):
            await follower.has_more(total - follower.count)
            assert wrong(follower.found, sent) == []


@asynccontextmanager
async def clients_of(
    running: Rotating, trusted: Path, shown: Mapping[str, Token]
) -> AsyncIterator[Clients]:
    """`shown`: the credentials of who asks the nodes, "direct", and of who asks the proxy."""
    urls = {"direct": running.url, "proxied": running.proxy.service_url_tls}
    async with AsyncExitStack() as stack:
        traffic, followers = [], []
        for name, url in urls.items():
            made = Client(url, tls=Tls(ca_file=trusted), credentials=shown[name])
            client = await stack.enter_async_context(made)
            producer = await client.create_producer(_TOPIC, linger_ms=0)
            keys = [f"{name}-{number}".encode() for number in range(8)]
            traffic.append(Traffic(producer, keys, pause_s=0.05))
            followers.append(Follower(client, name))
        try:
            yield Clients(traffic, followers)
        finally:
            for follower in followers:
                await follower.stop()
            for each in traffic:
                await each.stop()
