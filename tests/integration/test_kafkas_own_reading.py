"""Our reading of client files against Java's and Kafka's own, in a JVM."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from anabranch.access.kafka import jaas, names
from anabranch.access.kafka.properties import NotTakenError, decoded, entries

_IN_TIME: Final = settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_PIECES: Final = (
    *(
        "a",
        "b.c",
        "é",
        "\u2028",
        "\x0b",
        "\x85",
        "=",
        ":",
        " ",
        "\t",
        "\f",
        "#",
        "!",
        ";",
        '"',
        "[",
    ),
    *(
        "\n",
        "\r",
        "\r\n",
        "\\",
        "\\\\",
        "\\\n",
        "\\\r\n",
        "\\t",
        "\\u0041",
        "\\u00e9",
        "\\u12",
        "\\:",
    ),
)
_OPTIONS: Final = (
    *("k=v", 'user = "v\\"w"', "password='q r'", "key='it\\'s'", 'k="\\101\\7\\n\\8\\477"', "é=ü"),
    *(
        "k=a.b-c_d$e",
        "a-b=1",
        '"k"="//no /*comment*/"',
        "k=v//c\n",
        "k/*c*/=/**/v",
        "k=v/c\n",
        "$=_",
    ),
    *(
        'k="open\n',
        "k='",
        "k='\n'",
        "k=v,",
        "k=1a",
        "k=-1",
        "k=.5",
        "k=-a",
        "k:v",
        "k",
        "=v",
        "5=v",
    ),
    *("k={v}", "k=#v", "k=v/", "k=v/*", ";", "; a.B optional", "k=@v", 'k="\\', "k=v=w", "k=\x80"),
)
_GOOD: Final = 13  # of them, which come more often
_LOGINS: Final = st.lists(st.sampled_from((*_OPTIONS[:_GOOD] * 4, *_OPTIONS)), max_size=5)
_BEGINS: Final = ("a.B required", "a.B Optional", '"a.B" SUFFICIENT', "a.B wanted", "a.B", "5", "")


def ours(text: str) -> dict[str, str] | None:
    """All but the empty name, which Java finds in a lone backslash at the end, too."""
    try:
        found = {each.name: each.value for each in entries(text)}
    except NotTakenError:
        return None
    return {name: value for name, value in found.items() if name}


def javas(java: Any, source: Any) -> dict[str, str] | None:
    properties = java.java.util.Properties()
    try:
        properties.load(source)
    except Py4JJavaError as error:
        if "Malformed" not in error.java_exception.getMessage():
            raise
        return None
    found = {name: properties.getProperty(name) for name in properties.stringPropertyNames()}
    return {name: value for name, value in found.items() if name}


def test_a_file_is_read_as_java_reads_it(java: Any) -> None:
    @_IN_TIME
    @given(st.lists(st.sampled_from(_PIECES), max_size=25).map("".join))
    def check(text: str) -> None:
        assert ours(text) == javas(java, java.java.io.StringReader(text))

    check()


def test_bytes_that_are_no_utf_8_are_read_as_java_reads_them(java: Any) -> None:
    @_IN_TIME
    @given(st.lists(st.sampled_from(_PIECES[:-12]), max_size=12).map("".join))
    def check(text: str) -> None:
        content = text.replace("\u2028", "").encode("latin-1") + b"\nz=\xe9"
        stream = java.java.io.ByteArrayInputStream(content)
        assert ours(decoded(content)) == javas(java, stream)

    check()


def kafkas_logins(java: Any, text: str) -> list[tuple[str, dict[str | None, str]]] | None:
    password = java.org.apache.kafka.common.config.types.Password(text)
    try:
        context = java.org.apache.kafka.common.security.JaasContext.loadClientContext(
            {"sasl.jaas.config": password}
        )
    except Py4JJavaError as error:
        said = error.java_exception.getMessage() or ""
        return [("", {}), ("", {})] if "should be 1 module" in said else None
    return [
        (each.getLoginModuleName(), dict(each.getOptions()))
        for each in context.configurationEntries()
    ]


def test_a_login_is_read_as_kafka_reads_it(java: Any) -> None:
    read = 0

    @_IN_TIME
    @given(
        st.sampled_from(_BEGINS[:1] * 9 + _BEGINS), _LOGINS, st.sampled_from(" \n\t"), st.booleans()
    )
    def check(begin: str, options: list[str], white: str, is_ended: bool) -> None:
        nonlocal read
        text = white.join([begin, *options]) + ";" * is_ended
        kafkas = kafkas_logins(java, text)
        try:
            found = jaas.logins(text)
        except NotTakenError:
            # Kafka takes an option without a name, which no login module asks for.
            nameless = [options for _, options in kafkas or () if None in options]
            assert kafkas is None or nameless or len(kafkas) > 1
        else:
            assert kafkas is not None
            if len(kafkas) == len(found) == 1:
                read += 1
                assert kafkas == [(found[0].module, found[0].options)]

    check()
    assert read > 20


def test_each_name_of_kafkas_clients_has_its_outcome(java: Any) -> None:
    clients = java.org.apache.kafka.clients
    kinds = (
        clients.producer.ProducerConfig,
        clients.consumer.ConsumerConfig,
        clients.admin.AdminClientConfig,
    )
    known = {name for kind in kinds for name in kind.configNames()}
    assert len(known) > 100
    refused = {
        name
        for name in known
        if name not in names.TAKEN | names.READ | names.ALIASES.keys()
        and not names.is_ignored(name)
    }
    assert refused == {"ssl.engine.factory.class"}
