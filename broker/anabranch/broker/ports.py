"""Ports of a node or a proxy, with TLS and without: held first of all, served once it is there."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

from anabranch.broker.http.server import HttpServer, bind
from anabranch.broker.metrics.shown import ShownValues
from anabranch.broker.security.handshakes import REFUSALS, UNDER_WAY_MAX, Handshakes
from anabranch.broker.security.tls import files_of, read_again
from anabranch.broker.settings.fields import SettingFields, camel
from anabranch.broker.settings.model import BINARY, BINARY_TLS, WEB, WEB_TLS
from anabranch.broker.settings.ports import PortFields, PortNames
from anabranch.broker.settings.tls import TlsFields
from anabranch.wire.server.server import WireServer
from anabranch.wire.supervised import kept_going

NODE_PORTS: Final = PortNames(WEB, WEB_TLS, BINARY, BINARY_TLS)
_SettingsT = TypeVar("_SettingsT", bound=SettingFields)


class HeldPorts(Generic[_SettingsT]):
    """Sockets that are bound and listen nowhere yet, by the fields of their ports' settings.

    `settings`: with the ports that were free where any would do.
    """

    def __init__(
        self, sockets: Mapping[str, socket.socket], settings: _SettingsT, names: PortNames
    ) -> None:
        self.sockets = sockets
        self.settings: _SettingsT = settings
        # Connections that may be there before they count as a port's own.
        with_tls = (names.web_tls, names.binary_tls)
        self.handshakes: Final = UNDER_WAY_MAX * sum(field in sockets for field in with_tls)


@contextlib.contextmanager
def hold_ports(
    settings: _SettingsT, names: PortNames, bind_address: str
) -> Iterator[HeldPorts[_SettingsT]]:
    """Binds every port that is on; frees them at the end. Raises StartError."""
    with contextlib.ExitStack() as stack:
        held = {
            field: stack.enter_context(bind(bind_address, port, camel(field)))
            for field in names
            if (port := getattr(settings, field)) is not None
        }
        # Others must be told the port that was free, not that any would do.
        found: dict[str, int] = {field: each.getsockname()[1] for field, each in held.items()}
        yield HeldPorts(held, settings.but(found), names)


class TlsPorts:
    """The ports with TLS, beside those without. Raises StartError."""

    def __init__(self, tls: TlsFields, limits: PortFields, names: PortNames) -> None:
        files = files_of(tls)
        self.context = read_again(files) if files is not None else None
        self.handshakes: list[Handshakes] = []
        self._limits = limits
        self._refresh_s = tls.tls_cert_refresh_check_duration_sec
        self._names = names
        self._following: asyncio.Task[None] | None = None

    def serve(
        self, sockets: Mapping[str, socket.socket], http: HttpServer, wire: WireServer
    ) -> None:
        """Accepts on the ports with TLS that are held, for servers that have started."""
        if self.context is None:
            return
        context = self.context
        web, binary = self._limits.http_limits, self._limits.wire_limits
        for field, made, seconds in (
            (self._names.web_tls, http.connection, web.request_s_max),
            (self._names.binary_tls, wire.peer, binary.handshake_s_max),
        ):
            if field in sockets:
                before = Handshakes(
                    camel(field),
                    lambda: context.current,
                    made,
                    seconds,
                )
                before.listen(sockets[field])
                self.handshakes.append(before)
        self._following = kept_going(lambda: context.follow(self._refresh_s), "certificates")

    async def stop(self) -> None:
        """Accepts no more."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        for each in self.handshakes:
            await each.stop()

    def measure(self, shown: ShownValues) -> None:
        """Registers the metrics of hand-shakes."""
        shown.totals(
            "anabranch_tls_refused",
            "Failed TLS hand-shakes of both ports.",
            "reason",
            self._refused,
        )

    def _refused(self) -> Mapping[str, int]:
        return {kind: sum(each.refused[kind] for each in self.handshakes) for kind in REFUSALS}
