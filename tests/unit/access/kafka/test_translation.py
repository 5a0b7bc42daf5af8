"""What becomes of single names, values and sources; and that no secret is told anywhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer

from anabranch.access.kafka import access_of, names, read_access
from anabranch.access.kafka.properties import NotTakenError, entries
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.cli.main import cli
from anabranch.core.errors import AnabranchError, InvalidInputError
from support.kafka_files import KAFKA_FILES, PLAIN, SCRAM, SECRETS, of

STORES = KAFKA_FILES / "stores"


def test_librdkafka_knows_each_name_that_is_taken() -> None:
    told = {name: _said_to(name) for name in (*names.TAKEN, "sasl.no.such")}
    unknown = [name for name, said in told.items() if "No such configuration property" in said]
    assert unknown == ["sasl.no.such"]


def _said_to(name: str) -> str:
    try:
        Producer({name: "x", "log_level": 0})
    except KafkaException as error:
        return str(error.args[0].str())
    return ""


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({"ssl.endpoint.identification.algorithm": ""}, "none"),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, "https"),
        ({"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}, None),
        ({"sasl.mechanisms": "scram-sha-256"}, "SCRAM-SHA-256"),
        ({"security.protocol": "sasl_ssl"}, "sasl_ssl"),
        ({"enable.ssl.certificate.verification": False}, "false"),
    ],
)
def test_a_value_of_java_becomes_one_of_librdkafka(
    given: Mapping[str, object], becomes: str | None
) -> None:
    (value,) = access_of(given).properties.values()
    assert value == (becomes or next(iter(given.values())))


_JAAS = "sasl.jaas.config="


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sals.password=x", r"line 1: sals\.password: .* write sasl\.password"),
        ("planted-secret-1", r"line 1: its name \(not shown\)"),
        ("export SASL_PASSWORD=planted-secret-1", "a shell's file"),
        ("spring.kafka.properties.sasl.mechanism=PLAIN", "take this prefix away"),
        ("KAFKA_SASL_USERNAME=ada", r"write sasl\.username"),
        ("sasl.password=${file:/etc/x:planted-secret-1}", "a reference for Java alone"),
        ("security.protocol=planted-secret-1", "one of PLAINTEXT"),
        ("sasl.mechanism=planted-secret-1", "one of PLAIN, .*AWS_MSK_IAM: correct it"),
        ("sasl.mechanisms=planted-secret-1", "one of PLAIN, .*AWS_MSK_IAM: correct it"),
        ("sasl.oauthbearer.method=planted-secret-1", "one of default, oidc: correct it"),
        (
            "ssl.endpoint.identification.algorithm=planted-secret-1",
            "one of https, none, empty: correct it",
        ),
        ("ssl.engine.factory.class=x.Y", "a Java class makes the TLS"),
        ("ssl.truststore.location=/no/such", "cannot be read .No such file"),
        ("ssl.truststore.certificates=planted-secret-1", "it is not PEM"),
        ("ssl.keystore.location=@STORES@/client.keystore.jks", "ssl.keystore.password opens"),
        (_JAAS + f"{SCRAM} required username=a password=b;", r"sasl\.mechanism is missing"),
        (_JAAS + f'{SCRAM} required tokenauth="true";', "no delegation tokens"),
        (_JAAS + f"{PLAIN} required username=a;", "password of the login module are missing"),
        (_JAAS + f"{PLAIN} required username=a password=planted-secret-1", "end with ;"),
        (_JAAS + f"{PLAIN} required username=a password=1planted;", "option password has no value"),
        (_JAAS + f"{PLAIN} username=a;", "must follow the class"),
        (_JAAS + "planted-secret-1", "must follow the class"),
        (_JAAS + "org.example.OurLoginModule required;", r"org\.example\.OurLoginModule"),
        (_JAAS + "x.Krb5LoginModule required keyTab=/etc/x;", "put it in double quotes"),
    ],
)
def test_a_refusal_names_the_line_and_the_remedy_and_no_value(
    file: Path, line: str, says: str
) -> None:
    access = of(file, line.replace("@STORES@", str(STORES)))
    with pytest.raises(InvalidInputError, match=says) as caught:
        access.checked()
    assert f"{file}, line 1: " in str(caught.value)
    shown = CliRunner().invoke(cli, ["kafka", "check", str(file)]).output
    assert "planted" not in str(caught.value) + shown


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["acks=1"], "acks does not count"),
        (["enable.idempotence=false"], "enable.idempotence does not count"),
        (["client.id=a", "client.id=b"], "given again; the last one counts"),
        (["sasl.password=x "], "ends with white space"),
        (['client.id="a"'], "quotes around client.id"),
        ([f"sasl.jaas.config={PLAIN} required username=a password=b;"], "SASL and TLS are off"),
        (["sasl.mechanism=PLAIN", "sasl.username=a", "sasl.password=b"], "SASL and TLS are off"),
        (["ssl.ca.location=/x"], "SASL and TLS are off"),
        (["ssl.cipher.suites=TLS_RSA_WITH_AES_128_CBC_SHA"], "OpenSSL's have hyphens"),
        (
            ["security.protocol=SASL_SSL", f"{_JAAS}{PLAIN} required username=a password=b /c\\n;"],
            '"/" outside quotes begins a comment',
        ),
    ],
)
def test_a_note_tells_what_would_surprise(
    file: Path, lines: list[str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    of(file, *lines).checked()
    assert [each for each in caplog.messages if says in each], caplog.messages


@pytest.mark.parametrize("empty", ["", " ", '""'])
def test_an_empty_variable_leaves_the_file_as_it_is(file: Path, empty: str) -> None:
    lines = (
        "security.protocol=SSL",
        f"ssl.truststore.location={KAFKA_FILES}/aiven-java/client.truststore.jks",
        "ssl.endpoint.identification.algorithm=https",
    )
    variables = (
        "ANABRANCH_KAFKA_SSL_CA_LOCATION",
        "ANABRANCH_KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM",
    )
    access = of(file, *lines, **dict.fromkeys(variables, empty)).checked()
    assert access.properties == of(file, *lines).properties
    for variable in variables:
        assert f"variable {variable} is empty: it does not count" in access.notes


def test_a_variable_goes_before_a_reference_in_the_file(file: Path) -> None:
    reference = "sasl.password=${file:/etc/x:planted}"
    lines = ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=a", reference)
    access = of(file, *lines, ANABRANCH_KAFKA_SASL_PASSWORD="b").checked()
    assert access.properties["sasl.password"] == "b"
    login = f"{PLAIN} required username=d password=e;"
    access = of(file, *lines, ANABRANCH_KAFKA_SASL_JAAS_CONFIG=login).checked()
    assert access.properties["sasl.password"] == "e"
    assert of(file, *lines, ANABRANCH_KAFKA_CLIENT_ID="b").refused


def test_names_without_effect_are_one_line_of_the_log(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    of(file, "linger.ms=5", "group.id=planted-secret-1", "producer.acks=all").checked()
    assert caplog.messages == ["kafka.names_ignored names=linger.ms, group.id, producer.acks"]


def test_a_variable_goes_before_the_file_and_before_another_form_of_the_same(file: Path) -> None:
    store = f"ssl.truststore.location={KAFKA_FILES}/aiven-java/client.truststore.jks"
    lines = ("sasl.username=a", "sasl.password=b", store)
    by_password = of(
        file, *lines, ANABRANCH_KAFKA_SASL_PASSWORD="c", ANABRANCH_KAFKA_SSL_CA_LOCATION="/x"
    )
    assert by_password.properties == {
        "sasl.username": "a",
        "sasl.password": "c",
        "ssl.ca.location": "/x",
    }
    login = f"{PLAIN} required username=d password=e;"
    by_login = of(file, *lines[:2], ANABRANCH_KAFKA_SASL_JAAS_CONFIG=login)
    assert by_login.properties["sasl.username"] == "d"
    assert by_login.properties["sasl.password"] == "e"


@pytest.mark.parametrize("line", ['planted="x"', "planted=x\nplanted=y", "planted=${env:x}"])
def test_a_name_that_may_be_a_part_of_a_password_is_not_told(
    file: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    access = of(file, line)
    with pytest.raises(InvalidInputError, match=f"{file}, line") as caught:
        access.checked()
    assert "planted" not in str(caught.value) + "".join(access.notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"sasl.password": "planted-secret-1"}', "it is JSON"),
        ("sasl:\n  password: planted-secret-1\n", "it is YAML"),
        (f"KafkaClient {{\n {PLAIN} required\n password=planted-secret-1; }};", "a JAAS file"),
        ("-----BEGIN CERTIFICATE-----\nplanted-secret-1", "a certificate, a key or a store"),
        ("sasl.password=planted-secret-1\\u12", "line 1: .u wants four"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_remedy(
    file: Path, text: str, says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        of(file, text)
    assert "planted" not in str(caught.value)


def test_half_a_character_is_refused() -> None:
    assert entries("a=\\uD83D\\uDE00")[0].value == "\U0001f600"
    with pytest.raises(NotTakenError, match="half a character"):
        entries("a=\\uD83D")


def _every_file() -> Iterator[Path]:
    for folder in sorted(KAFKA_FILES.iterdir()):
        yield folder
        yield from sorted(file for file in folder.iterdir() if file.is_file())


@pytest.mark.parametrize(
    "path", list(_every_file()), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_no_secret_is_told_by_an_error_a_log_a_repr_or_the_command(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = []
    try:
        access = read_access(path, {})
        told += [repr(access), repr(access.notes), repr(access.refused), repr(access.taken)]
        told.append(str(KafkaConnection("x:1", access.checked().properties)))
    except AnabranchError as error:
        told.append(str(error))
    for flags in ([], ["--json"]):
        result = CliRunner().invoke(cli, ["kafka", "check", str(path), *flags])
        told += [result.output, repr(result.exception)]
    keys = (KAFKA_FILES / "aiven-folder" / "service.key").read_text().split("\n")[1:3]
    every = "\n".join([*told, *caplog.messages])
    assert not [secret for secret in (*SECRETS, *keys) if secret in every]


def test_the_command_says_what_became_of_each_name(file: Path) -> None:
    of(file, "security.protocol=SSL", "acks=all", "ssl.ca.locaton=/x")
    result = CliRunner().invoke(cli, ["kafka", "check", str(file)], standalone_mode=False)
    assert result.return_value == 1
    words = [line.split() for line in result.output.splitlines()]
    assert ["taken", "security.protocol", "security.protocol"] in words
    assert ["ignored", "acks", "-"] in words
    assert f"refused: {file}, line 3: ssl.ca.locaton" in result.output
