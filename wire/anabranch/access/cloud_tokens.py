"""The providers of tokens that have a name: clouds, a file, and functions of the user.

A provider blocks, and returns what `kafka_tokens.checked` takes. The libraries of clouds are
extras, and take long to import, so they are imported by the first call.
"""

from __future__ import annotations

import base64
import functools
import importlib
import importlib.util
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from anabranch.access.errors import CredentialsError
from anabranch.core.errors import InvalidInputError

Provider = Callable[[], Any]

_FILE: Final = "file:"
_AWS_S_MAX: Final = 900.0  # MSK takes no token that is signed for longer
_TOKEN_BYTES_MAX: Final = 65_536
_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_EVENT_HUBS: Final = re.compile(r"[\w-]+\.servicebus\.[\w.]+")
_GOOGLE: Final = "https://www.googleapis.com/auth/cloud-platform"
_MODULES: Final = {  # of each extra
    "aws": "aws_msk_iam_sasl_signer",
    "gcp": "google.auth",
    "azure": "azure.identity",
}


def function(source: str) -> str | Provider:
    """Returns the user's function of that name, or the name of a provider of ours.
    Raises InvalidInputError.
    """
    if source.startswith(_FILE) and source != _FILE:
        return source
    if source in _MODULES:
        _check_installed(source)
        return source
    module, sep, name = source.partition(":")
    if not (sep and module and name):
        raise InvalidInputError(
            f"there is no token provider {source!r}: give {', '.join(_MODULES)}, file:PATH or "
            "module:function"
        )
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"the token provider {source} cannot be had ({error}): correct its name, and put its "
            "folder into PYTHONPATH"
        ) from None
    if not callable(found):
        raise InvalidInputError(f"the token provider {source} is no function")
    return found


def _check_installed(name: str) -> None:
    try:
        found = importlib.util.find_spec(_MODULES[name])
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise InvalidInputError(
            f"the token provider {name} needs an extra: pip install 'anabranch[{name}]'"
        )


def provider(
    name: str, arguments: Mapping[str, str], bootstrap_servers: str
) -> functools.partial[Any]:
    """Returns the provider of that name. Its keywords tell whose tokens they are.
    Raises InvalidInputError.
    """
    given = arguments.get
    if name.startswith(_FILE):
        return functools.partial(file_token, path=name.removeprefix(_FILE))
    if name == "aws":
        named = _REGION.search(bootstrap_servers)
        region = os.environ.get("AWS_REGION") or (named[1] if named else "")
        region = region or os.environ.get("AWS_DEFAULT_REGION", "")
        if not region:
            raise InvalidInputError(
                "the region of MSK is not known: set AWS_REGION, because the address "
                f"{bootstrap_servers} does not tell"
            )
        role = (given("awsRoleArn"), given("awsRoleSessionName"), given("awsStsRegion"))
        return functools.partial(
            aws_token, region=region, profile=given("awsProfileName"), role=role
        )
    if name == "gcp":
        return functools.partial(gcp_token)
    scope, hub = given("scope", ""), _EVENT_HUBS.search(bootstrap_servers)
    if not scope and hub is None:
        raise InvalidInputError(
            "the scope of Azure is not known: give sasl.oauthbearer.scope, such as "
            "api://APPLICATION/.default"
        )
    return functools.partial(azure_token, scope=scope or f"https://{hub and hub[0]}/.default")


def file_token(path: str) -> tuple[str, float]:
    """Returns the token in the file, which something else keeps fresh.

    It is a JSON Web Token, because an expiry stands in these alone. Raises CredentialsError.
    """
    try:
        with Path(path).open("rb") as stream:
            token = stream.read(_TOKEN_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CredentialsError(f"{path} cannot be read ({why}): correct it or its rights") from None
    try:
        claims = token.split(".")[1]
        padded = claims + "=" * (-len(claims) % 4)
        return token, float(json.loads(base64.urlsafe_b64decode(padded))["exp"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise CredentialsError(
            f"{path} has no JSON Web Token that tells when it expires: write one into it"
        ) from None


def aws_token(
    region: str, profile: str | None, role: tuple[str | None, str | None, str | None]
) -> tuple[str, float]:
    """Returns a token of MSK for IAM, valid for 900 s, and no longer than the credentials that sign
    it.

    The signer tells its end in milliseconds. Raises CredentialsError, and botocore's errors.
    """
    import botocore.session
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.credentials import CredentialProvider, Credentials

    session = botocore.session.Session(profile=profile)
    signs: Any = session.get_credentials()
    ends = math.inf
    arn, session_name, sts_region = role
    if signs is not None and arn:
        sts = session.create_client("sts", region_name=sts_region or region)
        told = sts.assume_role(RoleArn=arn, RoleSessionName=session_name or "anabranch")
        lent = told["Credentials"]
        signs = Credentials(lent["AccessKeyId"], lent["SecretAccessKey"], lent["SessionToken"])
        ends = lent["Expiration"].timestamp()
    if signs is None:
        raise CredentialsError(
            "AWS has no credentials here: set AWS_PROFILE, or let the machine have a role"
        )

    signing = signs.get_frozen_credentials()
    renewed = getattr(signs, "_expiry_time", None)  # those of a machine renew themselves
    if renewed is not None:
        ends = renewed.timestamp()

    class Given(CredentialProvider):  # type: ignore[misc]
        def load(self) -> Any:
            return signing

    token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
        region, Given()
    )
    return token, min(expires_ms / 1_000, ends, time.time() + _AWS_S_MAX)


def gcp_token() -> tuple[str, float]:
    """Returns a token of Google's Managed Kafka: header, claims and access token, in base64.
    Raises CredentialsError, and google.auth's errors.
    """
    import google.auth
    from google.auth.transport.requests import Request

    credentials, _ = google.auth.default(scopes=[_GOOGLE])
    credentials.refresh(Request())
    account = getattr(credentials, "service_account_email", None)
    if not account or credentials.expiry is None:
        raise CredentialsError("Google's credentials here are of no service account: use one's")
    expires_at = credentials.expiry.replace(tzinfo=UTC).timestamp()  # it is in UTC, and silent
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    issued_at = datetime.now(UTC).timestamp()
    claims = {"exp": expires_at, "iat": issued_at, "iss": "Google", "sub": account}
    parts = (json.dumps(header), json.dumps(claims), credentials.token)
    encoded = (base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return ".".join(encoded), expires_at


def azure_token(scope: str) -> tuple[str, float]:
    """Returns a token of Entra ID. Raises azure.identity's errors."""
    from azure.identity import DefaultAzureCredential

    with DefaultAzureCredential() as credential:
        told = credential.get_token(scope)
    return told.token, float(told.expires_on)
