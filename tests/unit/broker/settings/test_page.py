"""docs/settings.md and `anabranch settings` list every setting as it is."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from anabranch.broker.settings import SETTING_NAMES, load_settings
from anabranch.broker.settings.page import BY_POLICY, markdown_table, setting_rows
from anabranch.cli.main import cli
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS
from anabranch.proxy.settings import ProxySettings

PAGE = Path(__file__).parents[4] / "docs" / "settings.md"


def said(*words: str) -> str:
    found = CliRunner().invoke(cli, ["settings", *words])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_the_page_has_the_settings_as_they_are() -> None:
    wanted = markdown_table(setting_rows())
    shown = PAGE.read_text("utf-8")
    assert shown.endswith(wanted), "replace its table by that of `anabranch settings --markdown`"


def test_the_page_of_proxies_has_theirs_as_they_are() -> None:
    wanted = markdown_table(setting_rows(ProxySettings))
    shown = (PAGE.parent / "proxy.md").read_text("utf-8")
    assert shown.endswith(wanted), "replace it by that of `anabranch settings --proxy --markdown`"
    assert said("--proxy", "--markdown") == wanted
    assert "bootstrapServers" not in wanted


def test_every_setting_is_listed_with_a_meaning_and_a_default_that_can_be_given() -> None:
    rows = setting_rows()
    assert {row.name for row in rows} == set(SETTING_NAMES)
    assert all(row.meaning.endswith(".") for row in rows)
    computed = ("", "the host's name")
    given = {row.name: row.default for row in rows if row.default not in computed}
    assert load_settings(None, {}, given) == load_settings(None, {}, {})


def test_those_that_policies_override_are_marked() -> None:
    marked = [row.name for row in setting_rows() if row.changes == BY_POLICY]
    assert len(marked) == len(OVERRIDE_FIELDS)
    assert {"scalableTopicAutoScaleEnabled", "scalableTopicMaxSegments"} <= set(marked)


def test_the_command_lists_finds_and_explains_them() -> None:
    lines = said().splitlines()
    assert lines[0].split() == ["NAME", "DEFAULT", "CHANGES", "MEANING"]
    assert len(lines) == 1 + len(SETTING_NAMES)
    rows = {row["name"]: row for row in json.loads(said("--json"))}
    assert rows["leaseMillis"]["variable"] == "ANABRANCH_LEASE_MILLIS"
    assert rows["leaseMillis"]["default"] == "4000"
    few = said("lease", "heartbeat")
    assert few.startswith("leaseMillis\n  Time for which a heartbeat lets its node act")
    assert "default 4000; integer from 100; changes: start\n  ANABRANCH_LEASE_MILLIS\n" in few
    assert said("nothing-is-called-so") == ""
