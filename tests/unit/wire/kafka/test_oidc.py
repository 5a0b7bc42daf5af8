"""Tokens of OpenID Connect, and how Kafka is told of them."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from anabranch.access import kafka_tokens
from anabranch.devkit import ports
from anabranch.wire.kafka import oidc
from anabranch.wire.kafka.protocol import can_ask
from anabranch.wire.kafka.sasl import SaslError, conversation, said
from support.authority import Authority
from support.frame_broker import HOST
from support.waiting import await_

_PREFIX = "sasl.oauthbearer"


class Provider:
    """Gives tokens over HTTP."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.status = 200
        self.told: Any = {"access_token": "a.b-c_d~e+f/g==", "expires_in": 3_600}
        self.url = ""

    @contextmanager
    def listening(self) -> Iterator[None]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.asked.append((self.headers["Authorization"], body))
                told = provider.told
                data = told if isinstance(told, bytes) else json.dumps(told).encode()
                self.send_response(provider.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer((HOST, 0), Handler) as server:
            self.url = f"http://{HOST}:{server.server_port}/token?secret=pencil"
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setattr(oidc, "_kept", {})
    made = Provider()
    with made.listening():
        yield made


def kafka(url: str, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        f"{_PREFIX}.method": "oidc",
        f"{_PREFIX}.token.endpoint.url": url,
        f"{_PREFIX}.client.credentials.client.id": "me",
        f"{_PREFIX}.client.secret": "pencil",
        **more,
    }


def test_kafka_is_shown_a_token_that_is_kept_while_it_lasts(provider: Provider) -> None:
    given = kafka(
        provider.url, **{f"{_PREFIX}.scope": "one two", f"{_PREFIX}.extensions": "a=b, c=d"}
    )
    for _ in range(2):
        talk = conversation(given)
        assert said(talk) == b"n,,\x01auth=Bearer a.b-c_d~e+f/g==\x01a=b\x01c=d\x01\x01"
        assert said(talk, b"") is None
    asked = ("Basic bWU6cGVuY2ls", "grant_type=client_credentials&scope=one+two")
    assert provider.asked == [asked]


def test_a_token_that_kafka_does_not_take_is_not_kept(provider: Provider) -> None:
    given = kafka(provider.url)
    talk = conversation(given)
    assert said(talk) == b"n,,\x01auth=Bearer a.b-c_d~e+f/g==\x01\x01"
    assert said(talk, b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError, match="does not take the token"):
        said(talk, b"")
    refused = conversation(given)
    said(refused)
    refused.close()  # Kafka said so at once
    assert said(conversation(given)) is not None
    assert [body for _, body in provider.asked] == ["grant_type=client_credentials"] * 3


def test_a_token_of_which_nobody_says_how_long_it_lasts_is_not_kept(provider: Provider) -> None:
    provider.told = {"access_token": "abc"}
    for _ in range(2):
        assert oidc.token(kafka(provider.url)) == "abc"
    assert len(provider.asked) == 2


@pytest.mark.parametrize(
    ("status", "told", "why"),
    [
        (401, {"error": "invalid_client"}, r"answers 401 \(invalid_client\): correct"),
        (400, {"error": "it was pencil, wasn't it"}, "answers 400: correct"),
        (404, b"<html>pencil", "answers 404: correct"),
        (200, b"<html>pencil", "answers 200: correct"),
        (200, {"token": "abc"}, "gives no token"),
        (200, {"access_token": "abc\x01auth=Bearer pencil"}, "gives no token"),
        (200, {"access_token": 7}, "gives no token"),
    ],
)
def test_why_there_is_no_token_is_told_without_secrets(
    provider: Provider, status: int, told: Any, why: str
) -> None:
    provider.status, provider.told = status, told
    with pytest.raises(SaslError, match=why) as error:
        said(conversation(kafka(provider.url)))
    assert "pencil" not in str(error.value)


def test_a_function_of_the_user_may_give_the_token_and_is_asked_again_for_a_refused_one() -> None:
    numbers = itertools.count()

    def give() -> tuple[str, float, str, dict[str, str]]:
        return f"token-{next(numbers)}", time.time() + 900, "me", {"a": "b"}

    plain = {"security.protocol": "sasl_plaintext"}
    given = kafka_tokens.at(kafka_tokens.with_tokens(plain, give), "kafka:9092")
    assert can_ask(given)
    for _ in range(2):
        talk = conversation(given)
        assert said(talk) == b"n,,\x01auth=Bearer token-0\x01a=b\x01\x01"
        assert said(talk, b"") is None
    talk = conversation(given)
    said(talk)
    assert said(talk, b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError, match="does not take the token"):
        said(talk, b"")
    await_(lambda: given[kafka_tokens.OAUTH_CB]()[0] != "token-0")


def test_a_function_of_the_user_that_fails_may_come_to_itself() -> None:
    def give() -> tuple[str, float]:
        raise ValueError("the vault is shut")

    given = kafka_tokens.at(kafka_tokens.with_tokens({}, give), "kafka:9092")
    with pytest.raises(ConnectionError, match="give fails: ValueError: the vault is shut"):
        said(conversation(given))


def test_an_authority_of_ones_own_is_trusted_only_if_it_is_one(
    provider: Provider, tmp_path: Path
) -> None:
    file = tmp_path / "authority.pem"
    file.write_text("nothing")
    for name, value in (("location", str(file)), ("location", "/nowhere"), ("pem", "nothing")):
        with pytest.raises(SaslError, match="has no certificate in PEM"):
            said(conversation(kafka(provider.url, **{f"https.ca.{name}": value})))
    with_one = kafka(provider.url, **{"https.ca.location": str(Authority(tmp_path).file)})
    assert said(conversation(with_one)) is not None


def test_a_provider_that_fails_may_be_asked_again(provider: Provider) -> None:
    provider.status = 503
    with pytest.raises(ConnectionError, match="fails with 503"):
        oidc.token(kafka(provider.url))
    nobody = f"http://{HOST}:{ports.free_port(HOST)}/?pencil"
    with pytest.raises(ConnectionError, match=r"cannot be reached: ConnectError") as error:
        oidc.token(kafka(nobody))
    assert "pencil" not in str(error.value)
    for wrong in ("no address", "http://[::1"):
        with pytest.raises(oidc.TokenError, match="is no address"):
            oidc.token(kafka(wrong))
