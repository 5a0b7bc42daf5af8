"""Users that are taken away, and keys of a set: what was shown by them counts no more."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from support.memory_cluster import MemoryCluster
from support.secured import SecuredNode, answer_to, tokens_alone, users_file, with_secured
from support.tokens import jwk, key_set, token


@pytest.mark.parametrize("way", ["basic", "key set"])
def test_a_user_or_key_that_is_taken_away_ends_what_it_had_opened(way: str, tmp_path: Path) -> None:
    """On the binary port by the next look; over HTTP, where each request shows it, from then on."""
    keys, key = tmp_path / "keys.json", bytes(reversed(range(64)))
    kept, gone = jwk(bytes(64), "kept"), jwk(key, "gone")
    shown = "ada:word" if way == "basic" else token("ada", key=key, kid="gone")
    if way == "basic":
        users = users_file(tmp_path, ada="word", bob="word")
        settings = {"authenticationProviders": "token,basic", "basicAuthConf": users}
        header = f"Basic {base64.b64encode(shown.encode()).decode()}"
    else:
        keys.write_bytes(key_set(kept, gone))
        settings = {"tokenKeySet": str(keys)}
        header = f"Bearer {shown}"
    method = "basic" if way == "basic" else "token"

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        status = "/admin/v2/brokers/status"
        async with node.connect(method, shown.encode()) as client:
            hello = await client.answer()
            assert hello is not None
            assert hello.type == BaseCommand.CONNECTED
            assert (await node.ask("GET", status, header)).status_code == 200
            if way == "basic":
                users_file(tmp_path, bob="word")
            else:
                keys.write_bytes(key_set(kept))
            asked = await client.answer()
            assert asked is not None
            assert asked.type == BaseCommand.AUTH_CHALLENGE
            data = pb.AuthData(auth_method_name=method, auth_data=shown.encode())
            refused = await answer_to(client, pb.CommandAuthResponse(response=data))
            assert refused is not None
            assert refused.error.error == ServerError.AuthenticationError
            assert await client.answer() is None
        assert (await node.ask("GET", status, header)).status_code == 401

    more: dict[str, object] = {**settings, "authenticationFilesCheckSeconds": 0.1}
    with_secured(test, **tokens_alone(tmp_path, **more))
