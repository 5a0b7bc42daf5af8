"""TLS in front of a port: the hand-shake, before anything of the port's own begins.

A connection takes the TLS of the moment in which it comes. So a new certificate needs no new port
and disturbs no client. A hand-shake has a time by which it must be done. If there are too many, the
one that has taken longest gives way.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from anabranch.access.tls import openssl_words
from anabranch.broker.logging import get_logger
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire import clock
from anabranch.wire.shared_reads import SharedReads
from anabranch.wire.supervised import kept_going, supervised

UNDER_WAY_MAX: Final = 256  # hand-shakes of one port at once
REFUSALS: Final = ("connections", "descriptors", "gone", "handshake", "time")
_BACKLOG: Final = 1024
_SILENT_S: Final = 10.0  # after one of a kind was logged
_FULL_S: Final = 1.0  # between two tries to accept, with no descriptor left

_log = get_logger()
_Shaking = asyncio.Task[None]


class Handshakes:
    """The hand-shakes of one port, which is named as in the settings.

    `context`: the TLS as it is now. `made`: makes the protocol that serves a connection, once it is
    secured. `seconds_max`: the longest duration of a hand-shake.
    """

    def __init__(
        self,
        port: str,
        context: Callable[[], ssl.SSLContext],
        made: Callable[[], asyncio.Protocol],
        seconds_max: float,
    ) -> None:
        self.refused: dict[str, int] = dict.fromkeys(REFUSALS, 0)
        self._port = port
        self._context = context
        self._made = made
        self._seconds_max = seconds_max
        self._under_way: dict[_Shaking, None] = {}  # longest first
        self._waiting: dict[_Shaking, socket.socket] = {}  # of those that have not begun
        self._logged = LogRateLimit(_SILENT_S)
        self._accepting: asyncio.Task[None] | None = None

    def listen(self, held: socket.socket) -> None:
        """Accepts on a bound socket from now on; its owner closes it, after the stop."""
        held.listen(_BACKLOG)
        held.setblocking(False)
        self._accepting = kept_going(lambda: self._accept(held), f"accept {self._port}")

    async def stop(self) -> None:
        """Accepts no more, and breaks off hand-shakes under way; connected clients stay so."""
        tasks = [*self._under_way, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._accepting = None

    async def _accept(self, held: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, name = await loop.sock_accept(held)
            except ConnectionError:
                continue  # it was gone before it was looked at
            except OSError as error:
                self._note("descriptors", "?", str(error.strerror))
                await asyncio.sleep(_FULL_S)
                continue
            self._begin(accepted, f"{name[0]}:{name[1]}")

    def _begin(self, accepted: socket.socket, peer: str) -> None:
        task = supervised(self._shake(peer), "hand-shake")
        self._under_way[task] = None
        self._waiting[task] = accepted
        task.add_done_callback(self._over)
        if len(self._under_way) > UNDER_WAY_MAX:
            longest = next(iter(self._under_way))
            del self._under_way[longest]  # more may come before it is over
            longest.cancel()
            self._note("connections", peer, "there are too many under way")

    def _over(self, task: _Shaking) -> None:
        self._under_way.pop(task, None)
        accepted = self._waiting.pop(task, None)
        if accepted is not None:
            accepted.close()

    async def _shake(self, peer: str) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is None:
            raise RuntimeError("a hand-shake is a task of its own")
        accepted = self._waiting.pop(task)
        seconds = self._seconds_max
        try:
            async with asyncio.timeout(seconds):
                await loop.connect_accepted_socket(
                    lambda: SharedReads(self._made()),
                    accepted,
                    ssl=self._context(),
                    ssl_handshake_timeout=2 * seconds,  # ours comes first, and says so
                )
        except TimeoutError:
            self._note("time", peer, f"its hand-shake was not done within {seconds:g} s")
        except ssl.SSLError as error:
            self._note("handshake", peer, _said(error))
        except OSError as error:
            self._note("gone", peer, str(error) or "it went away")

    def _note(self, kind: str, peer: str, why: str) -> None:
        """Counts a hand-shake that failed, or was ended, and logs one of each kind in a while."""
        count = self.refused[kind] = self.refused[kind] + 1
        if self._logged.due(kind, clock.now()):
            _log.info("tls.refused", port=self._port, peer=peer, reason=kind, why=why, count=count)


def _said(error: ssl.SSLError) -> str:
    """Returns OpenSSL's word on the error, and the reason if a certificate is not trusted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return openssl_words(error)
