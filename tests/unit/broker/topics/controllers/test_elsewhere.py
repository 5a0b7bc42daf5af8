"""What a node shows another one that it asks for something."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.broker.errors import ElsewhereError, UnavailableError
from anabranch.broker.http.server import bind
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.settings import load_settings
from anabranch.broker.topics.controllers.elsewhere import OtherNodes
from support.tokens import token
from support.wire import HOST


@pytest.mark.parametrize(("scheme", "is_told"), [("http", True), ("https", False)])
def test_a_token_that_goes_in_plain_is_told(tmp_path: Path, scheme: str, is_told: bool) -> None:
    file = tmp_path / "node.token"
    file.write_text(token("node"))
    settings = {
        "brokerClientAuthenticationPlugin": "token",
        "brokerClientAuthenticationParameters": str(file),
    }
    with bind(HOST, 0) as held:
        url = f"{scheme}://{HOST}:{held.getsockname()[1]}"  # where nobody answers

    async def test() -> None:
        others = OtherNodes(OutgoingAccess(load_settings(None, {}, settings), 10.0))
        web, web_tls = (url, "") if scheme == "http" else ("", url)
        with pytest.raises(UnavailableError, match="was not created"):
            await others.create_topic("acme/shop/dead", ElsewhereError("there", web, web_tls), 5.0)

    with capture_logs() as logged:
        asyncio.run(test())
    assert bool([line for line in logged if line["event"] == "security.not_encrypted"]) is is_told
    assert token("node") not in str(logged)
