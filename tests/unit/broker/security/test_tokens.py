"""Tokens: who is let in by one, and that nobody else is."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from anabranch.broker.errors import StartError
from anabranch.broker.security import credentials, key_sets
from anabranch.broker.security.files import ReadAgain
from anabranch.broker.security.key_set_url import KeySetUrl
from anabranch.broker.security.tokens import TokenProvider, TokenRules, token_provider
from anabranch.broker.settings import load_settings
from support import answering
from support.tokens import (
    EC_KEY,
    ED_KEY,
    RSA_KEY,
    SECRET,
    by_hand,
    jwk,
    key_set,
    public_file,
    public_pem,
    secret_file,
    token,
)
from support.waiting import until

REASON = credentials.RefusalReason


class Fixed:
    """Keys that never change."""

    generation = 0

    def __init__(self, *keys: key_sets.VerifyingKey) -> None:
        self.keys = keys

    async def look_for(self, kid: str) -> None:
        pass

    async def follow(self) -> None:
        pass


def provider(**settings: object) -> TokenProvider:
    return token_provider(load_settings(None, {}, {"authenticationProviders": "token", **settings}))


def verify(by: TokenProvider, shown: str | bytes) -> str:
    """The role, or the reason why not."""
    data = shown.encode() if isinstance(shown, str) else shown
    try:
        return asyncio.run(by.verify(credentials.Credentials("token", data))).role
    except credentials.CredentialsError as error:
        return error.kind.value if len(str(error)) < 200 else "a long story"


def test_tokens_of_each_kind_of_key_are_verified(tmp_path: Path) -> None:
    secret = provider(tokenSecretKey=secret_file(tmp_path))
    assert verify(secret, token()) == "ada"
    assert verify(secret, token(algorithm="HS512")) == "ada"
    for key, algorithm in (
        *((RSA_KEY, name) for name in ("RS256", "PS384")),
        (EC_KEY, "ES256"),
        (ED_KEY, "EdDSA"),
    ):
        for pem in (True, False):
            public = provider(tokenPublicKey=public_file(tmp_path, key, pem=pem))
            assert verify(public, token(key=key, algorithm=algorithm)) == "ada"


def test_the_times_issuer_audience_and_role_of_a_token_count(tmp_path: Path) -> None:
    by = provider(
        tokenSecretKey=f"file://{secret_file(tmp_path)}",
        tokenIssuer="river",
        tokenAudience="nodes",
        tokenAuthClaim="role",
    )
    good: dict[str, Any] = {"iss": "river", "aud": ["nodes", "more"], "role": "ops"}
    assert verify(by, token(**good)) == "ops"
    now = time.time()
    for claims, wanted in (
        ({"exp": int(now - 2)}, REASON.EXPIRED),
        ({"nbf": int(now + 60)}, REASON.NOT_YET_VALID),
        ({"iat": int(now + 60)}, REASON.NOT_YET_VALID),
        ({"iss": "sea"}, REASON.ISSUER),
        ({"aud": "others"}, REASON.AUDIENCE),
        ({"role": ""}, REASON.ROLE),
        ({"role": ["ops"]}, REASON.ROLE),
        ({"role": "a" * 256}, REASON.ROLE),
        ({"role": "a\nb"}, REASON.ROLE),
        ({"exp": "soon"}, REASON.MALFORMED),
        ({"exp": 10**400}, REASON.MALFORMED),
    ):
        assert verify(by, token(seconds=None, **{**good, **claims})) == wanted, claims
    for lacking in ("iss", "aud", "role"):
        left = {name: said for name, said in good.items() if name != lacking}
        assert verify(by, token(**left)) in (
            REASON.MALFORMED,
            REASON.ISSUER,
            REASON.AUDIENCE,
            REASON.ROLE,
        )
    lenient = provider(tokenSecretKey=secret_file(tmp_path), tokenAllowedClockSkewSeconds=60)
    late = asyncio.run(
        lenient.verify(credentials.Credentials("token", token(seconds=-30).encode()))
    )
    assert late.ends_at is not None
    assert 20 < late.ends_at - now < 40
    assert verify(lenient, token(seconds=-90)) == REASON.EXPIRED


def test_no_token_chooses_how_it_is_verified(tmp_path: Path) -> None:
    public = provider(tokenPublicKey=public_file(tmp_path))
    claims = {"sub": "root"}
    header = {"alg": "HS256", "typ": "JWT"}
    unsigned = by_hand(header, claims).rsplit(".", 1)[0]
    confused = hmac.new(public_pem(), unsigned.encode(), sha256).digest()
    assert verify(public, by_hand(header, claims, confused)) == REASON.ALGORITHM
    for name in ("none", "nOnE", "", "HS256", "ES256", "dir"):
        assert verify(public, by_hand({"alg": name}, claims)) == REASON.ALGORITHM, name
    secret = provider(tokenSecretKey=secret_file(tmp_path))
    assert verify(secret, by_hand({"alg": "none"}, claims)) == REASON.ALGORITHM
    assert verify(secret, token(key=RSA_KEY, algorithm="RS256")) == REASON.ALGORITHM
    # Keys that a token brings along, or points to, are nobody's.
    for more in (
        {"jwk": jwk(RSA_KEY, "mine")},
        {"jku": "http://127.0.0.1:1/"},
        {"x5u": "http://x"},
    ):
        forged = by_hand({"alg": "RS256", **more}, claims, b"\0" * 256)
        assert verify(public, forged) == REASON.SIGNATURE


def test_what_is_no_token_is_refused_whatever_it_is(tmp_path: Path) -> None:
    by = provider(tokenSecretKey=secret_file(tmp_path))
    good = token()
    head, body, signature = good.split(".")
    flipped = "A" if signature[0] != "A" else "B"
    for bad, wanted in (
        ("", REASON.MALFORMED),
        ("...", REASON.MALFORMED),
        (f"{head}.{body}.{flipped}{signature[1:]}", REASON.SIGNATURE),
        (f"{good}.{signature}", REASON.MALFORMED),
        (token(key=bytes(64)), REASON.SIGNATURE),
        (good + "A" * credentials.CREDENTIAL_BYTES_MAX, REASON.SIZE),
        (by_hand({"alg": "HS256", "crit": ["b64"], "b64": False}, {}), REASON.MALFORMED),
        (by_hand({"alg": "HS256", "kid": 7}, {}), REASON.MALFORMED),
        (by_hand({"alg": ["HS256"]}, {}), REASON.MALFORMED),
        (by_hand(["HS256"], {}), REASON.MALFORMED),
    ):
        assert verify(by, bad) == wanted, bad[:80]
    for cut in range(len(good)):
        assert verify(by, good[:cut]) in (REASON.MALFORMED, REASON.SIGNATURE), cut
    deep = "[" * 6_000 + "]" * 6_000
    nested = base64.urlsafe_b64encode(deep.encode()).rstrip(b"=").decode()
    assert verify(by, f"{nested}.{body}.{signature}") in (REASON.MALFORMED, REASON.SIZE)


@given(
    st.dictionaries(
        st.sampled_from(["sub", "exp", "nbf", "iat", "iss", "aud", "jti", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
)
def test_no_claims_raise_anything_but_a_refusal(claims: dict[str, object]) -> None:
    head = {"alg": "HS256"}
    unsigned = by_hand(head, claims).rsplit(".", 1)[0]
    signed = by_hand(head, claims, hmac.new(SECRET, unsigned.encode(), sha256).digest())
    by = TokenProvider(
        [Fixed(key_sets.VerifyingKey(SECRET, frozenset(("HS256",))))], TokenRules("sub", "a", "b")
    )
    found = verify(by, signed)
    assert found in set(credentials.RefusalReason) or found == claims["sub"]


def test_of_a_set_the_key_with_the_token_s_name_verifies_it(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    other = bytes(reversed(SECRET))
    file.write_bytes(
        key_set(
            jwk(RSA_KEY, "one"),
            jwk(EC_KEY, "two", alg="ES256", use="sig"),
            jwk(SECRET, "three"),
            jwk(ED_KEY, "four", use="enc"),
            jwk(RSA_KEY, "five", alg="RS512"),
            {"kty": "strange", "kid": "six"},
            jwk(SECRET, "eight", alg="none"),
            jwk(SECRET, "nine", alg="RSA-OAEP"),
        )
    )
    by = provider(tokenKeySet=str(file))
    assert verify(by, token("a", RSA_KEY, "RS256", kid="one")) == "a"
    assert verify(by, token("b", EC_KEY, "ES256", kid="two")) == "b"
    assert verify(by, token("c", SECRET, kid="three")) == "c"
    assert verify(by, token("c", SECRET)) == "c"  # it names none: any that could
    for bad, wanted in (
        (token("a", RSA_KEY, "RS256", kid="two"), REASON.ALGORITHM),
        (token("a", RSA_KEY, "RS256", kid="five"), REASON.ALGORITHM),
        (token("a", ED_KEY, "EdDSA", kid="four"), REASON.UNKNOWN_KEY),
        (token("a", SECRET, kid="seven"), REASON.UNKNOWN_KEY),
        (token("a", other, kid="three"), REASON.SIGNATURE),
    ):
        assert verify(by, bad) == wanted


async def test_a_key_is_changed_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(jwk(RSA_KEY, "one")))

    source = key_sets.KeyFile(
        file, lambda: key_sets.keys_of_set(file.read_bytes(), str(file), secrets=False), 1.0
    )
    by = TokenProvider([source], TokenRules())
    first, second = (
        token("a", RSA_KEY, "RS256", kid="one"),
        token("b", EC_KEY, "ES256", kid="two"),
    )
    shown = [credentials.Credentials("token", each.encode()) for each in (first, second)]
    before = by.generation
    assert (await by.verify(shown[0])).role == "a"
    with pytest.raises(credentials.CredentialsError):
        await by.verify(shown[1])
    file.write_bytes(b"{")
    await source._content.look()  # as `follow` does
    assert ((await by.verify(shown[0])).role, by.generation) == ("a", before)
    file.write_bytes(key_set(jwk(EC_KEY, "two")))
    await source._content.look()
    assert by.generation != before
    assert (await by.verify(shown[1])).role == "b"
    with pytest.raises(credentials.CredentialsError):
        await by.verify(shown[0])


@pytest.mark.parametrize(("met", "lines"), [(FileNotFoundError, 2), (StartError, 1)])
async def test_what_could_not_be_read_for_once_is_taken_though_the_file_is_the_same(
    met: type[Exception], lines: int, tmp_path: Path
) -> None:
    """As of a file that is being replaced, or while no descriptor is left: a key may be gone."""
    file = tmp_path / "keys.json"
    file.write_bytes(b"first")
    fails = [False]

    def load() -> bytes:
        if fails[0]:
            raise met(str(file))
        return file.read_bytes()

    read = ReadAgain("keys", (file,), load)
    file.write_bytes(b"second")
    fails[0] = True
    with capture_logs() as logged:
        await read.look()
        await read.look()
    assert [line["event"] for line in logged] == ["security.file_not_taken"] * lines
    assert (read.current, read.generation) == (b"first", 0)
    fails[0] = False
    await read.look()
    assert (read.current, read.generation) == (b"second", 1)


async def test_a_set_at_a_url_is_fetched_again_for_a_name_that_is_new_but_not_for_each() -> None:
    body, asked = [key_set(jwk(RSA_KEY, "one"))], [0]

    def answer(_verb: str, _path: str) -> answering.Answer:
        asked[0] += 1
        return 200, {}, body[0]

    with answering.node(answer) as url:
        now = [100.0]
        source = KeySetUrl(url, 300.0, 1_000.0, lambda: now[0])
        by = TokenProvider([source], TokenRules())
        old = credentials.Credentials("token", token("a", RSA_KEY, "RS256", kid="one").encode())
        new = credentials.Credentials("token", token("b", EC_KEY, "ES256", kid="two").encode())
        assert ((await by.verify(old)).role, asked[0]) == ("a", 1)
        body[0] = key_set(jwk(RSA_KEY, "one"), jwk(EC_KEY, "two"))
        for _ in range(50):  # a stranger with names of no key
            with pytest.raises(credentials.CredentialsError):
                await by.verify(new)
        assert asked[0] == 1
        now[0] += 10
        assert ((await by.verify(new)).role, asked[0]) == ("b", 2)


@pytest.mark.parametrize("url", ["https://keys..example.com/ü", "https://xn--/keys"])
async def test_a_url_of_no_host_there_can_be_is_told_of_and_tried_again(url: str) -> None:
    source = KeySetUrl(url, 0.01, 1_000.0)
    with capture_logs() as logged:
        following = asyncio.create_task(source.follow())
        await until(lambda: len(logged) > 1)
        assert not following.done()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert {line["event"] for line in logged} == {"security.key_set_not_fetched"}


async def test_while_a_url_is_down_the_keys_it_had_go_on_until_their_time_is_over() -> None:
    status = [200]

    def answer(_verb: str, _path: str) -> answering.Answer:
        return status[0], {}, key_set(jwk(RSA_KEY, "one")) if status[0] == 200 else b"down"

    with answering.node(answer) as url:
        now = [100.0]
        source = KeySetUrl(url, 300.0, 1_000.0, lambda: now[0])
        by = TokenProvider([source], TokenRules())
        shown = credentials.Credentials("token", token("a", RSA_KEY, "RS256", kid="one").encode())
        assert (await by.verify(shown)).role == "a"
        good = by.generation
        status[0] = 503
        with capture_logs() as logged:
            now[0] += 999
            await source._fetch()
            assert ((await by.verify(shown)).role, by.generation) == ("a", good)
            now[0] += 2
            with pytest.raises(credentials.CredentialsError) as raised:
                await by.verify(shown)
        assert raised.value.kind is REASON.BUSY
        assert by.generation != good
        assert logged[0]["event"] == "security.key_set_not_fetched"
        assert logged[0]["seconds_left"] == 1
        status[0] = 200
        now[0] += 10
        assert (await by.verify(shown)).role == "a"


@pytest.mark.parametrize("body", [b"[", b"[]", b'{"keys":7}', b'{"keys":[{}]}'])
def test_what_is_no_set_of_keys_is_named_with_the_remedy(body: bytes) -> None:
    with pytest.raises(StartError, match="tokenKeySet"):
        key_sets.keys_of_set(body, "keys.json", secrets=True)


def test_secrets_that_are_published_or_could_be_guessed_do_not_count(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no key"):
        key_sets.keys_of_set(key_set(jwk(SECRET, "one")), "https://x", secrets=False)
    with pytest.raises(StartError, match="no key"):
        key_sets.keys_of_set(key_set(jwk(b"short", "one")), "keys.json", secrets=True)
    with pytest.raises(StartError, match="32 at least"):
        key_sets.secret_key(Path(secret_file(tmp_path, b"x" * 31)))


@pytest.mark.parametrize("pem", [True, False])
@pytest.mark.parametrize("key", [RSA_KEY, EC_KEY])
def test_a_key_that_others_may_know_is_no_secret(tmp_path: Path, key: Any, pem: bool) -> None:
    with pytest.raises(StartError, match="given as tokenPublicKey"):
        key_sets.secret_key(Path(public_file(tmp_path, key, pem=pem)))


def test_no_error_tells_a_key(tmp_path: Path) -> None:
    told = jwk(SECRET, "one", alg="strange")
    for content in (key_set(told), key_set({**told, "kty": "RSA"}), b"k" + key_set(told)):
        with pytest.raises(StartError) as raised:
            key_sets.keys_of_set(content, "keys.json", secrets=True)
        assert str(told["k"]) not in str(raised.value)
