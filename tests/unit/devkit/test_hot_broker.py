"""The hot broker's settings: nodes take them, and move bundles for the processor alone."""

from __future__ import annotations

from anabranch.broker.settings import load_settings
from anabranch.devkit.hot_broker import SETTINGS, TARGET


def test_nodes_take_the_settings_by_which_it_is_the_processor_alone_that_moves_bundles() -> None:
    named = dict(each.split("=", 1) for each in SETTINGS)
    balance = load_settings(None, {}, named).balance
    assert list(balance.weights) == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert balance.broker_load_target_std == TARGET
