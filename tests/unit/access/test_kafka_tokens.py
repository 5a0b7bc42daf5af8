"""The cache of Kafka's tokens, what it takes of providers, and what it never tells."""

from __future__ import annotations

import base64
import json
import logging
import math
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anabranch.access import cloud_tokens, kafka_tokens
from anabranch.access.errors import CredentialsError
from anabranch.access.kafka import read_access
from anabranch.access.kafka_tokens import OAUTH_CB, TokenCache, Tokens, at, checked, with_tokens
from anabranch.core.errors import InvalidInputError
from support.waiting import await_

TOKEN = "a.b-c_d~e+f/g=="
SECRET = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJyaXZlciJ9.c2lnbmF0dXJl"
PLAIN = {"security.protocol": "sasl_plaintext"}
# As the signer of AWS (1.0.2) told it at 1796063485.876051: 900 s later, in milliseconds.
SIGNED_AT, SIGNED_UNTIL = 1796063485.876051, 1796064385000


class Giver:
    """Gives tokens for `life_s`. While `failure` says something, it raises."""

    def __init__(self, life_s: float = 1_000.0, now: Callable[[], float] = time.time) -> None:
        self.life_s = life_s
        self._now = now
        self.failure = ""
        self.calls = 0

    def __call__(self) -> tuple[str, float]:
        self.calls += 1
        if self.failure:
            raise ValueError(self.failure)
        return f"token-{self.calls}", self._now() + self.life_s


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "returned a NoneType: it has to return (token, expiry)"),
        (TOKEN, "returned a str: it has"),
        ((TOKEN,), "returned a tuple of 1"),
        ((TOKEN, 2e9, "me", {}, 1), "returned a tuple of 5"),
        ((TOKEN.encode(), 2e9), "its token is a bytes"),
        ((f"Bearer {TOKEN}", 2e9), "without Bearer"),
        (("", 2e9), "a bare str"),
        ((f"{TOKEN}\x01auth=other", 2e9), "a bare str"),
        ((TOKEN, "2e9"), "its expiry is a str: give seconds since 1970"),
        ((TOKEN, datetime(2040, 1, 1)), "its expiry is a datetime: .*timestamp"),  # noqa: DTZ001
        ((TOKEN, True), "its expiry is a bool"),
        ((TOKEN, math.nan), "seconds since 1970"),
        ((TOKEN, SIGNED_UNTIL), "1796064385000, can only be milliseconds: give seconds"),
        ((TOKEN, 900), "has expired .* s ago: give a fresh one"),
        ((TOKEN, 2e9, None), "its principal is no str"),
        ((TOKEN, 2e9, "me", ["a"]), "its extensions are none"),
        ((TOKEN, 2e9, "me", {"auth": "x"}), "are not auth"),
        ((TOKEN, 2e9, "me", {"a": 1}), "its extensions are none"),
        ((TOKEN, 2e9, "me", {"a": "b\x01c"}), "its extensions are none"),
    ],
)
def test_what_is_no_token_is_refused_with_a_sentence_that_does_not_show_it(
    found: object, says: str
) -> None:
    with pytest.raises(CredentialsError, match=says.replace("(", r"\(").replace(")", r"\)")) as why:
        checked(found, now=SIGNED_AT)
    assert TOKEN not in str(why.value)


def test_a_token_has_its_principal_and_extensions_and_hides_in_its_repr() -> None:
    found = checked([TOKEN, 2e9, "me", {"logicalCluster": "lkc-1"}], now=SIGNED_AT)
    assert (found.value, found.expires_at, found.principal) == (TOKEN, 2e9, "me")
    assert found.extensions == {"logicalCluster": "lkc-1"}
    assert TOKEN not in repr(found)


def test_a_token_is_asked_for_once_however_many_read_it() -> None:
    giver = Giver()
    caches = [
        at(with_tokens(PLAIN, giver), f"kafka-{number}:9092")[OAUTH_CB] for number in range(20)
    ]
    threads = [threading.Thread(target=each.wait) for each in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each()[0] for each in caches} == {"token-1"}
    assert giver.calls == 1


def test_it_is_renewed_before_librdkafka_asks_while_nobody_asks() -> None:
    shown = [1_000.0]
    giver = Giver(life_s=2.0, now=lambda: shown[0])
    cache = TokenCache("given", giver, now=lambda: shown[0])
    first = cache.wait()
    shown[0] += 0.79 * giver.life_s  # librdkafka asks at 80 %
    await_(lambda: giver.calls == 2)
    assert shown[0] < first.expires_at - 0.1 * giver.life_s
    await_(lambda: cache()[0] == "token-2")


def test_it_ends_its_thread_when_nobody_uses_it_and_goes_on_when_somebody_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_tokens, "_UNUSED_S_MIN", 0.0)
    monkeypatch.setattr(kafka_tokens, "_PAUSE_S_MIN", 0.01)
    giver = Giver(life_s=0.05)
    cache = TokenCache("unused", giver)
    cache.wait()

    def its_threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.endswith(" unused")]

    await_(lambda: not its_threads())
    calls = giver.calls
    cache.wait()
    assert giver.calls > calls


def test_a_provider_that_wants_to_end_the_program_has_failed_and_is_asked_again() -> None:
    ends = iter([SystemExit(3), KeyboardInterrupt()])

    def give() -> tuple[str, float]:
        for end in ends:
            raise end
        return TOKEN, 4e9

    cache = TokenCache("exits", give)
    with pytest.raises(CredentialsError, match="exits fails: SystemExit: 3"):
        cache.wait()
    await_(lambda: cache.has_token)


def test_a_failure_is_told_at_once_and_a_later_success_ends_it() -> None:
    giver = Giver()
    giver.failure = "the vault is shut"
    cache = TokenCache("given", giver)
    for ask in (cache.wait, cache):
        with pytest.raises(CredentialsError, match="given fails: ValueError: the vault is shut"):
            ask()
    said = cache.explained("Failed to acquire token: OAuth callback raised exception")
    assert said.endswith("the token provider given fails: ValueError: the vault is shut")
    giver.failure = ""
    await_(lambda: cache._valid() is not None)
    assert cache.wait().value == cache()[0]


def test_the_old_token_is_read_while_its_provider_fails(caplog: pytest.LogCaptureFixture) -> None:
    giver = Giver()
    cache = TokenCache("given", giver)
    token = cache.wait()
    giver.failure = f"{token.value} and {SECRET} are old"
    cache.refuse()
    with caplog.at_level(logging.WARNING):
        await_(lambda: cache._failures > 0)
        assert cache()[0] == token.value
        await_(lambda: caplog.records)
    for said in (caplog.text, cache.why):
        assert "... and ... are old" in said
        assert token.value not in said
        assert SECRET not in said


def test_a_provider_that_hangs_is_not_waited_for_for_ever() -> None:
    free = threading.Event()
    cache = TokenCache("slow", lambda: free.wait(60) and None)
    with pytest.raises(CredentialsError, match="slow has not given a token yet"):
        cache.wait(0.01)
    free.set()


def test_a_forked_process_asks_for_tokens_of_its_own(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys, time
        from anabranch.access.kafka_tokens import Tokens

        def give():
            return f"of-{os.getpid()}", time.time() + 1000

        parent = Tokens(give).cache("kafka:9092").wait().value
        child = os.fork()
        if child == 0:
            mine = Tokens(give).cache("kafka:9092").wait().value
            os._exit(0 if mine == f"of-{os.getpid()}" else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=tmp_path)


# --- sources -------------------------------------------------------------------------------


async def _coroutine() -> tuple[str, float]:
    return TOKEN, 2e9


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("gc", "no token provider 'gc': give aws, gcp, azure, file:PATH or module:function"),
        ("file:", "no token provider 'file:'"),
        ("nowhere.at_all:token", "cannot be had .*PYTHONPATH"),
        ("time:token", "cannot be had"),
        ("math:pi", "is no function"),
        (7, "is a function or a name, not a int"),
        (_coroutine, "a plain function"),
    ],
)
def test_a_source_that_cannot_be_is_refused_at_once(source: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        with_tokens(PLAIN, source)


@pytest.mark.parametrize("name", ["aws", "gcp", "azure"])
def test_a_missing_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cloud_tokens._MODULES, name, "no_such_package.at_all")
    with pytest.raises(InvalidInputError, match=rf"pip install 'anabranch\[{name}\]'"):
        Tokens(name)


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        ({"sasl.mechanism": "PLAIN"}, "is for sasl.mechanism=OAUTHBEARER, not PLAIN"),
        ({"security.protocol": "ssl"}, "wants security.protocol=sasl_ssl, not ssl"),
        ({"sasl.oauthbearer.method": "oidc"}, "two ways to a token"),
    ],
)
def test_properties_that_contradict_a_provider_are_refused(
    kafka: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        with_tokens(kafka, Giver())


def test_a_provider_is_enough_and_tokens_travel_in_tls_then() -> None:
    made = at(with_tokens({}, Giver()), "kafka:9092")
    assert made["security.protocol"] == "sasl_ssl"
    assert made["sasl.mechanism"] == "OAUTHBEARER"
    assert isinstance(made[OAUTH_CB], TokenCache)


def test_nothing_is_added_where_librdkafka_finds_tokens_by_itself() -> None:
    oidc = {**PLAIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    assert at(with_tokens(oidc, None), "kafka:9092") == oidc


def _part(what: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(what).encode()).decode().rstrip("=")


def test_a_file_is_read_again_for_each_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    cache = Tokens(f"file:{file}").cache("kafka:9092")
    for name in ("one", "two"):
        told = {"exp": 4_000_000_000, "sub": name}
        token = f"{_part({'alg': 'RS256'})}.{_part(told)}.c2ln"
        file.write_text(f"{token}\n")
        assert cloud_tokens.file_token(str(file)) == (token, 4e9)
    assert cache.wait().value == token


@pytest.mark.parametrize("text", ["", "one!", "a.b.c", f"a.{_part({'sub': 'me'})}.c", "\xff"])
def test_a_file_without_an_expiry_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(CredentialsError, match=r"expires|no text") as why:
        cloud_tokens.file_token(str(file))
    assert str(file) in str(why.value)
    assert not text or text not in str(why.value).replace(str(file), "")


# --- clouds --------------------------------------------------------------------------------


def test_the_region_of_msk_is_in_its_address_unless_the_environment_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    msk = "b-1.river.x1y2z3.c4.kafka.eu-central-1.amazonaws.com:9098"

    def region(servers: str) -> str:
        return str(cloud_tokens.provider("aws", {}, servers).keywords["region"])

    assert region(msk) == "eu-central-1"
    assert region("boot-1.kafka-serverless.us-east-2.amazonaws.com:9098") == "us-east-2"
    with pytest.raises(InvalidInputError, match="set AWS_REGION"):
        region("kafka:9092")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert region(msk) == "eu-west-1"


def a_module(monkeypatch: pytest.MonkeyPatch, name: str, **has: object) -> None:
    made = ModuleType(name)
    for each, value in has.items():
        setattr(made, each, value)
    monkeypatch.setitem(sys.modules, name, made)


def an_aws(monkeypatch: pytest.MonkeyPatch, until: float | None) -> None:
    """The parts of AWS that the provider uses, with the recorded answer of the real signer."""

    class Credentials:
        if until is not None:
            _expiry_time = datetime.fromtimestamp(until, UTC)

        def get_frozen_credentials(self) -> str:
            return "frozen"

    class Session:
        def __init__(self, profile: str | None) -> None:
            self.profile = profile

        def get_credentials(self) -> Credentials:
            return Credentials()

    class Signer:
        @staticmethod
        def generate_auth_token_from_credentials_provider(
            region: str, given: Any
        ) -> tuple[str, int]:
            assert (region, given.load()) == ("eu-west-1", "frozen")
            return TOKEN, SIGNED_UNTIL

    a_module(monkeypatch, "aws_msk_iam_sasl_signer", MSKAuthTokenProvider=Signer)
    a_module(monkeypatch, "botocore")
    a_module(monkeypatch, "botocore.session", Session=Session)
    monkeypatch.setattr(sys.modules["botocore"], "session", sys.modules["botocore.session"], False)
    a_module(monkeypatch, "botocore.credentials", CredentialProvider=object, Credentials=object)


@pytest.mark.parametrize(
    ("now", "until", "told"),
    [
        (SIGNED_AT, None, 1796064385.0),
        (SIGNED_AT, SIGNED_AT + 300, SIGNED_AT + 300),  # whoever signs has no longer
        (SIGNED_AT, SIGNED_AT + 7_200, 1796064385.0),
        (SIGNED_AT - 600, None, SIGNED_AT + 300),  # a clock that was set back meanwhile
    ],
)
def test_aws_tells_milliseconds_and_we_seconds_and_no_more_than_who_signs_has(
    monkeypatch: pytest.MonkeyPatch, now: float, until: float | None, told: float
) -> None:
    an_aws(monkeypatch, until)
    monkeypatch.setattr(time, "time", lambda: now)
    found = cloud_tokens.aws_token("eu-west-1", None, (None, None, None))
    assert found[0] == TOKEN
    assert checked(found, now).expires_at == pytest.approx(told)


def test_the_scope_of_azure_is_in_its_address_or_in_the_properties() -> None:
    def scope(arguments: dict[str, str], servers: str) -> str:
        return str(cloud_tokens.provider("azure", arguments, servers).keywords["scope"])

    hub = "river.servicebus.windows.net:9093"
    assert scope({"scope": ""}, hub) == "https://river.servicebus.windows.net/.default"
    assert scope({"scope": "api://river/.default"}, hub) == "api://river/.default"
    with pytest.raises(InvalidInputError, match=re.escape("sasl.oauthbearer.scope")):
        scope({}, "kafka:9092")


# --- a client's file -----------------------------------------------------------------------


def test_the_file_of_a_java_client_of_msk_gets_tokens_of_aws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(cloud_tokens._MODULES, "aws", "json")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    file = tmp_path / "client.properties"
    module = "software.amazon.msk.auth.iam.IAMLoginModule"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"
        f'sasl.jaas.config={module} required awsProfileName="river";\n'
        "sasl.client.callback.handler.class="
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler\n"
    )
    access = read_access(file, {}).checked()
    made = access.with_tokens()
    assert (made["security.protocol"], made["sasl.mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    assert repr(made[OAUTH_CB]) == "Tokens('aws')"
    provider = cloud_tokens.provider("aws", access.token_arguments, "kafka:9092")
    assert provider.keywords["profile"] == "river"
    own = access.with_tokens(Giver())[OAUTH_CB]
    assert own.cache("kafka:9092").wait().value == "token-1"
