"""A Kafka that asks its clients for tokens (SASL/OAUTHBEARER), and who gives them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from anabranch.devkit import ports
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import HOST, Differences
from support import answering

REAUTH_S: Final = 5.0  # a connection lives so long with one token
_OURS: Final = "org.apache.kafka.common.security.oauthbearer"


class TokenGiver:
    """A provider of tokens that live for `life_s`."""

    def __init__(self) -> None:
        self.life_s = 300.0
        self.calls = 0
        self.given: list[str] = []
        self._lock = threading.Lock()
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def __call__(self) -> tuple[str, float]:
        with self._lock:
            self.calls += 1
            return self.token()

    def token(self) -> tuple[str, float]:
        now = time.time()
        end = int(now + self.life_s)
        claims = {"sub": "river", "aud": "kafka", "iat": int(now), "exp": end}
        made = jwt.encode(claims | {"jti": str(len(self.given))}, self._key, "RS256", {"kid": "1"})
        self.given.append(made)
        return made, float(end)

    def keys(self) -> str:
        """What Kafka trusts."""
        told = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**told, "kid": "1", "use": "sig", "alg": "RS256"}]})

    @contextmanager
    def endpoint(self) -> Iterator[str]:
        """It gives tokens over HTTP as OpenID Connect does, too. The block gets the address."""

        def told(_verb: str, _path: str) -> answering.Answer:
            token, expires_at = self()
            left_s = int(expires_at - time.time())
            body = {"access_token": token, "token_type": "Bearer", "expires_in": left_s}
            return 200, {"Content-Type": "application/json"}, body  # librdkafka insists on it

        with answering.node(told) as address:
            yield f"{address}/token"


class OauthKafka:
    """A running one. `bootstrap_servers` asks for tokens of `giver`."""

    def __init__(self, folder: Path, giver: TokenGiver) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.giver = giver
        self._keys = folder / "keys.json"
        self._keys.write_text(giver.keys())
        self._port = ports.free_port(HOST)
        listener = "listener.name.second"
        self._kafka = EmbeddedKafka(
            folder / "kafka",
            second_listener=(self._port, self._port),
            differences=Differences(
                {
                    "listener.security.protocol.map": (
                        "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECOND:SASL_PLAINTEXT"
                    ),
                    f"{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
                    f"{listener}.oauthbearer.sasl.jaas.config": (
                        f"{_OURS}.OAuthBearerLoginModule required;"
                    ),
                    f"{listener}.oauthbearer.sasl.server.callback.handler.class": (
                        f"{_OURS}.OAuthBearerValidatorCallbackHandler"
                    ),
                    f"{listener}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self._keys_url,
                    f"{listener}.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
                    f"{listener}.oauthbearer.sasl.oauthbearer.clock.skew.seconds": "0",
                    f"{listener}.oauthbearer.connections.max.reauth.ms": str(int(REAUTH_S * 1_000)),
                }
            ),
        )

    @property
    def _keys_url(self) -> str:
        return f"file://{self._keys}"

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._port}"

    def oidc(self, endpoint: str) -> dict[str, str]:
        """librdkafka's properties of a client that asks the endpoint by itself."""
        return {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": endpoint,
            "sasl.oauthbearer.client.id": "river",
            "sasl.oauthbearer.client.secret": "gravel-bank-75",
        }

    @contextmanager
    def running(self) -> Iterator[OauthKafka]:
        with pytest.MonkeyPatch.context() as patch:
            allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
            patch.setenv("JDK_JAVA_OPTIONS", f"{allowed}={self._keys_url}")
            self._kafka.start()
        try:
            yield self
        finally:
            self._kafka.kill()
