from pathlib import Path

import pytest

from anabranch.broker.settings import SettingsError, load_settings

DELAY = "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds"
WAITING = "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis"


def problems_of(**overrides: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {}, overrides)
    return caught.value.problems


def test_variables_that_are_no_settings_of_a_node_are_left_alone() -> None:
    assert load_settings(None, {"ANABRANCH_URL": "http://node:8080"}, {}) == load_settings(
        None, {}, {}
    )


def test_flags_overrule_the_environment_and_that_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('clusterName = "a"\ntopicPrefix = "a."\ndataDir = "a"\n')
    environment = {"ANABRANCH_topicPrefix": "b.", "ANABRANCH_dataDir": "b", "HOME": "/"}
    settings = load_settings(file, environment, {"dataDir": "c"})
    assert (settings.cluster_name, settings.topic_prefix) == ("a", "b.")
    assert settings.data_dir == Path("c")


def test_every_problem_is_reported_at_once_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("leaseMillis = 'soon'\n")
    environment = {"ANABRANCH_webServicePort": "99999"}
    with pytest.raises(SettingsError) as caught:
        load_settings(file, environment, {"minInsyncReplicas": 4})
    first, second, third = caught.value.problems
    assert first.startswith(f"leaseMillis ({file}): 'soon' is no duration")
    assert second.startswith("webServicePort (environment) is '99999'")
    assert third.startswith("minInsyncReplicas is 4, more than replicationFactor, 3")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("clustername", "clusterName"), ("heartbeatMillis", "heartbeatIntervalMillis")],
)
def test_an_unknown_name_is_an_error_that_names_near_ones(written: str, meant: str) -> None:
    (problem,) = problems_of(**{written: 1})
    assert problem.startswith(f"{written} (flag) is no setting")
    assert meant in problem


def test_an_unknown_variable_is_an_error_that_names_the_right_variable() -> None:
    with pytest.raises(SettingsError, match="did you mean ANABRANCH_clusterName"):
        load_settings(None, {"ANABRANCH_CLUSTER_NAMES": "x"}, {})


def test_a_file_that_cannot_be_read_or_is_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml cannot be read"):
        load_settings(tmp_path / "absent.toml", {}, {})
    file = tmp_path / "node.toml"
    file.write_text("clusterName: a")
    with pytest.raises(SettingsError, match="is not TOML"):
        load_settings(file, {}, {})


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"leaseMillis": 1000}, "leaseMillis is 1000, too short"),
        ({"livenessTimeoutMillis": 4100}, "livenessTimeoutMillis is 4100, too close"),
        ({DELAY: 30, WAITING: 30_000}, f"{DELAY} is 30: times 1000 it must be bigger"),
        ({DELAY: 29}, f"{DELAY} (flag) is 29"),
    ],
)
def test_settings_at_odds_with_others_are_refused(overrides: dict[str, object], named: str) -> None:
    assert any(problem.startswith(named) for problem in problems_of(**overrides))


def test_the_broker_id_is_host_and_web_port() -> None:
    settings = load_settings(None, {}, {"advertisedAddress": "b1", "webServicePort": 8081})
    assert settings.broker_id == "b1:8081"
    assert settings.node_settings().web_url == "http://b1:8081"


def test_clients_are_sent_to_the_binary_port_once_it_is_known() -> None:
    settings = load_settings(None, {}, {"advertisedAddress": "b1"})
    assert settings.node_settings().service_url == "pulsar://b1:6650"
    any_free = load_settings(None, {}, {"advertisedAddress": "b1", "brokerServicePort": 0})
    assert any_free.node_settings().service_url == ""


def test_kafkas_own_names_in_the_environment_are_no_settings(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=SSL://k-1:9093,k-2:9093\n")
    environment = {
        "ANABRANCH_KAFKA_PROPERTIES_FILE": str(file),
        "ANABRANCH_KAFKA_SASL_PASSWORD": "x",
        "ANABRANCH_KAFKA_ACLS_PRINCIPAL": "User:x-{role}",
    }
    settings = load_settings(None, environment, {})
    assert settings.bootstrap_servers == "k-1:9093,k-2:9093"
    assert settings.kafka_acls_principal == "User:x-{role}"
    named = load_settings(None, environment, {"bootstrapServers": "k-3:9092"})
    assert named.bootstrap_servers == "k-3:9092"
    told = {**environment, "ANABRANCH_KAFKA_BOOTSTRAP_SERVERS": "k-4:9092"}
    assert load_settings(None, told, {}).bootstrap_servers == "k-4:9092"
    with pytest.raises(SettingsError, match="ANABRANCH_KAFKA_SALS_PASSWORD"):
        load_settings(None, {"ANABRANCH_KAFKA_SALS_PASSWORD": "x"}, {})
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(None, {}, {"kafkaPropertiesFile": tmp_path / "absent"})
