"""What a client makes of its tokens for Kafka, and of a Kafka that does not take them."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from anabranch import client as sdk
from anabranch.access import kafka_tokens
from anabranch.access.errors import CredentialsError
from anabranch.access.kafka_tokens import OAUTH_CB, TokenCache
from anabranch.client import _kafka_options, sync
from anabranch.client._consumer.reads import ReadTrouble
from anabranch.client._kafka_options import WITHOUT_TOKEN, made
from anabranch.core.errors import InvalidInputError

URL = "pulsar://127.0.0.1:1"
SECRET = "abc.def"
OIDC = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
}
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: invalid_token")
UNSAID = "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception"


def give() -> tuple[str, float]:
    return SECRET, time.time() + 900


def fail() -> tuple[str, float]:
    raise ValueError("the vault is shut")


class Ear:
    """Hears what is passed on, at a time of the test's choosing."""

    def __init__(self, tokens: TokenCache | None) -> None:
        self.now = 1_000.0
        self.heard: list[KafkaError] = []
        self.hears = _kafka_options._Patient(self.heard.append, tokens, lambda: self.now)

    def told(self, error: KafkaError, at: float) -> tuple[bool, str]:
        """Whether it passes, and its words."""
        self.now = 1_000.0 + at
        self.hears(error)
        return self.heard[-1].code() == WITHOUT_TOKEN, self.heard[-1].str()


def a_cache(provider: Any) -> TokenCache:
    cache = kafka_tokens.at(kafka_tokens.with_tokens({}, provider), "kafka:9092")[OAUTH_CB]
    assert isinstance(cache, TokenCache)
    return cache


@pytest.mark.parametrize("kind", [sdk.Client, sync.Client])
def test_both_faces_take_a_provider_and_show_nothing_of_it(kind: Any) -> None:
    with pytest.raises(InvalidInputError, match="no token provider 'gc'"):
        kind(URL, kafka_token="gc")
    with pytest.raises(InvalidInputError, match="two ways to a token"):
        kind(URL, kafka_token=give, kafka={"sasl.oauthbearer.method": "oidc", **a_secret()})
    client = sdk.Client(URL, kafka_token=give)
    assert SECRET not in repr(client.kafka)


def a_secret() -> dict[str, str]:
    prefix = "sasl.oauthbearer"
    return {
        f"{prefix}.token.endpoint.url": "http://127.0.0.1:1",
        f"{prefix}.client.id": "me",
        f"{prefix}.client.secret": "pencil",
    }


@pytest.mark.parametrize(
    "more",
    [
        {"sasl.oauthbearer.scope": "one", "sasl.oauthbearer.extensions": "a=b", **a_secret()},
        {
            "sasl.oauthbearer.metadata.authentication.type": "azure_imds",
            "sasl.oauthbearer.config": "query=api-version=2018-02-01&resource=x",
        },
    ],
)
def test_what_librdkafka_does_by_itself_is_let_through(more: dict[str, str]) -> None:
    client = sdk.Client(URL, kafka={**OIDC, **more})
    assert client.kafka == {**OIDC, **more}
    assert OAUTH_CB not in kafka_tokens.at(client.kafka, "kafka:9092")


def test_a_new_client_does_not_ask_for_a_token_of_oidc() -> None:
    """Asked so early, librdkafka would wait for the answer when the check of properties ends."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        nobody.setblocking(False)
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        sdk.Client(URL, kafka={**OIDC, **a_secret(), "sasl.oauthbearer.token.endpoint.url": url})
        with pytest.raises(BlockingIOError):
            nobody.accept()


def test_a_client_of_kafka_without_a_token_tells_the_words_of_its_provider() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", OAUTH_CB: a_cache(fail)}
    with pytest.raises(KafkaException, match="fail fails: ValueError: the vault is shut") as why:
        made(Consumer, properties)
    assert why.value.args[0].code() == WITHOUT_TOKEN


def test_a_refused_token_passes_at_first_and_not_for_long() -> None:
    cache = a_cache(give)
    cache.wait()
    ear = Ear(cache)
    assert ear.told(REFUSED, 0.0) == (True, REFUSED.str())
    assert ear.told(REFUSED, 100.0)[0]  # another one
    assert [ear.told(REFUSED, 100.0 + 4 * n)[0] for n in range(4)] == [True, True, True, False]


def test_a_refused_token_passes_while_its_provider_fails_and_its_words_are_told() -> None:
    cache = a_cache(fail)
    with pytest.raises(CredentialsError):
        cache.wait()
    ear = Ear(cache)
    passes, said = ear.told(KafkaError(KafkaError._AUTHENTICATION, UNSAID), 0.0)
    assert passes
    assert said.endswith("the token provider fail fails: ValueError: the vault is shut")
    for at in range(0, 100, 4):
        passes, said = ear.told(REFUSED, float(at))
        assert (passes, "the vault is shut" in said) == (True, True)


def test_without_a_provider_a_first_token_that_cannot_be_had_is_for_good() -> None:
    ear = Ear(None)
    missed = KafkaError(KafkaError._AUTHENTICATION, UNSAID)
    assert not ear.told(missed, 1.0)[0]
    ear = Ear(None)
    assert ear.told(missed, 1_000.0)[0]  # who gives tokens is away
    assert ear.told(REFUSED, 1_300.0)[0]


def test_other_errors_are_passed_on_as_they_are() -> None:
    ear = Ear(None)
    error = KafkaError(KafkaError._ALL_BROKERS_DOWN, "none")
    assert ear.told(error, 0.0) == (False, "none")


async def test_a_consumer_without_a_token_tells_that_and_not_what_follows_from_it() -> None:
    now = 0.0
    trouble = ReadTrouble(lambda: None, lambda: now)
    trouble.heard(KafkaError(WITHOUT_TOKEN, "the vault is shut"))
    trouble.note(KafkaError(KafkaError._WAIT_COORD, "no coordinator"), "to commit")
    assert "the vault is shut" in trouble.last
    assert trouble.failure is None
    now = 60.0
    trouble.note(KafkaError(KafkaError._WAIT_COORD, "no coordinator"), "to commit")
    assert "no coordinator" in trouble.last
    trouble.well()
    assert trouble.last == ""
