"""Uvicorn inside the node's own event loop, on a socket that was bound before anything started."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp

from anabranch.broker.errors import StartError
from anabranch.broker.http.guards.connections import NOSNIFF, BoundedConnection, Connections
from anabranch.broker.settings.ports import DEFAULT_HTTP_LIMITS, HttpLimits

_BACKLOG: Final = 2048
_STOP_SECONDS_MAX: Final = 5


def bind(host: str, port: int, setting: str = "webServicePort") -> socket.socket:
    """A socket that listens nowhere yet but holds the port. Raises StartError.

    The error names the setting that the port is from.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((host, port))
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            why = f"it is in use. Stop what listens there, or choose another {setting}"
        else:
            why = f"{error.strerror}. Correct bindAddress or {setting}"
        raise StartError(f"port {port} of {host} cannot be listened on: {why}") from error
    return held


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the node's affair: it hands its bundles over while it still answers."""
        yield


class HttpServer:
    """Serves an application on a bound socket, or none at first, until it is stopped."""

    def __init__(
        self,
        app: ASGIApp,
        held: socket.socket | None,
        limits: HttpLimits = DEFAULT_HTTP_LIMITS,
    ) -> None:
        self.connections = Connections(app, limits)
        config = uvicorn.Config(
            self.connections,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="error",  # `Connections` notes refusals, and logs them now and then
            proxy_headers=False,  # anybody could say that they are somebody else
            server_header=False,
            date_header=False,
            headers=[(NOSNIFF[0].decode(), NOSNIFF[1].decode())],
            timeout_graceful_shutdown=_STOP_SECONDS_MAX,
        )
        self._server = _Server(config)
        self._config = config
        self._held = held
        self._listener: asyncio.Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns once requests are accepted."""
        self._task = asyncio.create_task(self._server.serve([]), name="http")
        accepting = asyncio.create_task(self._server.accepting.wait())
        await asyncio.wait((accepting, self._task), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            accepting.cancel()
            await self._task  # it failed, and says why
        if self._held is not None:
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(
                self.connection, sock=self._held, backlog=_BACKLOG
            )

    def connection(self) -> asyncio.Protocol:
        """Makes what serves a connection that others have accepted; after the start."""
        make = cast(Any, self._config.http_protocol_class)
        server = self._server
        served: asyncio.Protocol = make(
            config=self._config, server_state=server.server_state, app_state=server.lifespan.state
        )
        return BoundedConnection(self.connections, served)

    async def stop(self) -> None:
        """Ends after the requests under way, at the latest after a few seconds."""
        if self._task is None:
            return
        if self._listener is not None:
            self._listener.close()
        self._server.should_exit = True
        await self._task
        self._task = None
