"""Where Spark runs, and what is said of a cluster before it is asked for anything."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.archive import folders
from anabranch.spark_replay.archive.contents import sync_batches
from anabranch.spark_replay.sources import AuditError
from anabranch.spark_replay.spark import cluster
from anabranch.spark_replay.spark.settings import SparkSettings


def test_of_several_masters_each_has_an_address() -> None:
    assert SparkSettings("spark://one:7077,[::1]:7078").masters == [("one", 7077), ("::1", 7078)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"master": "yarn"}, "no master that Anabranch runs on"),
        ({"master": "local-cluster[2,1,1024]"}, "no master that Anabranch runs on"),
        ({"master": "spark://one:70777"}, "write spark://HOST:PORT"),
        ({"conf": {"spark.master": "local"}}, "said by --master"),
    ],
)
def test_what_spark_would_not_take_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        SparkSettings(**settings)  # type: ignore[arg-type]


def test_a_master_that_does_not_answer_is_named_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            cluster.SparkUnavailableError, match=f"no master.*{url}.*refused.*--master"
        ):
            cluster.reach_master(SparkSettings(url))


def test_this_machine_s_address_is_that_on_the_way_to_the_first_master_that_answers() -> None:
    with socket.socket() as taken, socket.create_server(("127.0.0.1", 0)) as there:
        taken.bind(("127.0.0.1", 0))
        ports = taken.getsockname()[1], there.getsockname()[1]
        url = "spark://127.0.0.1:{},127.0.0.1:{}".format(*ports)
        assert cluster.reach_master(SparkSettings(url)) == "127.0.0.1"


def test_what_a_user_adds_stands_beside_what_is_ours(tmp_path: Path) -> None:
    given = {"spark.jars": "more.jar", "spark.executor.memory": "3g", "spark.driver.host": "me"}
    settings = SparkSettings("spark://one:1", given)
    found = cluster.cluster_conf(settings, "10.0.0.1", [tmp_path / "our.jar"])
    assert found == given | {
        "spark.jars": f"{(tmp_path / 'our.jar').as_uri()},more.jar",
        "spark.driver.bindAddress": "0.0.0.0",
    }
    alone = cluster.cluster_conf(SparkSettings("spark://one:1"), "10.0.0.1", [])
    assert alone["spark.driver.host"] == alone["spark.driver.bindAddress"] == "10.0.0.1"


def test_a_file_url_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    found = folders.local_folder((tmp_path / "a b").as_uri())
    assert found is not None
    assert (found.path, found.url) == (tmp_path / "a b", f"file://{tmp_path}/a b")
    for name in ("river#1", "river?1"):
        assert folders.local_folder(f"file://{tmp_path}/{name}") is not None
        assert str(folders.local_folder(f"file://{tmp_path}/{name}")) == f"{tmp_path}/{name}"
    assert folders.local_folder("hdfs://river:8020/archive") is None
    with pytest.raises(folders.FolderError, match="write file:///PATH"):
        folders.local_folder("file://river/archive")
    assert folders.checked_place("hdfs://river/archive/") == "hdfs://river/archive"
    assert folders.checked_place("hdfs:///") == "hdfs:///"
    assert folders.checked_place("file:///") == "file:///"
    assert folders.checked_place("archive") == Path.cwd() / "archive"
    with pytest.raises(InvalidInputError, match="is empty"):
        folders.checked_place(" ")


def test_data_that_only_the_workers_have_is_never_told_to_be_archived(tmp_path: Path) -> None:
    for name in ("_spark_metadata", "_checkpoint/offsets", "_checkpoint/commits"):
        (tmp_path / name).mkdir(parents=True)
    part = tmp_path / "part-0.parquet"
    entry = json.dumps({"path": part.as_uri(), "size": 1})
    (tmp_path / "_spark_metadata/0").write_text(f"v1\n{entry}\n")
    with pytest.raises(AuditError, match=r"workers have another .* than this process"):
        sync_batches(folders.LocalFolder(tmp_path), -1)
    part.write_bytes(b"x")
    sync_batches(folders.LocalFolder(tmp_path), -1)
