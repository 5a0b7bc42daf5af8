"""Settings from the environment, among what container platforms set there by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.settings import SETTING_NAMES, SettingsError, load_settings
from anabranch.broker.settings.environment import variable_of

# Of a Kubernetes service `anabranch` with a port named `http`, and of a Docker link.
PLATFORM = {
    "ANABRANCH_SERVICE_HOST": "10.0.0.7",
    "ANABRANCH_SERVICE_PORT": "8080",
    "ANABRANCH_SERVICE_PORT_HTTP": "8080",
    "ANABRANCH_PORT": "tcp://10.0.0.7:8080",
    "ANABRANCH_PORT_8080_TCP": "tcp://10.0.0.7:8080",
    "ANABRANCH_PORT_8080_TCP_PROTO": "tcp",
    "ANABRANCH_PORT_8080_TCP_PORT": "8080",
    "ANABRANCH_PORT_8080_TCP_ADDR": "10.0.0.7",
    "ANABRANCH_NODES_SERVICE_HOST": "10.0.0.8",
    "ANABRANCH_NODES_PORT": "tcp://10.0.0.8:6650",
}


@given(st.sampled_from(SETTING_NAMES))
def test_every_setting_has_a_variable_in_capitals_and_none_shares_it(name: str) -> None:
    variable = variable_of(name)
    assert variable.isupper()
    assert [each for each in SETTING_NAMES if variable_of(each) == variable] == [name]
    with pytest.raises(SettingsError) as refused:
        load_settings(None, {variable: "?", "ANABRANCH_NOTHING": ""}, {})
    assert f"{variable} (environment) is no setting" not in str(refused.value)


def test_what_platforms_set_by_themselves_stops_no_node_and_sets_nothing() -> None:
    assert load_settings(None, PLATFORM, {}) == load_settings(None, {}, {})


def test_a_platform_s_variable_that_looks_like_a_setting_is_one_only_without_its_service() -> None:
    port = {"ANABRANCH_WEB_SERVICE_PORT": "80"}
    assert load_settings(None, port, {}).web_service_port == 80
    service = {**port, "ANABRANCH_WEB_SERVICE_HOST": "10.0.0.7"}
    assert load_settings(None, service, {}).web_service_port == 8080
    both = {**service, "ANABRANCH_webServicePort": "9000"}
    assert load_settings(None, both, {}).web_service_port == 9000


def test_two_spellings_that_differ_are_told_and_equal_ones_are_not() -> None:
    two = {"ANABRANCH_DATA_DIR": "a", "ANABRANCH_dataDir": "b"}
    with pytest.raises(SettingsError, match=r"ANABRANCH_DATA_DIR and ANABRANCH_dataDir .* differ"):
        load_settings(None, two, {})
    assert str(load_settings(None, dict.fromkeys(two, "a"), {}).data_dir) == "a"


@pytest.mark.parametrize(
    "variable", ["ANABRANCH_PORT", "ANABRANCH_DATADIRS", "ANABRANCH_data_dir", "ANABRANCH_X"]
)
def test_what_nobody_sets_by_itself_and_is_no_setting_is_an_error(variable: str) -> None:
    with pytest.raises(SettingsError, match=f"{variable} .environment. is no setting"):
        load_settings(None, {variable: "8080"}, {})
