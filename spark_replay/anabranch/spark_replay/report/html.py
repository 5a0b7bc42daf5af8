"""The report as one page."""

from anabranch.spark_replay.report.summary import Summary


def page(summary: Summary) -> str:
    """A self-contained HTML page."""
    return f"<!doctype html><title>Audit</title><pre>{summary.json()}</pre>\n"
