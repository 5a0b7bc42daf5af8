"""Requests to another node, which alone can do them: they create a topic that it would control.

The node shows its credentials, and names the principal that it asks for. So the other node judges
that principal's right.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit

from anabranch.broker.errors import ElsewhereError, OperationError, UnavailableError
from anabranch.broker.logging import get_logger
from anabranch.broker.node_http import NodeHttp, NodeRequest, reason_in
from anabranch.broker.requester import principal
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.core.names import full_name

_CONNECT_S_MAX: Final = 5.0
_CONFLICT: Final = 409  # it is there
_REDIRECTS: Final = (307, 308)

_log = get_logger()


class OtherNodes:
    """For use in the node's event loop."""

    def __init__(self, access: OutgoingAccess) -> None:
        self._access = access

    async def create_topic(self, name: str, at: ElsewhereError, timeout_s: float) -> None:
        """Creates the topic at the node that would control it, unless it is there.

        It uses TLS if that node has it. Raises UnavailableError.
        """
        where = urlsplit(at.web_url_tls or at.web_url)
        shown = self._access.credentials
        if shown is not None and where.scheme != "https":
            _log.warning(
                "security.not_encrypted",
                methods=shown.method,
                why=f"node {where.netloc} is asked without TLS: a listener can take the "
                "credentials",
                remedy="set webServicePortTls on every node",
            )
        await self._access.look()  # nothing else does
        http = NodeHttp(_CONNECT_S_MAX, timeout_s, self._access, is_tls=where.scheme == "https")
        path = f"/admin/v2/scalable/{quote(name)}"
        asked = NodeRequest("PUT", path.encode(), asker=principal())
        try:
            answer = await http.ask(where.netloc, asked)
            body = await http.whole(answer)
        except OperationError as error:
            raise _not_made(name, error.reason) from None
        finally:
            http.close()
        if answer.status in _REDIRECTS:
            raise _not_made(name, f"node {where.netloc} does not control it any more")
        if answer.status >= 400 and answer.status != _CONFLICT:
            raise _not_made(name, f"node {where.netloc} says: {reason_in(body)}")


def _not_made(name: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"the topic for the dead letters, {full_name(name)}, was not created: {why}; try again, or "
        "create it first"
    )
