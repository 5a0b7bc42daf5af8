"""Translates a login of Java's, a JAAS entry and its handler, to librdkafka's properties."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from anabranch.access.kafka.jaas import Login
from anabranch.access.kafka.properties import NotTakenError

_BEARER: Final = "OAUTHBEARER"
_OIDC: Final = "sasl.oauthbearer.method"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_IAM: Final = "AWS_MSK_IAM"
_KAFKAS_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_STRIMZIS_HANDLER: Final = "JaasClientOauthLoginCallbackHandler"
_AWSS_HANDLER: Final = "IAMClientCallbackHandler"
_PROVIDERS: Final = {
    _AWSS_HANDLER: "aws",
    "GcpLoginCallbackHandler": "gcp",
    "KafkaOAuth2AuthenticateCallbackHandler": "azure",  # of Spring Cloud Azure
    "AzureManagedIdentityCallbackHandler": "azure",  # of Conduktor
}
_ARGUMENTS: Final = {
    "aws": ("awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion"),
    "azure": ("scope",),
}
_NOT_OF_AWS: Final = ("awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleExternalId")
_OF_STRIMZI: Final = {
    "oauth.token.endpoint.uri": _URL,
    "oauth.client.id": "sasl.oauthbearer.client.id",
    "oauth.client.secret": "sasl.oauthbearer.client.secret",
    "oauth.scope": "sasl.oauthbearer.scope",
}
_NOT_OF_STRIMZI: Final = (
    "oauth.audience",
    "oauth.access.token",
    "oauth.access.token.location",
    "oauth.refresh.token",
    "oauth.refresh.token.location",
    "oauth.password.grant.username",
    "oauth.password.grant.password",
    "oauth.client.assertion",
    "oauth.client.assertion.location",
)
_OF_KAFKA: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_STORE: Final = ("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type")
_EXTENSION: Final = "extension_"
_CLAIM: Final = "unsecuredLoginStringClaim_"
_PROVIDER: Final = "name a token provider: kafka_token=, --kafka-token-provider, kafkaTokenProvider"


class Found(NamedTuple):
    """What a login becomes: properties, or a provider of tokens and its arguments."""

    properties: dict[str, str]
    provider: str | None = None
    arguments: dict[str, str] = {}
    truststore: tuple[str, str] | None = None  # of the tokens' endpoint: a file, its password
    note: str = ""
    wanting: str = ""  # why only a provider of tokens that somebody names will do, and the remedy

    def __repr__(self) -> str:
        return f"Found({', '.join(self.properties)})"


def translated(login: Login, handler: str, mechanism: str, url: str) -> Found:
    """Returns what the login becomes.

    `handler` is the last part of a callback handler's class, `mechanism` is in upper case, and
    `url` is that of the tokens' endpoint; all may be "". Raises NotTakenError.
    """
    kind = login.kind
    fitting = ("", _AWSS_HANDLER) if kind == "IAMLoginModule" else ("",)
    if kind != "OAuthBearerLoginModule" and handler not in fitting:
        raise NotTakenError(
            f"a callback handler (sasl.*.callback.handler.class) has no counterpart beside {kind}: "
            f"leave it out, or write sasl.mechanism={_BEARER} and {_PROVIDER}"
        )
    if kind == "PlainLoginModule":
        return _password(login, mechanism or "PLAIN", ("PLAIN",))
    if kind == "ScramLoginModule":
        if login.options.get("tokenauth", "").lower() == "true":
            raise NotTakenError("librdkafka has no delegation tokens: give a user's own password")
        if not mechanism:
            raise NotTakenError(f"sasl.mechanism is missing: add it, {' or '.join(_SCRAM)}")
        return _password(login, mechanism, _SCRAM)
    if kind == "IAMLoginModule":
        _check(mechanism, (_IAM, ""))
        return _provided(login, "aws")
    if kind == "Krb5LoginModule":
        return _kerberos(login, mechanism)
    if kind == "OAuthBearerLoginModule":
        _check(mechanism, (_BEARER,))
        return _bearer(login, handler, url)
    shown = login.module if "LoginModule" in login.module else "(not shown)"
    raise NotTakenError(
        f"login module {shown} has no counterpart: use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER, AWS_MSK_IAM or GSSAPI"
    )


def _check(mechanism: str, fitting: tuple[str, ...]) -> None:
    if mechanism not in fitting:
        wanted = " or ".join(filter(None, fitting))
        raise NotTakenError(f"sasl.mechanism does not fit its login module: write {wanted}")


def _password(login: Login, mechanism: str, fitting: tuple[str, ...]) -> Found:
    _check(mechanism, fitting)
    options = login.options
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise NotTakenError(f"{' and '.join(missing)} of the login module are missing: add them")
    return Found(
        {
            "sasl.mechanism": mechanism,
            "sasl.username": options["username"],
            "sasl.password": options["password"],
        },
        note=_left_out(login, {"username", "password", "tokenauth"}),
    )


def _left_out(login: Login, known: Iterable[str], besides: str = "") -> str:
    count = len(login.options.keys() - set(known))
    said = f"options of its login module without effect here: {count}" if count else ""
    return "; ".join(filter(None, (besides, said)))


def _provided(login: Login, provider: str) -> Found:
    """Returns a provider of tokens, and the options that are its arguments."""
    for name in _NOT_OF_AWS:
        if provider == "aws" and name in login.options:
            remedy = f"name a profile of AWS by awsProfileName, or {_PROVIDER}"
            return Found({"sasl.mechanism": _BEARER}, wanting=f"{name} is not taken: {remedy}")
    known = _ARGUMENTS.get(provider, ())
    arguments = {name: login.options[name] for name in known if login.options.get(name)}
    return Found({"sasl.mechanism": _BEARER}, provider, arguments, note=_left_out(login, arguments))


def _kerberos(login: Login, mechanism: str) -> Found:
    _check(mechanism, ("GSSAPI", ""))
    names = {
        "principal": "sasl.kerberos.principal",
        "keyTab": "sasl.kerberos.keytab",
        "serviceName": "sasl.kerberos.service.name",
    }
    options = login.options
    properties = {names[name]: value for name, value in options.items() if name in names}
    if options.get("useTicketCache", "").lower() == "true":
        properties["sasl.kerberos.min.time.before.relogin"] = "0"
    return Found(
        {"sasl.mechanism": "GSSAPI", **properties},
        note=_left_out(
            login,
            {*names, "useTicketCache", "useKeyTab", "storeKey"},
            "GSSAPI is not in the wheels of confluent-kafka for Linux: build it from source",
        ),
    )


def _bearer(login: Login, handler: str, url: str) -> Found:
    if handler in _PROVIDERS:
        return _provided(login, _PROVIDERS[handler])
    if handler == _STRIMZIS_HANDLER:
        return _of_strimzi(login)
    if handler not in ("", _KAFKAS_HANDLER):
        return _wanting("its handler is a Java class without counterpart")
    if url.lower().startswith("file:"):
        return _provided(login, f"file:{unquote(urlsplit(url).path)}")
    options = login.options
    claims = {n.removeprefix(_CLAIM): v for n, v in options.items() if n.startswith(_CLAIM)}
    if claims and not url:
        return Found(
            {
                "sasl.mechanism": _BEARER,
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={claims.get('sub', '')}",
            },
            note=_left_out(
                login, {f"{_CLAIM}sub"}, "tokens without a signature are for trials alone"
            ),
        )
    if not url:
        return _wanting(f"{_URL} is missing")
    extending = [name for name in options if name.startswith(_EXTENSION)]
    extensions = [f"{name.removeprefix(_EXTENSION)}={options[name]}" for name in extending]
    properties = {_OF_KAFKA[name]: value for name, value in options.items() if name in _OF_KAFKA}
    if extensions:
        properties["sasl.oauthbearer.extensions"] = ",".join(extensions)
    made = {"sasl.mechanism": _BEARER, _OIDC: "oidc", **properties}
    note = _left_out(login, {*_OF_KAFKA, *extending, *_STORE})
    return Found(made, truststore=_store(login), note=note)


def _wanting(why: str) -> Found:
    return Found({"sasl.mechanism": _BEARER}, wanting=f"{why}: {_PROVIDER}")


def _of_strimzi(login: Login) -> Found:
    for name in _NOT_OF_STRIMZI:
        if name in login.options:
            return _wanting(f"{name} has no counterpart")
    properties = {_OF_STRIMZI[n]: v for n, v in login.options.items() if n in _OF_STRIMZI}
    if _URL not in properties:
        return _wanting("oauth.token.endpoint.uri is missing")
    made = {"sasl.mechanism": _BEARER, _OIDC: "oidc", **properties}
    note = _left_out(login, {*_OF_STRIMZI, *(f"oauth.{name}" for name in _STORE)})
    return Found(made, truststore=_store(login, "oauth."), note=note)


def _store(login: Login, prefix: str = "") -> tuple[str, str] | None:
    location = login.options.get(f"{prefix}ssl.truststore.location")
    password = login.options.get(f"{prefix}ssl.truststore.password", "")
    return (location, password) if location else None
