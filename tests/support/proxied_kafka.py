"""A Kafka that clients also reach through proxies, which make trouble when a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import HOST, Differences
from anabranch.devkit.ports import free_port
from support.produce_proxy import ProduceProxy
from support.tcp_proxy import TcpProxy


class ProxiedKafka(NamedTuple):
    """Clients of `advertised` come through `proxy` first, then through `appends`."""

    kafka: EmbeddedKafka
    proxy: TcpProxy
    appends: ProduceProxy

    @property
    def advertised(self) -> str:
        return f"{HOST}:{self.proxy.port}"


@contextmanager
def proxied_kafka(folder: Path, differences: Differences) -> Iterator[ProxiedKafka]:
    listens = free_port(HOST)
    with (
        ProduceProxy(listens) as appends,
        TcpProxy(appends.port) as proxy,
        EmbeddedKafka(
            folder, second_listener=(listens, proxy.port), differences=differences
        ) as kafka,
    ):
        yield ProxiedKafka(kafka, proxy, appends)
