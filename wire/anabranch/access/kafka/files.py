"""Reads what users of Kafka have: a file, a folder of a Kubernetes Secret, variables, a mapping."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from anabranch.access.kafka import jaas, names
from anabranch.access.kafka.properties import (
    NameValue,
    NotTakenError,
    decoded,
    entries,
    unsectioned,
)
from anabranch.access.kafka.translation import KafkaAccess, cleaned, translate
from anabranch.core.errors import InvalidInputError

_BYTES_MAX: Final = 4 << 20
_PREFIX: Final = "ANABRANCH_KAFKA_"
# Only these begin names of Kafka's that count here; settings of nodes have the same prefix.
_ROOTS: Final = ("bootstrap.", "client.", "enable.", "https.", "sasl.", "security.", "ssl.")
_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|-")
_STORES: Final = {
    "client.keystore.p12": ("ssl.keystore.location", "service.key"),
    "client.truststore.jks": ("ssl.truststore.location", "ca.pem"),
}
_YAML: Final = re.compile(r"\A---\s|^[\w.-]+:[ \t]*\r?\n(?:[ \t]+|- )[\w-]", re.MULTILINE)
_RPK: Final = re.compile(r"^\s*kafka_api:", re.MULTILINE)
_JAAS_FILE: Final = re.compile(r"\A\s*\w+\s*\{")
_OPTION: Final = re.compile(r"-Djava\.security\.auth\.login\.config==?(\S+)")
_WANTED: Final = "write a file of lines name=value"


class _Source(NamedTuple):
    found: list[NameValue]
    notes: list[str]
    ignored: list[str]
    is_platforms: bool = False


def read_access(path: Path | None, environment: Mapping[str, str]) -> KafkaAccess:
    """Returns what a file or a folder and the environment say together.

    A variable `ANABRANCH_KAFKA_<NAME>` goes before the file, unless it is empty: a deployment sets
    such a one by mistake. Look at `refused`, or call `checked`. Raises InvalidInputError if the
    file cannot be read at all.
    """
    source = _Source([], [], []) if path is None else _source(path)
    variables = [
        NameValue(name, value, f"variable {variable}")
        for variable, value in environment.items()
        if (name := name_of_variable(variable))
    ]
    own, notes = cleaned(variables)
    notes += [f"{each.where} is empty: it does not count" for each in own if not each.value.strip()]
    own = [each for each in own if each.value.strip()]
    layers = [source.found, own]
    options = _OPTION.search(environment.get("KAFKA_OPTS", ""))
    if options is not None and _wants_login([*source.found, *own]):
        layers.insert(0, [_login_of(options[1].strip("\"'"))])
    return translate(
        layers,
        lambda file: _bytes(Path(file)),
        is_platforms=source.is_platforms,
        ignored=source.ignored,
        notes=[*source.notes, *notes],
    )


def access_of(given: Mapping[Any, Any]) -> KafkaAccess:
    """Returns what a mapping of a program says. Raises InvalidInputError."""
    found = []
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise InvalidInputError(
                f"Kafka property {name!r} is a str, a number or a bool, not a "
                f"{type(value).__name__}"
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found.append(NameValue(name, text, "kafka="))
    return translate([found], lambda file: _bytes(Path(file)))


def name_of_variable(variable: str) -> str:
    """Returns Kafka's name that a variable of the environment stands for, or "".

    >>> name_of_variable("ANABRANCH_KAFKA_SASL_PASSWORD")
    'sasl.password'
    >>> name_of_variable("ANABRANCH_KAFKA_PROPERTIES_FILE")
    ''
    """
    if not variable.startswith(_PREFIX):
        return ""
    name = variable.removeprefix(_PREFIX).lower().replace("_", ".")
    return name if name.startswith(_ROOTS) else ""


def _source(path: Path) -> _Source:
    try:
        return _folder(path) if path.is_dir() else _file(path)
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error.strerror}; name a file or a folder of Kafka's client "
            "properties (kafka=, --kafka-properties, kafkaPropertiesFile)"
        ) from None


def _file(path: Path) -> _Source:
    text = decoded(_bytes(path))
    if why := _strange(text):
        raise InvalidInputError(f"{path}: {why}")
    try:
        lines, sections = unsectioned(entries(text))
    except NotTakenError as error:
        raise InvalidInputError(f"{path}, {error}") from None
    found, notes = cleaned(
        NameValue(name, value, f"{path}, {where}") for name, value, where in lines
    )
    if sections:
        notes.append(f"{path}: sections left out: {', '.join(sections)}; only [default] counts")
    return _Source(found, notes, [])


def _strange(text: str) -> str:
    """Returns the reason why a text is no file of properties, with a remedy; "" if it may be."""
    if text.lstrip().startswith("{"):
        return f"it is JSON: {_WANTED}"
    if _RPK.search(text):
        return (
            "it is a profile of rpk: write bootstrap.servers, sasl.username, sasl.password, "
            "sasl.mechanism, ssl.ca.location, ssl.certificate.location and ssl.key.location as "
            "name=value, with what is under kafka_api"
        )
    if _YAML.search(text):
        return f"it is YAML: {_WANTED}"
    if _JAAS_FILE.match(text):
        return "it is a JAAS file: write its entry as sasl.jaas.config=CLASS required ...;"
    if text.startswith("-----BEGIN ") or "\0" in text:
        return (
            "it is a certificate, a key or a store: name it in a file of properties, as "
            "ssl.truststore.location or ssl.keystore.location"
        )
    return ""


def _folder(path: Path) -> _Source:
    files = {file.name: file for file in sorted(path.iterdir()) if file.name[0] != "."}
    found: list[NameValue] = []
    ignored, notes = [], []
    for written, file in files.items():
        name = written if "." in written else _CAPITAL.sub(".", written).lower()
        if (name != written and name in files) or not file.is_file():
            continue  # the same by another spelling
        if written in _STORES:
            name, pem = _STORES[written]
            if pem in files:
                ignored.append(written)
            else:
                found.append(NameValue(name, str(file), str(file)))
        elif name in names.BESIDE_IN_FOLDERS:
            ignored.append(written)
        elif written == "ca.crt" and "user.crt" in files:
            ignored.append(written)
            notes.append(f"{file}: it is the clients' authority; name the cluster's, if it has one")
        else:
            text = decoded(_bytes(file)).rstrip("\r\n")
            found.append(NameValue(name, text, str(file)))
    if not found:
        raise InvalidInputError(
            f"{path} has no files with names of Kafka's: mount the Secret there"
        )
    return _Source(found, notes, ignored, is_platforms=True)


def _wants_login(found: list[NameValue]) -> bool:
    given = {entry.name: entry.value for entry in found}
    is_guarded = given.get("security.protocol", "").strip().upper().startswith("SASL_")
    own = ("sasl.jaas.config", "sasl.username", "sasl.oauthbearer.method")
    return is_guarded and not any(name in given for name in own)


def _login_of(file: str) -> NameValue:
    """Returns the login of a JAAS file that KAFKA_OPTS names. Raises InvalidInputError."""
    where = f"{file}, by KAFKA_OPTS"
    try:
        text = jaas.client_section(decoded(_bytes(Path(file))))
    except OSError as error:
        raise InvalidInputError(f"{where}, cannot be read: {error.strerror}; correct it") from None
    except NotTakenError as error:
        raise InvalidInputError(f"{where}: {error}") from None
    return NameValue("sasl.jaas.config", text, where)


def _bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        found = stream.read(_BYTES_MAX + 1)
    if len(found) > _BYTES_MAX:
        raise OSError(0, f"it has more than {_BYTES_MAX >> 20} MiB")
    return found
