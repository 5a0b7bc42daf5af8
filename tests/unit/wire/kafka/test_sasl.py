"""How a connection of our own says who it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.wire.kafka.protocol import unsupported
from anabranch.wire.kafka.sasl import SaslError, speak

_KAFKA = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "user",
    "sasl.password": "pencil",
}
# The exchange that RFC 7677 shows.
_NONCE = "rOprNGfwEbeRWgbNEkqO"
_BOTH = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
_ASKED = [
    f"n,,n=user,r={_NONCE}",
    f"c=biws,r={_BOTH},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
]
_ANSWERS = [
    f"r={_BOTH},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
]


def _server(asked: list[str], *answers: str) -> Callable[[bytes], bytes]:
    left = list(answers)

    def exchange(said: bytes) -> bytes:
        asked.append(said.decode())
        return left.pop(0).encode()

    return exchange


def test_scram_is_spoken_as_its_rfc_shows_it() -> None:
    asked: list[str] = []
    speak(_KAFKA, _server(asked, *_ANSWERS), lambda: _NONCE)
    assert asked == _ASKED


@pytest.mark.parametrize(
    "answers",
    [
        [_ANSWERS[0], "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="],
        [_ANSWERS[0], ""],
        [_ANSWERS[0].replace("r=r", "r=x")],
        ["not a challenge"],
        [_ANSWERS[0], "v=\u00e9"],
        [_ANSWERS[0].replace("W22Z", "*")],
        # Each would keep a node busy for an hour, or fail it, or let a password be guessed.
        *([_ANSWERS[0].replace("i=4096", f"i={rounds}")] for rounds in (2**31 - 1, 2**70, 0, 100)),
    ],
)
def test_whoever_does_not_know_the_password_is_not_taken_for_kafka(answers: list[str]) -> None:
    with pytest.raises(SaslError):
        speak(_KAFKA, _server([], *answers), lambda: _NONCE)


@pytest.mark.parametrize(
    ("more", "without", "why"),
    [
        ({}, "", ""),
        ({"sasl.mechanism": "GSSAPI"}, "", "sasl.mechanism=GSSAPI is not spoken here: give PLAIN"),
        ({}, "sasl.mechanism", "sasl.mechanism is missing: give PLAIN"),
        ({}, "sasl.username", "sasl.mechanism=SCRAM-SHA-256 wants sasl.username"),
        (
            {"sasl.mechanism": "OAUTHBEARER"},
            "",
            "wants a token provider here",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "OIDC"},
            "",
            "wants sasl.oauthbearer.token.endpoint.url and sasl.oauthbearer.client.id and sasl.",
        ),
        ({"security.protocol": "quic"}, "", "security.protocol=quic is not spoken here"),
        ({"security.protocol": "ssl"}, "", "sasl.mechanism is given without SASL"),
        ({"ssl.ca.location": "probe"}, "", "ssl.ca.location=probe is no file"),
        ({"ssl.keystore.location": "x"}, "", "ssl.keystore.location is read by librdkafka alone"),
    ],
)
def test_why_a_kafka_cannot_be_asked_is_told(more: dict[str, str], without: str, why: str) -> None:
    kafka = {name: value for name, value in {**_KAFKA, **more}.items() if name != without}
    told = unsupported(kafka)
    assert why in told
    assert bool(told) is bool(why)
    assert "pencil" not in told
