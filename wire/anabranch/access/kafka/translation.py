"""Translates what users of Kafka have to librdkafka's security properties.

Each name has one of three outcomes: it is taken, it is ignored, or it is refused with a remedy.
Nothing here tells a value: not an error, not a note, not a `repr`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from anabranch.access.events import log_event
from anabranch.access.kafka import jaas, names, stores
from anabranch.access.kafka.login import translated
from anabranch.access.kafka.properties import NameValue, NotTakenError
from anabranch.access.kafka_tokens import TokenSource, with_tokens
from anabranch.core.errors import InvalidInputError

_MODULES: Final = {  # of a mechanism, where no sasl.jaas.config names one
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
}
_WORDS: Final = {  # values of which only these are taken; `anabranch kafka check` shows them
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "ssl.endpoint.identification.algorithm": ("https", "none", ""),
}
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_SCHEME: Final = re.compile(r"\w+://")
_ASSERTION: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_HANDLERS: Final = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
_DEFAULT_HANDLERS: Final = (  # Java takes these without a name, too
    "AbstractLogin$DefaultLoginCallbackHandler",
    "OAuthBearerSaslClientCallbackHandler",
    "SaslClientCallbackHandler",
)
_RETRIEVERS: Final = (
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.access.token.retriever.class",
)
_SHOWN_MAX: Final = 3
_KEPT: Final = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}


class Taken(msgspec.Struct, frozen=True):
    """A name that counts, its place, and the properties that its value became part of."""

    name: str
    where: str
    into: tuple[str, ...]


class KafkaAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The way into a Kafka. `properties` are librdkafka's, for security alone."""

    properties: dict[str, str] = {}
    bootstrap_servers: str | None = None
    token_provider: str | None = None
    token_arguments: dict[str, str] = {}
    token_wanting: str = ""  # the refusal of a login that only a named provider can serve
    taken: tuple[Taken, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"KafkaAccess({', '.join(sorted(self.properties))})"  # values may be secrets

    def checked(self) -> KafkaAccess:
        """Returns itself, and logs what has no effect.
        Raises InvalidInputError if anything is refused.
        """
        if self.refused:
            more = len(self.refused) - _SHOWN_MAX
            raise InvalidInputError(
                "; ".join(self.refused[:_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
            )
        if self.ignored:
            log_event(logging.INFO, "kafka.names_ignored", names=", ".join(self.ignored))
        for note in self.notes:
            log_event(logging.WARNING, "kafka.names_noted", why=note)
        return self

    def with_tokens(self, source: TokenSource | None = None) -> dict[str, Any]:
        """Returns the properties with the tokens of `source`, or else of the login's own provider
        (`kafka_tokens.at`). Raises InvalidInputError.
        """
        if source is None and self.token_wanting:
            raise InvalidInputError(self.token_wanting)
        provider = self.token_provider if source is None else source
        return with_tokens(self.properties, provider, self.token_arguments)


@dataclass(slots=True, repr=False)
class _Draft:
    given: dict[str, NameValue]
    read: Callable[[str], bytes]
    is_platforms: bool
    properties: dict[str, str] = field(default_factory=dict)
    provider: str | None = None
    wanting: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    taken: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    at_fault: set[str] = field(default_factory=set)

    def value(self, name: str) -> str:
        return self.given[name].value if name in self.given else ""

    def take(self, name: str, properties: Mapping[str, str]) -> None:
        self.taken[name] = tuple(properties)
        self.properties |= properties

    def refuse(self, name: str, why: str, shown: str = "") -> None:
        self.taken[name] = ()
        self.at_fault.add(name)
        self.refused.append(f"{self.given[name].where}: {shown or names.shown(name)}: {why}")

    def note(self, name: str, what: str) -> None:
        self.notes.append(f"{self.given[name].where}: {what}")

    @contextmanager
    def refusing(self, name: str) -> Iterator[None]:
        """Refuses the name where its value, or the file that it names, cannot be taken."""
        try:
            yield
        except NotTakenError as error:
            self.refuse(name, str(error))
        except OSError as error:
            why = error.strerror or "unknown"
            self.refuse(name, f"its file cannot be read ({why}): correct the path or its rights")

    def store(self, file: str, *passwords: str) -> stores.KeyStore:
        return stores.read(self.read(file), *(password or None for password in passwords))


def cleaned(found: Iterable[NameValue]) -> tuple[list[NameValue], list[str]]:
    """Returns the entries of a file without the white space and the quotes that were not meant, and
    notes about them.
    """
    kept, notes = [], []
    for name, value, where in found:
        text, called = value.rstrip(), names.shown(name)
        if text != value and names.is_secret(name):
            text = value
            notes.append(f"{where}: {called} ends with white space, which belongs to it")
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
            notes.append(f"{where}: the quotes around {called} are taken away; Java keeps them")
        kept.append(NameValue(name, text, where))
    return kept, notes


def translate(
    layers: Sequence[Sequence[NameValue]],
    read: Callable[[str], bytes],
    *,
    is_platforms: bool = False,
    ignored: Iterable[str] = (),
    notes: Iterable[str] = (),
) -> KafkaAccess:
    """Returns what the entries become. A later layer goes before a former one.

    `read` reads a file, and raises OSError. `is_platforms` says that a platform has given them, and
    leaves out what it takes for granted: TLS, and Strimzi's one mechanism.
    """
    draft = _Draft({}, read, is_platforms, ignored=list(ignored), notes=list(notes))
    for layer in layers:
        _merge(draft, layer)
    _refuse_references(draft)
    _login(draft)
    _trust(draft)
    _identity(draft)
    _rest(draft)
    _protocol(draft)
    servers = draft.value("bootstrap.servers")
    return KafkaAccess(
        properties=draft.properties,
        bootstrap_servers=_SCHEME.sub("", servers) or None,
        token_provider=draft.provider,
        token_arguments=dict(draft.arguments),
        token_wanting=draft.wanting,
        taken=tuple(
            Taken(name, draft.given[name].where, into)
            for name, into in draft.taken.items()
            if name not in draft.at_fault
        ),
        ignored=tuple(draft.ignored),
        notes=tuple(draft.notes),
        refused=tuple(draft.refused),
    )


def _merge(draft: _Draft, layer: Sequence[NameValue]) -> None:
    before = set(draft.given)
    for name, value, where in layer:
        known = names.ALIASES.get(name, name)
        if known in names.OF_A_PLATFORM:
            known = names.OF_A_PLATFORM[known]
            draft.is_platforms = True
        if known in draft.given and known not in before:
            draft.notes.append(f"{where}: {names.shown(known)} is given again; the last one counts")
        before.discard(known)
        for displaced in names.displaced(known) & before:
            draft.given.pop(displaced, None)
        draft.given[known] = NameValue(known, value, where)


def _refuse_references(draft: _Draft) -> None:
    for name, value, where in list(draft.given.values()):
        if _REFERENCE.search(value):
            draft.given[name] = NameValue(name, "", where)
            draft.refuse(name, "its value is a reference for Java alone: put the value itself")


def _login(draft: _Draft) -> None:
    mechanism = draft.value("sasl.mechanism").strip().upper()
    if mechanism and mechanism not in _MODULES:
        draft.refuse("sasl.mechanism", f"it is one of {', '.join(_MODULES)}: correct it")
        return
    handlers = [name for name in _HANDLERS if _class(draft, name) not in ("", *_DEFAULT_HANDLERS)]
    if draft.value("sasl.jaas.config"):
        named = "sasl.jaas.config"
    elif mechanism == "AWS_MSK_IAM":
        named = "sasl.mechanism"
    elif handlers or draft.value(_URL).startswith("file:"):
        named = handlers[0] if handlers else _URL
    else:
        if mechanism:
            draft.take("sasl.mechanism", {"sasl.mechanism": mechanism})
        return
    with draft.refusing(named):
        login = _first(draft, named, mechanism)
        if not mechanism and draft.is_platforms and login.kind == "ScramLoginModule":
            mechanism = "SCRAM-SHA-512"
            draft.note(named, "sasl.mechanism is not told: SCRAM-SHA-512 is taken, as of Strimzi")
        handler = _class(draft, handlers[0]) if handlers else ""
        found = translated(login, handler, mechanism, draft.value(_URL))
        properties = dict(found.properties)
        if found.truststore is not None:
            properties |= _authorities(draft, named, "https", *found.truststore)
        draft.taken |= {name: () for name in ("sasl.mechanism", *handlers) if name in draft.given}
        draft.take(named, properties)
        draft.provider, draft.arguments = found.provider, found.arguments
        if found.provider is not None and _URL in draft.given:
            draft.taken[_URL] = ()
        if found.wanting:
            draft.wanting = f"{draft.given[named].where}: {named}: {found.wanting}"
        if found.note:
            draft.note(named, found.note)


def _class(draft: _Draft, name: str) -> str:
    return draft.value(name).strip().rpartition(".")[2]


def _first(draft: _Draft, named: str, mechanism: str) -> jaas.Login:
    """Returns the login that counts; a mechanism or a handler alone stands for one, too."""
    if named != "sasl.jaas.config":
        told = "OAUTHBEARER" if named == _URL else mechanism
        return jaas.Login(_MODULES.get(told, "OAuthBearerLoginModule"), {})
    text = draft.value(named)
    first, *others = jaas.logins(text)
    if others:
        draft.note(named, "the first login module counts; others do not")
    if jaas.is_cut(text):
        draft.note(named, f'"/" outside quotes begins a comment in {named}')
    return first


def _trust(draft: _Draft) -> None:
    location = "ssl.truststore.location"
    for name in ("ssl.truststore.certificates", "ssl.ca.pem", "https.ca.pem"):
        _take_pem(draft, name, "https.ca.pem" if name.startswith("https") else "ssl.ca.pem")
    is_told = "ssl.ca.pem" in draft.properties or draft.value("ssl.ca.location")
    if draft.value(location) and not is_told:
        with draft.refusing(location):
            file, password = draft.value(location), draft.value("ssl.truststore.password")
            draft.take(location, _authorities(draft, location, "ssl", file, password))


def _authorities(draft: _Draft, name: str, prefix: str, file: str, password: str) -> dict[str, str]:
    """Returns the property with the trusted authorities of a store, none for Java's own.
    Raises NotTakenError, OSError.
    """
    store = draft.store(file, password)
    if store.is_pem:
        return {f"{prefix}.ca.location": file}
    if store.is_javas:
        draft.note(name, "it has Java's own authorities: the system's count")
        return {}
    if not store.trusted:
        raise NotTakenError("it has no trusted certificate: add one by keytool -importcert")
    return {f"{prefix}.ca.pem": "".join(store.trusted)}


def _identity(draft: _Draft) -> None:
    location = "ssl.keystore.location"
    _take_pem(draft, "ssl.keystore.certificate.chain", "ssl.certificate.pem")
    _take_pem(draft, "ssl.keystore.key", "ssl.key.pem")
    for name in ("ssl.certificate.pem", "ssl.key.pem"):
        _take_pem(draft, name, name)
    if not draft.value(location):
        return
    with draft.refusing(location):
        file, own = draft.value(location), "ssl.key.password"
        store = draft.store(file, draft.value("ssl.keystore.password"), draft.value(own))
        if store.is_pem:
            draft.take(location, {"ssl.certificate.location": file, "ssl.key.location": file})
        elif store.key:
            pem = {"ssl.certificate.pem": "".join(store.chain), "ssl.key.pem": store.key}
            draft.take(location, pem)
            draft.taken |= {own: ()} if own in draft.given else {}  # the key is open by now
        else:
            raise NotTakenError(
                "it has no private key that ssl.keystore.password opens: correct it"
            )


def _take_pem(draft: _Draft, name: str, becomes: str) -> None:
    if draft.value(name):
        with draft.refusing(name):
            draft.take(name, {becomes: stores.reflowed(draft.value(name))})


def _rest(draft: _Draft) -> None:
    """Goes through all other names: taken as they are, ignored or refused."""
    for name, entry in draft.given.items():
        if name in draft.taken:
            continue
        if name == "bootstrap.servers":
            draft.taken[name] = (name,)
        elif name in _RETRIEVERS:
            signs = entry.value.rpartition(".")[2] == "JwtBearerJwtRetriever"
            draft.take(name, {"sasl.oauthbearer.grant.type": _ASSERTION} if signs else {})
        elif name in names.TAKEN:
            _take(draft, name, entry.value)
        elif name in names.READ:
            draft.taken[name] = ()
        elif names.is_ignored(name):
            draft.ignored.append(name)
            if name in _KEPT and entry.value.lower() not in _KEPT[name]:
                draft.note(name, f"{name} does not count: it is {_KEPT[name][0]}")
        else:
            shown, why = names.refusal(name)
            draft.refuse(name, why, shown)


def _take(draft: _Draft, name: str, value: str) -> None:
    if name in _WORDS:
        value = value.strip()
        if value.upper() not in map(str.upper, _WORDS[name]):
            words = ", ".join(word or "empty" for word in _WORDS[name])
            draft.refuse(name, f"it is one of {words}: correct it")
            return
    if name == "ssl.endpoint.identification.algorithm":
        value = value.lower() or "none"  # empty turns it off in Java
    elif name == "client.dns.lookup" and value in ("default", "use_all_dns_ips"):
        draft.taken[name] = ()  # what librdkafka does anyway
        return
    elif name == "ssl.cipher.suites" and "_" in value:
        draft.ignored.append(name)
        draft.note(name, f"{name} has Java's names; OpenSSL's have hyphens")
        return
    elif name.endswith(".location") and f"{name.removesuffix('location')}pem" in draft.properties:
        draft.taken[name] = ()  # the same is there as text
        return
    draft.take(name, {name: value})


def _protocol(draft: _Draft) -> None:
    properties = draft.properties
    if "security.protocol" in draft.given:
        return
    if draft.is_platforms and _is_guarding(properties):
        told = "SASL_SSL" if "sasl.mechanism" in properties else "SSL"
        properties["security.protocol"] = told
        draft.notes.append(f"security.protocol is not told: {told} is taken")
    elif draft.provider is None and not draft.wanting and _is_guarding(draft.taken):
        draft.notes.append(
            "security.protocol is missing: unless you name a token provider it is PLAINTEXT, as "
            "in Java, and then SASL and TLS are off; add it"
        )


def _is_guarding(found: Iterable[str]) -> bool:
    return any(name.startswith(("sasl.", "ssl.")) for name in found)
