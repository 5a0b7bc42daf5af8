"""What becomes of a login of Java's: a JAAS entry, and the handler beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.core.errors import InvalidInputError
from support.kafka_files import PLAIN, SCRAM, of

BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"
AZURE = "com.azure.spring.cloud.service.kafka.KafkaOAuth2AuthenticateCallbackHandler"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
STRIMZI = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"


@pytest.mark.parametrize(
    ("lines", "properties"),
    [
        (
            [f"sasl.jaas.config={PLAIN} required username=ada password=x;"],
            {"sasl.mechanism": "PLAIN", "sasl.username": "ada", "sasl.password": "x"},
        ),
        (
            [
                "sasl.mechanism=GSSAPI",
                (
                    "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required "
                    'useTicketCache=true keyTab="/etc/ada.keytab" principal="ada@RIVER";'
                ),
            ],
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.keytab": "/etc/ada.keytab",
                "sasl.kerberos.principal": "ada@RIVER",
                "sasl.kerberos.min.time.before.relogin": "0",
            },
        ),
        (
            [
                "sasl.mechanism=OAUTHBEARER",
                f'sasl.jaas.config={BEARER} required unsecuredLoginStringClaim_sub="ada";',
            ],
            {
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=ada",
            },
        ),
        (
            [
                "sasl.mechanism=OAUTHBEARER",
                f"{HANDLER}={STRIMZI}",
                (
                    f'sasl.jaas.config={BEARER} required oauth.token.endpoint.uri="https://x/t" '
                    'oauth.client.id="ada" oauth.client.secret="y" oauth.scope="all";'
                ),
            ],
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                URL: "https://x/t",
                "sasl.oauthbearer.client.id": "ada",
                "sasl.oauthbearer.client.secret": "y",
                "sasl.oauthbearer.scope": "all",
            },
        ),
    ],
)
def test_a_login_of_java_becomes_one_of_librdkafka(
    file: Path, lines: list[str], properties: dict[str, str]
) -> None:
    access = of(file, *lines, "security.protocol=SASL_SSL").checked()
    assert access.properties == {**properties, "security.protocol": "SASL_SSL"}


@pytest.mark.parametrize(
    ("lines", "provider", "arguments"),
    [
        (["sasl.mechanism=AWS_MSK_IAM"], "aws", {}),
        (
            [
                "sasl.mechanism=AWS_MSK_IAM",
                (
                    f"sasl.jaas.config={IAM} required "
                    'awsRoleArn="arn:1" awsRoleSessionName="s" awsStsRegion="eu-west-1";'
                ),
            ],
            "aws",
            {"awsRoleArn": "arn:1", "awsRoleSessionName": "s", "awsStsRegion": "eu-west-1"},
        ),
        (
            ["sasl.mechanism=OAUTHBEARER", f"{URL}=file:///run/token"],
            "file:/run/token",
            {},
        ),
        (
            ["sasl.mechanism=OAUTHBEARER", f"{HANDLER}={AZURE}"],
            "azure",
            {},
        ),
        (
            [
                "sasl.mechanism=OAUTHBEARER",
                f"{HANDLER}={AZURE}",
                f'sasl.jaas.config={BEARER} required scope="api://river/.default";',
            ],
            "azure",
            {"scope": "api://river/.default"},
        ),
    ],
)
def test_a_login_by_java_code_names_a_provider_of_tokens(
    file: Path, lines: list[str], provider: str, arguments: dict[str, str]
) -> None:
    access = of(file, *lines, "security.protocol=SASL_SSL")
    assert access.refused == ()
    assert (access.token_provider, access.token_arguments) == (provider, arguments)
    assert access.checked() is access
    assert access.properties["sasl.mechanism"] == "OAUTHBEARER"
    assert URL not in access.properties


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([f"{HANDLER}=com.example.OurHandler"], f"line 2: {HANDLER}: its handler is a Java class"),
        ([f"{HANDLER}=com.azure.example.OurHandler"], f"{HANDLER}: its handler is a Java class"),
        ([f"sasl.jaas.config={BEARER} required;"], r"token\.endpoint\.url is missing"),
        (
            [
                f"{HANDLER}={STRIMZI}",
                f'sasl.jaas.config={BEARER} required oauth.refresh.token="planted";',
            ],
            r"oauth\.refresh\.token has no counterpart",
        ),
        *(
            (
                [
                    f"{HANDLER}={STRIMZI}",
                    (
                        f'sasl.jaas.config={BEARER} required oauth.token.endpoint.uri="https://x" '
                        f'{option}="planted";'
                    ),
                ],
                f"{option} has no counterpart",
            )
            for option in (
                "oauth.access.token.location",
                "oauth.password.grant.username",
                "oauth.client.assertion",
                "oauth.client.assertion.location",
            )
        ),
    ],
)
def test_a_login_without_counterpart_is_good_with_a_provider_that_is_named(
    file: Path, lines: list[str], says: str
) -> None:
    access = of(file, "sasl.mechanism=OAUTHBEARER", *lines, "security.protocol=SASL_SSL").checked()
    with pytest.raises(
        InvalidInputError, match=f"{says}.*name a token provider: kafka_token"
    ) as why:
        access.with_tokens()
    assert "planted" not in str(why.value)
    given = access.with_tokens(lambda: ("token", 0.0))
    assert given.keys() - {"oauth_cb"} == {"sasl.mechanism", "security.protocol"}
    result = CliRunner().invoke(cli, ["kafka", "check", str(file)], standalone_mode=False)
    assert (result.return_value, "refused: " in result.output) == (1, True)


@pytest.mark.parametrize(
    "option", ["awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleExternalId"]
)
def test_what_signs_as_another_at_aws_is_refused_with_the_remedy(file: Path, option: str) -> None:
    login = f'sasl.jaas.config={IAM} required awsRoleArn="arn:1" {option}="planted";'
    access = of(file, "sasl.mechanism=AWS_MSK_IAM", login, "security.protocol=SASL_SSL").checked()
    with pytest.raises(InvalidInputError, match=f"{option} is not taken: .*kafka_token") as why:
        access.with_tokens()
    assert "planted" not in str(why.value)


@pytest.mark.parametrize(
    "lines",
    [
        [f'sasl.jaas.config={PLAIN} required username="a" password="b" serviceName="planted";'],
        [f'sasl.jaas.config={IAM} required awsMaxRetries="planted";'],
        [
            'sasl.jaas.config=x.Krb5LoginModule required useKeyTab=true keyTab="/k" debug=planted;',
        ],
        [f"{HANDLER}={AZURE}", f'sasl.jaas.config={BEARER} required tenantId="planted";'],
        [f"{URL}=file:///x", f'sasl.jaas.config={BEARER} required clientId="planted";'],
        [f"{URL}=https://x", f'sasl.jaas.config={BEARER} required clientId="a" other="planted";'],
        [
            (
                f"sasl.jaas.config={BEARER} required unsecuredLoginStringClaim_sub=a "
                "unsecuredLoginStringClaim_scope=planted;"
            ),
        ],
        [
            f"{HANDLER}={STRIMZI}",
            (
                f'sasl.jaas.config={BEARER} required oauth.token.endpoint.uri="https://x" '
                'oauth.ssl.truststore.type=PEM oauth.max.token.expiry.seconds="planted";'
            ),
        ],
    ],
)
def test_the_options_of_a_login_that_are_left_out_are_counted(file: Path, lines: list[str]) -> None:
    mechanism = ["sasl.mechanism=OAUTHBEARER"] if BEARER in lines[-1] else []
    notes = of(file, *mechanism, *lines, "security.protocol=SASL_SSL").checked().notes
    assert "options of its login module without effect here: 1" in "".join(notes)
    assert "planted" not in "".join(notes)


@pytest.mark.parametrize(
    "lines",
    [
        [f'sasl.jaas.config={PLAIN} required username="a" password="b";'],
        [
            "sasl.mechanism=SCRAM-SHA-256",
            f'sasl.jaas.config={SCRAM} required username="a" password="b";',
        ],
        ["sasl.mechanism=PLAIN", "sasl.username=a", "sasl.password=b"],
    ],
)
def test_a_handler_beside_a_password_is_refused_unless_it_is_javas_default(
    file: Path, lines: list[str]
) -> None:
    named = "sasl.client.callback.handler.class"
    lines = [*lines, "security.protocol=SASL_SSL"]
    with pytest.raises(
        InvalidInputError, match=r"beside .*LoginModule: leave it out.*kafka_token="
    ):
        of(file, *lines, f"{named}=com.example.OurHandler").checked()
    default = "org.apache.kafka.common.security.authenticator.SaslClientCallbackHandler"
    access = of(file, *lines, f"{named}={default}").checked()
    assert access.properties == of(file, *lines).properties


def test_a_provider_of_tokens_wants_no_protocol(file: Path) -> None:
    for lines in (["sasl.mechanism=AWS_MSK_IAM"], [f"{HANDLER}=com.example.OurHandler"]):
        bearer = [] if "AWS" in lines[0] else ["sasl.mechanism=OAUTHBEARER"]
        assert of(file, *bearer, *lines).notes == ()


def test_a_jaas_file_that_kafka_opts_names_is_the_login(file: Path, tmp_path: Path) -> None:
    login = tmp_path / "jaas.conf"
    login.write_text(
        f"KafkaServer {{ x.Y required; }};\n"
        f'KafkaClient {{\n  {PLAIN} required\n  username="a"\n  password="q\\"\\\\u";\n}};\n'
    )
    options = f"-Xmx1g -Djava.security.auth.login.config={login}"
    access = of(file, "security.protocol=SASL_SSL", KAFKA_OPTS=options).checked()
    assert access.properties["sasl.password"] == 'q"\\u'
    assert of(file, "security.protocol=SSL", KAFKA_OPTS=options).properties == {
        "security.protocol": "SSL"
    }
