"""The errors between a client and a node. Each message names the thing and the remedy."""

from __future__ import annotations

from anabranch.core.errors import AnabranchError
from anabranch.wire.anabranch_pb2 import ServerError


class WireError(AnabranchError):
    """The base class of all errors of the binary protocol."""


class FrameError(WireError):
    """Bytes that are no frame of this protocol, or a command that does not fit into one."""


class FrameSizeError(FrameError):
    """A frame that claims to be larger than the receiver takes."""


class ExcessError(WireError):
    """A client's command was not parsed, because it has more in it than a node takes.

    `head` is the part of it that tells its request.
    """

    def __init__(self, reason: str, head: bytes) -> None:
        super().__init__(reason)
        self.head = head


class ConnectError(WireError):
    """No connection came about: no answer came, or the other side speaks something else."""


class TlsError(ConnectError):
    """TLS with that server failed: its certificate is wrong, or it asks for another one of the
    client.
    """


class TurnedAwayError(ConnectError):
    """The node takes no connection of this client just now: it has too many, or cannot check the
    client's identity yet. `code` is the node's own.
    """

    def __init__(self, code: ServerError, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class AuthenticationError(WireError):
    """The node does not accept the client's credentials, or asks for some."""


class ConnectionLostError(WireError):
    """The connection ended. It is not known if a request under way was carried out."""


class RequestTimeoutError(WireError):
    """No answer came in time. It is not known if the request was carried out."""


class RefusedError(WireError):
    """The node answered that it does not do this.

    A client's request raises it. A node's handler raises it to give that answer.
    """

    def __init__(self, code: ServerError, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
