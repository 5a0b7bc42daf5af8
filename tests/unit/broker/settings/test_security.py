"""Settings of who comes and what they may: what contradicts itself is named, and no secret is."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.broker.settings import SettingsError, load_settings
from anabranch.broker.settings.sources import names_of
from anabranch.proxy.settings import ProxySettings, load_proxy_settings
from support.secured import tokens_alone


def test_settings_that_miss_something_say_what(tmp_path: Path) -> None:
    tokens = tokens_alone(tmp_path)
    for given, said in (
        ({"authorizationEnabled": True}, "needs authenticationEnabled"),
        ({"kafkaAclsEnabled": True}, "needs authorizationEnabled"),
        ({"kafkaAclsPrincipal": "User:ada"}, "names no principal"),
        ({"authenticationEnabled": True}, "needs authenticationProviders"),
        ({**tokens, "tokenSecretKey": ""}, "has token, which needs tokenSecretKey or"),
        ({**tokens, "authenticationProviders": "tls"}, "needs tlsTrustCertsFilePath"),
        ({**tokens, "authenticationProviders": "kerberos"}, "none of token, tls"),
        ({**tokens, "tokenSecretKey": "data:;base64,c2VjcmV0"}, "secrets are no settings"),
        ({**tokens, "tokenKeySet": "http://example.com/keys"}, "could be anybody's"),
        ({**tokens, "tokenKeySet": "https://example.com/keys"}, "tokenIssuer is empty"),
        ({**tokens, "anonymousUserRole": "a", "proxyRoles": "a,b"}, "could ask for anybody"),
        (
            {
                **tokens,
                "authorizationEnabled": True,
                "superuserRoles": "a,b",
                "anonymousUserRole": "b",
            },
            "could do everything",
        ),
    ):
        with pytest.raises(SettingsError, match=said):
            load_settings(None, {}, given)


def test_a_secret_in_place_of_its_file_is_not_told(tmp_path: Path) -> None:
    secret = "Sx7bnQ"
    for given in (
        {"tokenSecretKey": f"data:;base64,{secret}"},
        {"tokenPublicKey": f"data:;base64,{secret}"},
        {"tokenKeySet": f"https://ada:{secret}@example.com/keys"},
        {"brokerClientAuthenticationParameters": f"token:{secret}"},
    ):
        settings = {**tokens_alone(tmp_path), **given}
        of_proxies = next(iter(given)) in names_of(ProxySettings)
        for load in (load_settings, load_proxy_settings) if of_proxies else (load_settings,):
            with pytest.raises(SettingsError) as raised:
                load(None, {}, settings)
            assert f"{next(iter(given))} (flag): " in str(raised.value)
            assert secret not in str(raised.value)
