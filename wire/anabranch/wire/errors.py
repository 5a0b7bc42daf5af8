"""What can go wrong between a client and a node; each message names the thing and the remedy."""

from __future__ import annotations

from anabranch.core.errors import AnabranchError
from anabranch.wire.anabranch_pb2 import ServerError


class WireError(AnabranchError):
    """Root of the errors of the binary protocol."""


class FrameError(WireError):
    """Bytes that are no frame of this protocol, or a command that does not fit into one."""


class FrameSizeError(FrameError):
    """A frame that says it is larger than what is taken."""


class ExcessError(WireError):
    """A client's command with more in it than is taken, which is why it was not parsed.

    `head`: as much of it as says which request that is.
    """

    def __init__(self, reason: str, head: bytes) -> None:
        super().__init__(reason)
        self.head = head


class ConnectError(WireError):
    """No connection came about: nobody answers there, or what answers speaks something else."""


class TlsError(ConnectError):
    """No TLS with that server: it is not who it should be, or asks for another certificate."""


class TurnedAwayError(ConnectError):
    """The node is there, and takes no connection of whoever asks just now: there are too many, or
    it cannot tell yet who they are. `code`: the node's own.
    """

    def __init__(self, code: ServerError, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class AuthenticationError(WireError):
    """The node does not take what was shown of who asks, or that nothing was."""


class ConnectionLostError(WireError):
    """The connection ended; whether a request under way was carried out is not known."""


class RequestTimeoutError(WireError):
    """No answer in time; whether the request was carried out is not known."""


class RefusedError(WireError):
    """The node's own answer is that it does not do this.

    Raised by a client's request; a node's handler raises it to give that answer.
    """

    def __init__(self, code: ServerError, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
