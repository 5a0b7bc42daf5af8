"""`BalanceSettings`: every setting of the balancer, by its name in Pulsar's configuration.

This is the only declaration of each: its field, which is its name without `loadBalancer` in this
language's manner, its default, its bounds, and the sentence of docs/settings.md. A node's settings
are made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum, unique
from typing import Annotated, Final, Literal

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.names import parse_namespace
from anabranch.core.settings.declared import about

_STRATEGY: Final = r"^[A-Za-z0-9_.-]*$"  # names of entry points
_NUMBER_MAX: Final = 10**12  # so many minutes, in milliseconds, still have a place in a record
_OTHERWISE: Final[Mapping[str, str]] = {  # the names that follow no rule
    "cpu_resource_weight": "loadBalancerCPUResourceWeight",
    "broker_load_data_ttl_in_seconds": "loadBalancerBrokerLoadDataTTLInSeconds",
    "shedding_delay_in_seconds": "loadBalanceSheddingDelayInSeconds",
    "prefer_later_versions": "preferLaterVersions",
    "failure_domains_enabled": "failureDomainsEnabled",
    "default_namespace_bundle_split_algorithm": "defaultNamespaceBundleSplitAlgorithm",
    "flow_or_qps_difference_threshold_percentage": "flowOrQpsDifferenceThresholdPercentage",
}


@unique
class SplitAlgorithm(StrEnum):
    """The way in which a split finds its boundary."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    POSITIONS = "specified_positions_divide"
    FLOW_OR_QPS = "flow_or_qps_equally_divide"


def setting_name(field: str) -> str:
    """The name of a field in configuration, and in JSON.

    >>> setting_name("broker_load_target_std")
    'loadBalancerBrokerLoadTargetStd'
    """
    found = _OTHERWISE.get(field)
    return found or "loadBalancer" + "".join(word.capitalize() for word in field.split("_"))


class BalanceSettings(msgspec.Struct, frozen=True, kw_only=True, rename=setting_name):
    """All settings of the balancer; `contradictions` tells those that do not fit together."""

    enabled: Annotated[
        bool, about("Whether this node balances load at all, as leader or owner.")
    ] = True
    debug_mode_enabled: Annotated[
        bool, about("Log every decision of the load balancer, not only its effects.")
    ] = False

    # Load data. The average of the resources' use is h * the average before + (1 - h) * now.
    history_resource_percentage: Annotated[
        float,
        about(
            "Share of history, against the newest measurement, in a broker's average load.",
            ge=0,
            lt=1,
        ),
    ] = 0.9
    cpu_resource_weight: Annotated[
        float, about("Weight of processors in a broker's load.", ge=0)
    ] = 1.0
    memory_resource_weight: Annotated[float, about("Weight of memory.", ge=0)] = 0.0
    direct_memory_resource_weight: Annotated[
        float, about("Weight of the node process's own memory.", ge=0)
    ] = 0.0
    bandwidth_in_resource_weight: Annotated[
        float, about("Weight of received bytes in a broker's load.", ge=0)
    ] = 1.0
    bandwidth_out_resource_weight: Annotated[float, about("Weight of sent bytes.", ge=0)] = 1.0
    override_broker_nic_speed_gbps: Annotated[
        Annotated[float, msgspec.Meta(gt=0)] | None,
        about("Gbit/s of each network interface, if the kernel does not know.", run_time=False),
    ] = None
    report_update_min_interval_millis: Annotated[
        int,
        about(
            "Time between measurements of this node's load, each of which may be reported.", ge=50
        ),
    ] = 5_000
    report_update_max_interval_minutes: Annotated[
        float, about("Longest time between two reports of a broker's load.", gt=0)
    ] = 15.0
    report_update_threshold_percentage: Annotated[
        float, about("Change of a broker's load, in percent, that is worth a report.", ge=0)
    ] = 10.0
    broker_load_data_ttl_in_seconds: Annotated[
        float, about("Age from which a broker's load is ignored, and removed by the leader.", ge=0)
    ] = 1800.0
    max_number_of_bundles_in_bundle_load_report: Annotated[
        int, about("Most bundles, the highest loaded, in a broker's report.", ge=1, le=10_000)
    ] = 10

    # Assignment.
    average_resource_usage_difference_threshold_percentage: Annotated[
        float,
        about("Percent below the average load that a broker for a free bundle should have.", ge=0),
    ] = 10.0
    broker_overloaded_threshold_percentage: Annotated[
        float, about("Load in percent from which a broker is overloaded.", gt=0)
    ] = 85.0
    broker_max_topics: Annotated[
        int, about("Topics from which a broker gets no more bundles.", ge=1)
    ] = 50_000
    prefer_later_versions: Annotated[
        bool, about("Whether bundles go only to brokers of the latest release.")
    ] = False
    failure_domains_enabled: Annotated[
        bool, about("Whether anti-affinity groups spread over failure domains first.")
    ] = False
    load_placement_strategy: Annotated[
        str, about("Strategy of your own for a free bundle's owner.", pattern=_STRATEGY)
    ] = ""

    # Shedding.
    shedding_enabled: Annotated[
        bool, about("Whether the leader moves bundles away from overloaded brokers.")
    ] = True
    shedding_interval_minutes: Annotated[float, about("Time between cycles of shedding.", gt=0)] = (
        1.0
    )
    shedding_grace_period_minutes: Annotated[
        float, about("Time that a moved bundle stays.", ge=0)
    ] = 30.0
    shedding_delay_in_seconds: Annotated[
        float, about("Time for a broker's load to follow after a bundle left it.", ge=0)
    ] = 180.0
    shedding_excluded_namespaces: Annotated[
        tuple[str, ...], about("Namespaces (a,b,...) whose bundles never move.")
    ] = ()
    shedding_bundles_with_policies_enabled: Annotated[
        bool, about("Whether bundles with isolation policies or anti-affinity groups move too.")
    ] = False
    shedding_condition_hit_count_threshold: Annotated[
        int, about("Cycles in a row with a reason, before a move.", ge=0)
    ] = 3
    max_number_of_broker_shedding_per_cycle: Annotated[
        int, about("Most brokers that a cycle moves bundles from.", ge=1)
    ] = 3
    broker_load_target_std: Annotated[
        float,
        about("Standard deviation of brokers' loads to be reached; 1 is a whole broker.", ge=0),
    ] = 0.25
    transfer_enabled: Annotated[
        bool, about("Whether the leader names a bundle's next owner; else a look-up does.")
    ] = True
    load_shedding_strategy: Annotated[
        str, about("Strategy of your own for moves; empty: the built-in one.", pattern=_STRATEGY)
    ] = ""

    # Thresholds of both that follow the noise of the load.
    adjusted_thresholds_enabled: Annotated[
        bool, about("Whether thresholds of moves and splits follow the load's noise.")
    ] = False
    adjusted_thresholds_max_factor: Annotated[
        float,
        about("Most by which such a threshold may differ from its setting, as a factor.", ge=1),
    ] = 2.0

    # Splitting.
    auto_bundle_split_enabled: Annotated[
        bool, about("Whether a broker splits its overloaded bundles.")
    ] = True
    auto_unload_split_bundles_enabled: Annotated[
        bool, about("Whether the leader is offered the new bundles to be moved.")
    ] = True
    split_interval_minutes: Annotated[
        float, about("Time between looks for bundles to split.", gt=0)
    ] = 1.0
    max_number_of_bundles_to_split_per_cycle: Annotated[
        int, about("Most bundles that a broker splits after one look.", ge=1)
    ] = 10
    namespace_bundle_split_condition_hit_count_threshold: Annotated[
        int, about("Looks in a row with a reason, before a split.", ge=0)
    ] = 3
    namespace_maximum_bundles: Annotated[
        int, about("Bundles of a namespace from which none is split.", ge=1)
    ] = 128
    namespace_bundle_max_topics: Annotated[
        int, about("Topics of a bundle above which to split.", ge=1)
    ] = 1_000
    namespace_bundle_max_sessions: Annotated[
        int, about("Producers and consumers of a bundle above which to split; 0: any number.", ge=0)
    ] = 1_000
    namespace_bundle_max_msg_rate: Annotated[
        float, about("Messages/s of a bundle, in and out, above which to split.", gt=0)
    ] = 30_000.0
    namespace_bundle_max_bandwidth_mbytes: Annotated[
        float, about("Megabytes/s of a bundle, in and out, above which to split.", gt=0)
    ] = 100.0
    default_namespace_bundle_split_algorithm: Annotated[
        Literal[SplitAlgorithm.RANGE, SplitAlgorithm.TOPIC_COUNT, SplitAlgorithm.FLOW_OR_QPS],
        about("Where an automatic split cuts a bundle."),
    ] = SplitAlgorithm.RANGE
    flow_or_qps_difference_threshold_percentage: Annotated[
        float,
        about("Percent by which flow_or_qps_equally_divide wants a bundle over its limits.", ge=0),
    ] = 10.0
    bundle_split_strategy: Annotated[
        str, about("Strategy of your own for splits.", pattern=_STRATEGY)
    ] = ""

    # Service units' states.
    service_unit_state_tombstone_delay_time_in_seconds: Annotated[
        int, about("Time that a split bundle stays on record as deleted.", ge=30)
    ] = 3600
    in_flight_service_unit_state_waiting_time_in_millis: Annotated[
        int, about("Time for a bundle's move, after which the leader acts.", ge=1)
    ] = 30_000
    service_unit_state_monitor_interval_in_seconds: Annotated[
        float, about("Time between the leader's searches for stuck or deleted bundles.", gt=0)
    ] = 60.0

    @property
    def weights(self) -> tuple[float, float, float, float, float]:
        """Weights of processor, memory, direct memory, bandwidth in and out."""
        return (
            self.cpu_resource_weight,
            self.memory_resource_weight,
            self.direct_memory_resource_weight,
            self.bandwidth_in_resource_weight,
            self.bandwidth_out_resource_weight,
        )

    @property
    def bundle_max_bandwidth(self) -> float:
        """Bytes a second beyond which a bundle is split."""
        return self.namespace_bundle_max_bandwidth_mbytes * 1024 * 1024


def contradictions(settings: BalanceSettings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Settings that are within their bounds, but do not fit together: their names, and what to do.

    Too big numbers come alone, since each of them would contradict others too.
    """
    numbers = {
        setting_name(field): value
        for field, value in msgspec.structs.asdict(settings).items()
        if isinstance(value, int | float) and not 0 <= value <= _NUMBER_MAX
    }
    for name in numbers:
        yield (name,), f"{name} must be a number from 0 to {_NUMBER_MAX}"
    if numbers:
        return
    delay_s = settings.service_unit_state_tombstone_delay_time_in_seconds
    waiting_ms = settings.in_flight_service_unit_state_waiting_time_in_millis
    if delay_s * 1000 <= waiting_ms:  # a parent would be forgotten before its split is repaired
        yield (
            (_TOMBSTONE_DELAY, _IN_FLIGHT),
            (
                f"{_TOMBSTONE_DELAY} is {delay_s}: times 1000 it must be bigger than {_IN_FLIGHT}, "
                f"{waiting_ms}"
            ),
        )
    if not any(settings.weights):
        yield (
            _WEIGHTS,
            (
                "the weights of all resources are 0, so that no broker had a load: give one of "
                f"{_WEIGHTS[0]} and its like a value"
            ),
        )
    least_ms = settings.report_update_min_interval_millis
    longest_s = settings.report_update_max_interval_minutes * 60
    if settings.broker_load_data_ttl_in_seconds <= longest_s:
        yield (
            (_TTL, _LONGEST),
            (
                f"{_TTL} must be longer than {_LONGEST}: what is reported no more often would be "
                "out of date before the next report"
            ),
        )
    if least_ms > longest_s * 1000:
        yield (
            (_LEAST, _LONGEST),
            f"{_LEAST} is {least_ms} ms, more than {_LONGEST}, {longest_s:g} s: give less",
        )
    for namespace in settings.shedding_excluded_namespaces:
        try:
            parse_namespace(namespace)
        except InvalidInputError as error:
            yield (_EXCLUDED,), f"{_EXCLUDED}: {error}"


_WEIGHTS: Final = tuple(
    setting_name(f"{resource}_resource_weight")
    for resource in ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
)
_TTL: Final = setting_name("broker_load_data_ttl_in_seconds")
_LEAST: Final = setting_name("report_update_min_interval_millis")
_LONGEST: Final = setting_name("report_update_max_interval_minutes")
_TOMBSTONE_DELAY: Final = setting_name("service_unit_state_tombstone_delay_time_in_seconds")
_IN_FLIGHT: Final = setting_name("in_flight_service_unit_state_waiting_time_in_millis")
_EXCLUDED: Final = setting_name("shedding_excluded_namespaces")

_SYSTEM: Final = re.compile(r"pulsar/system|(?:sla-monitor|pulsar)/.+:\d+")


def is_system_namespace(namespace: str) -> bool:
    """Tells whether a namespace belongs to the cluster itself; the balancer leaves its bundles
    alone.

    >>> is_system_namespace("pulsar/system"), is_system_namespace("public/default")
    (True, False)
    """
    return _SYSTEM.fullmatch(namespace) is not None
