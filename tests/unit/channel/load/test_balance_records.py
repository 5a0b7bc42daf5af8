"""Brokers' loads and their top bundles, as they are stored and as they are read."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from anabranch.channel.load.balance_records import broker_load_record, top_bundles_record
from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.usage import ResourceUsage


def test_every_field_of_a_broker_s_load_is_stored_and_comes_back() -> None:
    number = count(1)
    values: list[Any] = [
        ResourceUsage(next(number), next(number)) if each.type is ResourceUsage else next(number)
        for each in msgspec.structs.fields(BrokerLoadData)
    ]
    load = BrokerLoadData(*values)
    record = broker_load_record(load, "some.Class")
    assert (record.load, record.load_manager_class) == (load, "some.Class")


def test_a_report_of_top_bundles_comes_back_in_its_order() -> None:
    bundles = (("b", BundleLoad(msg_rate_in=1.5)), ("a", BundleLoad(topics=3)), ("c", BundleLoad()))
    report = TopBundlesLoadData(bundles, 7)
    assert top_bundles_record(report).load == report
