"""A node's ports, with TLS and without: held first of all, served once the node is there."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from anabranch.broker.http.server import HttpServer, bind
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.security.handshakes import REFUSALS, UNDER_WAY_MAX, Handshakes
from anabranch.broker.security.tls import files_of, read_again
from anabranch.broker.settings import Settings
from anabranch.broker.settings.model import BINARY_TLS, PORTS, WEB_TLS, name_of
from anabranch.wire.server import WireServer

_BINARY_PORTS: Final = PORTS[2:]


class HeldPorts(msgspec.Struct, frozen=True):
    """Sockets that are bound and listen nowhere yet, by the fields of their ports' settings."""

    sockets: Mapping[str, socket.socket]
    settings: Settings  # with the ports that were free where any would do

    @property
    def handshakes(self) -> int:
        """Connections that may be there before they count as a port's own."""
        return UNDER_WAY_MAX * sum(field in self.sockets for field in PORTS[1::2])


@contextlib.contextmanager
def hold_ports(settings: Settings) -> Iterator[HeldPorts]:
    """Binds every port that is on; frees them at the end. Raises StartError."""
    with contextlib.ExitStack() as stack:
        held = {
            field: stack.enter_context(bind(settings.bind_address, port, name_of(field)))
            for field in PORTS
            if (port := getattr(settings, field)) is not None
        }
        # Others must be told the port that was free, not that any would do.
        found: dict[str, int] = {
            field: held[field].getsockname()[1] for field in _BINARY_PORTS if field in held
        }
        yield HeldPorts(held, settings.model_copy(update=found))


class TlsPorts:
    """The ports with TLS, beside those without. Raises StartError."""

    def __init__(self, settings: Settings) -> None:
        files = files_of(settings)
        self.context = read_again(files) if files is not None else None
        self.handshakes: list[Handshakes] = []
        self._settings = settings
        self._following: asyncio.Task[None] | None = None

    def serve(
        self, sockets: Mapping[str, socket.socket], http: HttpServer, wire: WireServer
    ) -> None:
        """Accepts on the ports with TLS that are held, for servers that have started."""
        if self.context is None:
            return
        context = self.context
        web, binary = self._settings.http_limits, self._settings.wire_limits
        for field, made, seconds, per_ip in (
            (WEB_TLS, http.connection, web.request_s_max, web.connections_per_ip_max),
            (
                *(BINARY_TLS, wire.peer),
                *(binary.handshake_s_max, binary.account.connections_per_ip),
            ),
        ):
            if field in sockets:
                before = Handshakes(
                    name_of(field), lambda: context.current, made, seconds, per_ip, web.exempt
                )
                before.listen(sockets[field])
                self.handshakes.append(before)
        period_s = self._settings.tls_cert_refresh_check_duration_sec
        self._following = asyncio.create_task(context.follow(period_s), name="certificates")

    async def stop(self) -> None:
        """Accepts no more."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        for each in self.handshakes:
            await each.stop()

    def measure(self, metrics: Metrics) -> None:
        """Registers what is counted of hand-shakes."""
        metrics.totals(
            "anabranch_tls_refused",
            "TLS hand-shakes of both ports that came to nothing.",
            "reason",
            self._refused,
        )

    def _refused(self) -> Mapping[str, int]:
        return {kind: sum(each.refused[kind] for each in self.handshakes) for kind in REFUSALS}
