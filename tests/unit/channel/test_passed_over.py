"""What is passed over is counted, and told of when a newer release wrote it."""

from __future__ import annotations

from structlog.testing import capture_logs

from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.channel.passed_over import PassedOver


def test_all_that_is_passed_over_counts_and_each_newer_schema_is_told_of_once() -> None:
    passed_over = PassedOver("load.newer")
    with capture_logs() as lines:
        passed_over.note(None, b"strange")
        passed_over.note(UnreadableError("damaged"), b"a")
        for schema in ("Load2", "Load2", "Load3"):
            passed_over.note(NewerSchemaError(schema, "the load of a segment"), b"a")
    assert passed_over.count == 5
    assert [(line["event"], line["schema"], line["key"]) for line in lines] == [
        ("load.newer", "Load2", b"a"),
        ("load.newer", "Load3", b"a"),
    ]
