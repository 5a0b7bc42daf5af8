"""Reads `sasl.jaas.config` and JAAS files by the grammar of Kafka's `JaasConfig`.

Kafka reads them with Java's `StreamTokenizer`. So a bare word has letters, digits and ".-_$" alone,
a bare number is no value, and a lone "/" outside quotes begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from anabranch.access.kafka.properties import NotTakenError

_TOKEN: Final = re.compile(
    r"""(?P<white>[\0-\x20]+)
    | (?P<number>-?(?=[.0-9])[0-9]*\.?[0-9]*)
    | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\xa0-\U0010ffff-]*)
    | (?P<quoted>"(?:[^"\\\r\n]|\\[\s\S])*"? | '(?:[^'\\\r\n]|\\[\s\S])*'?)
    | (?P<comment>/\*[\s\S]*?(?:\*/|\Z) | //[^\r\n]*)
    | (?P<cut>/[\s\S]?[^\r\n]*)
    | (?P<other>[\s\S])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|[\s\S])")
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_SHAPE: Final = 'CLASS required name="value" ...;'
_OPTIONS: Final = (
    "username",
    "password",
    "keyTab",
    "principal",
    "clientId",
    "clientSecret",
    "scope",
)
_CLIENT: Final = "KafkaClient"


class Login(NamedTuple):
    """One entry: a login module's class, and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"Login({self.kind})"  # options may be secrets

    @property
    def kind(self) -> str:
        """The last part of the class."""
        return self.module.rpartition(".")[2]


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str | None:
        return self.text if self.kind in ("word", "quoted") else None


_END: Final = _Token("end", "")


def logins(text: str) -> list[Login]:
    """Returns the entries of a `sasl.jaas.config`; Kafka uses the first. Raises NotTakenError."""
    tokens = _tokens(text)
    found = [_entry(token, tokens) for token in tokens]
    if not found:
        raise NotTakenError(f"it names no login module: write {_SHAPE}")
    return found


def client_section(text: str) -> str:
    """Returns what is inside `KafkaClient { ... };` of a JAAS file. Raises NotTakenError."""
    before, begin = "", 0
    for match in _TOKEN.finditer(text):
        said = match.group()
        if begin and said == "}":
            return text[begin : match.start()]
        if said == "{" and before == _CLIENT:
            begin = match.end()
        if match.lastgroup not in ("white", "comment"):
            before = said
    raise NotTakenError(f"it has no section {_CLIENT} {{ ... }};")


def _entry(first: _Token, tokens: Iterator[_Token]) -> Login:
    if first.word is None:
        raise NotTakenError(f"it does not begin with the class of a login module: write {_SHAPE}")
    if (next(tokens, _END).word or "").lower() not in _FLAGS:
        raise NotTakenError(f"one of {', '.join(_FLAGS)} must follow the class: write {_SHAPE}")
    options: dict[str, str] = {}
    while (token := next(tokens, _END)).text != ";" or token.kind != "other":
        if token is _END:
            raise NotTakenError("its entry does not end with ;")
        if token.word is None or next(tokens, _END) != _Token("other", "="):
            raise NotTakenError(f"an option is not name=value: write {_SHAPE}")
        value = next(tokens, _END)
        if value.word is None:
            raise NotTakenError(
                f"option {_shown(token.text)} has no value: put it in double quotes. A bare number "
                'is none, and "/" outside quotes begins a comment'
            )
        options[token.text] = value.word
    return Login(first.text, options)


def _shown(name: str) -> str:
    """Returns the name of an option, unless it may be a part of a password."""
    return name if name in _OPTIONS else "(not shown)"


def is_cut(text: str) -> bool:
    """Returns whether a lone "/" outside quotes makes a comment of what follows."""
    return any(match.lastgroup == "cut" for match in _TOKEN.finditer(text))


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind, said = match.lastgroup or "", match.group()
        if kind == "quoted":
            closed = len(said) > 1 and said[-1] == said[0]
            yield _Token(kind, _ESCAPE.sub(_plain, said[1:-1] if closed else said[1:]))
        elif kind not in ("white", "comment", "cut"):
            yield _Token(kind, said)


def _plain(match: re.Match[str]) -> str:
    what = match[1]
    return chr(int(what, 8)) if what[0] in "01234567" else _ESCAPED.get(what, what)
