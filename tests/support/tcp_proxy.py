"""A TCP proxy on threads of its own, which can hold back what a server says and cut connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from anabranch.devkit.ports import free_port

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 65_536


class TcpProxy:
    """Listens on `port` and passes everything on to `target`, a port of this machine, and back."""

    def __init__(self, target: int, port: int = 0) -> None:
        self._target = target
        self._listener = socket.create_server((_HOST, port))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._answers_flow = threading.Event()
        self._answers_flow.set()
        self._refusing = False
        self._guard = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="tcp-proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake a thread that waits in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self.let_answers_through()

    def hold_answers(self) -> None:
        """From now on requests arrive, but no answer comes back."""
        self._answers_flow.clear()

    def let_answers_through(self) -> None:
        self._answers_flow.set()

    def cut(self) -> None:
        """Ends all connections; answers that were held back are lost. New ones may be made."""
        with self._guard:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for side in pair:
                end(side)

    def refuse(self, refusing: bool) -> None:
        """Whether new connections are ended at once."""
        self._refusing = refusing

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusing:
                    client.close()
                    continue
                try:
                    server = socket.create_connection((_HOST, self._target))
                except OSError:
                    client.close()
                    continue
                self._join(client, server)

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._guard:
            self._pairs.append((client, server))
        threading.Thread(target=self._relay, args=(client, server), daemon=True).start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        back = (server, client, self._answers_flow)
        answers = threading.Thread(target=_pump, args=back, daemon=True)
        answers.start()
        _pump(client, server, None)
        answers.join()
        # Not before: a new one may get the number of a socket that a thread is about to read.
        client.close()
        server.close()


def _pump(source: socket.socket, sink: socket.socket, gate: threading.Event | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            if gate is not None:
                gate.wait()
            sink.sendall(data)
    for side in (source, sink):
        end(side)


def end(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)


class ProxiedKafka(NamedTuple):
    """Clients of `advertised` come through `proxy`."""

    kafka: EmbeddedKafka
    proxy: TcpProxy

    @property
    def advertised(self) -> str:
        return f"{_HOST}:{self.proxy.port}"


@contextlib.contextmanager
def proxied_kafka(folder: Path, differences: Differences) -> Iterator[ProxiedKafka]:
    listens = free_port(_HOST)
    with (
        TcpProxy(listens) as proxy,
        EmbeddedKafka(
            folder, second_listener=(listens, proxy.port), differences=differences
        ) as kafka,
    ):
        yield ProxiedKafka(kafka, proxy)
