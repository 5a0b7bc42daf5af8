"""The settings of load balancing, by the names of PIP-192 and of Pulsar's broker.conf.

What they are for is said in docs/balance.md; their defaults are those of `BalanceSettings`, which
is what the decisions are made by.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from anabranch.broker.settings.changes import AtRunTime
from anabranch.core.balance.settings import BalanceSettings, SplitAlgorithm, fault_of

_DEFAULT: Final = BalanceSettings()
_STRATEGY: Final = r"^[A-Za-z0-9_.-]*$"  # names of entry points
_NAMED_AS_THEY_ARE: Final = (
    "prefer_later_versions",
    "failure_domains_enabled",
    "default_namespace_bundle_split_algorithm",
    "flow_or_qps_difference_threshold_percentage",
)


def _setting_of(field: str) -> str:
    """The setting that a field of `BalanceSettings` is; both as Python names them."""
    if field in _NAMED_AS_THEY_ARE:
        return field
    return f"load_balance{'' if field == 'shedding_delay_in_seconds' else 'r'}_{field}"


class BalanceFields(BaseModel):
    """The part of a node's settings that says when bundles move and split by themselves."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_name=False,
        allow_inf_nan=False,
    )

    load_balancer_debug_mode_enabled: AtRunTime[bool] = Field(
        _DEFAULT.debug_mode_enabled,
        description="Log every decision of the load balancer, not only its effects.",
    )
    load_balancer_service_unit_state_tombstone_delay_time_in_seconds: AtRunTime[int] = Field(
        3600, ge=30, description="Time that a split bundle stays on record as deleted."
    )
    load_balancer_in_flight_service_unit_state_waiting_time_in_millis: AtRunTime[int] = Field(
        30_000, ge=1, description="Time for a bundle's move, after which the leader acts."
    )
    load_balancer_service_unit_state_monitor_interval_in_seconds: AtRunTime[float] = Field(
        60.0, gt=0, description="Time between the leader's searches for stuck or deleted bundles."
    )
    load_balancer_report_update_min_interval_millis: AtRunTime[int] = Field(
        5_000,
        ge=50,
        description="Time between measurements of this node's load, each of which may be reported.",
    )
    load_balancer_override_broker_nic_speed_gbps: float | None = Field(
        None,
        gt=0,
        description="Gbit/s of each network interface, if the kernel does not know.",
    )
    load_balancer_enabled: AtRunTime[bool] = Field(
        _DEFAULT.enabled,
        description="Whether this node balances load at all, as leader or owner.",
    )
    load_balancer_history_resource_percentage: AtRunTime[float] = Field(
        _DEFAULT.history_resource_percentage,
        ge=0,
        lt=1,
        description="Share of history, against the newest measurement, in a broker's average load.",
    )
    load_balancer_cpu_resource_weight: AtRunTime[float] = Field(
        _DEFAULT.cpu_resource_weight,
        ge=0,
        alias="loadBalancerCPUResourceWeight",
        description="Weight of processors in a broker's load.",
    )
    load_balancer_memory_resource_weight: AtRunTime[float] = Field(
        _DEFAULT.memory_resource_weight, ge=0, description="Weight of memory."
    )
    load_balancer_direct_memory_resource_weight: AtRunTime[float] = Field(
        _DEFAULT.direct_memory_resource_weight,
        ge=0,
        description="Weight of the node process's own memory.",
    )
    load_balancer_bandwidth_in_resource_weight: AtRunTime[float] = Field(
        _DEFAULT.bandwidth_in_resource_weight,
        ge=0,
        description="Weight of received bytes in a broker's load.",
    )
    load_balancer_bandwidth_out_resource_weight: AtRunTime[float] = Field(
        _DEFAULT.bandwidth_out_resource_weight,
        ge=0,
        description="Weight of sent bytes.",
    )
    load_balancer_report_update_max_interval_minutes: AtRunTime[float] = Field(
        _DEFAULT.report_update_max_interval_minutes,
        gt=0,
        description="Longest time between two reports of a broker's load.",
    )
    load_balancer_report_update_threshold_percentage: AtRunTime[float] = Field(
        _DEFAULT.report_update_threshold_percentage,
        ge=0,
        description="Change of a broker's load, in percent, that is worth a report.",
    )
    load_balancer_broker_load_data_ttl_in_seconds: AtRunTime[float] = Field(
        _DEFAULT.broker_load_data_ttl_in_seconds,
        ge=0,
        alias="loadBalancerBrokerLoadDataTTLInSeconds",
        description="Age from which a broker's load is ignored, and removed by the leader.",
    )
    load_balancer_max_number_of_bundles_in_bundle_load_report: AtRunTime[int] = Field(
        _DEFAULT.max_number_of_bundles_in_bundle_load_report,
        ge=1,
        le=10_000,
        description="Most bundles, the highest loaded, in a broker's report.",
    )
    load_balancer_average_resource_usage_difference_threshold_percentage: AtRunTime[float] = Field(
        _DEFAULT.average_resource_usage_difference_threshold_percentage,
        ge=0,
        description="Percent below the average load that a broker for a free bundle should have.",
    )
    load_balancer_broker_overloaded_threshold_percentage: AtRunTime[float] = Field(
        _DEFAULT.broker_overloaded_threshold_percentage,
        gt=0,
        description="Load in percent from which a broker is overloaded.",
    )
    load_balancer_broker_max_topics: AtRunTime[int] = Field(
        _DEFAULT.broker_max_topics,
        ge=1,
        description="Topics from which a broker gets no more bundles.",
    )
    prefer_later_versions: AtRunTime[bool] = Field(
        _DEFAULT.prefer_later_versions,
        description="Whether bundles go only to brokers of the latest release.",
    )
    failure_domains_enabled: AtRunTime[bool] = Field(
        _DEFAULT.failure_domains_enabled,
        description="Whether anti-affinity groups spread over failure domains first.",
    )
    load_balancer_shedding_enabled: AtRunTime[bool] = Field(
        _DEFAULT.shedding_enabled,
        description="Whether the leader moves bundles away from overloaded brokers.",
    )
    load_balancer_shedding_interval_minutes: AtRunTime[float] = Field(
        _DEFAULT.shedding_interval_minutes, gt=0, description="Time between cycles of shedding."
    )
    load_balancer_shedding_grace_period_minutes: AtRunTime[float] = Field(
        _DEFAULT.shedding_grace_period_minutes,
        ge=0,
        description="Time that a moved bundle stays.",
    )
    load_balance_shedding_delay_in_seconds: AtRunTime[float] = Field(
        _DEFAULT.shedding_delay_in_seconds,
        ge=0,
        description="Time for a broker's load to follow after a bundle left it.",
    )
    load_balancer_shedding_excluded_namespaces: AtRunTime[str] = Field(
        "", description="Namespaces (a,b,...) whose bundles never move."
    )
    load_balancer_shedding_bundles_with_policies_enabled: AtRunTime[bool] = Field(
        _DEFAULT.shedding_bundles_with_policies_enabled,
        description="Whether bundles with isolation policies or anti-affinity groups move too.",
    )
    load_balancer_shedding_condition_hit_count_threshold: AtRunTime[int] = Field(
        _DEFAULT.shedding_condition_hit_count_threshold,
        ge=0,
        description="Cycles in a row with a reason, before a move.",
    )
    load_balancer_max_number_of_broker_shedding_per_cycle: AtRunTime[int] = Field(
        _DEFAULT.max_number_of_broker_shedding_per_cycle,
        ge=1,
        description="Most brokers that a cycle moves bundles from.",
    )
    load_balancer_broker_load_target_std: AtRunTime[float] = Field(
        _DEFAULT.broker_load_target_std,
        ge=0,
        description="Standard deviation of brokers' loads to be reached; 1 is a whole broker.",
    )
    load_balancer_transfer_enabled: AtRunTime[bool] = Field(
        _DEFAULT.transfer_enabled,
        description="Whether the leader names a bundle's next owner; else a look-up does.",
    )
    load_balancer_adjusted_thresholds_enabled: AtRunTime[bool] = Field(
        _DEFAULT.adjusted_thresholds_enabled,
        description="Whether thresholds of moves and splits follow the load's noise.",
    )
    load_balancer_adjusted_thresholds_max_factor: AtRunTime[float] = Field(
        _DEFAULT.adjusted_thresholds_max_factor,
        ge=1,
        description="Most by which such a threshold may differ from its setting, as a factor.",
    )
    load_balancer_load_shedding_strategy: AtRunTime[str] = Field(
        "",
        pattern=_STRATEGY,
        description="Strategy of your own for moves; empty: the built-in one.",
    )
    load_balancer_load_placement_strategy: AtRunTime[str] = Field(
        "",
        pattern=_STRATEGY,
        description="Strategy of your own for a free bundle's owner.",
    )
    load_balancer_bundle_split_strategy: AtRunTime[str] = Field(
        "", pattern=_STRATEGY, description="Strategy of your own for splits."
    )
    load_balancer_auto_bundle_split_enabled: AtRunTime[bool] = Field(
        _DEFAULT.auto_bundle_split_enabled,
        description="Whether a broker splits its overloaded bundles.",
    )
    load_balancer_auto_unload_split_bundles_enabled: AtRunTime[bool] = Field(
        _DEFAULT.auto_unload_split_bundles_enabled,
        description="Whether the leader is offered the new bundles to be moved.",
    )
    load_balancer_split_interval_minutes: AtRunTime[float] = Field(
        _DEFAULT.split_interval_minutes,
        gt=0,
        description="Time between looks for bundles to split.",
    )
    load_balancer_max_number_of_bundles_to_split_per_cycle: AtRunTime[int] = Field(
        _DEFAULT.max_number_of_bundles_to_split_per_cycle,
        ge=1,
        description="Most bundles that a broker splits after one look.",
    )
    load_balancer_namespace_bundle_split_condition_hit_count_threshold: AtRunTime[int] = Field(
        _DEFAULT.namespace_bundle_split_condition_hit_count_threshold,
        ge=0,
        description="Looks in a row with a reason, before a split.",
    )
    load_balancer_namespace_maximum_bundles: AtRunTime[int] = Field(
        _DEFAULT.namespace_maximum_bundles,
        ge=1,
        description="Bundles of a namespace from which none is split.",
    )
    load_balancer_namespace_bundle_max_topics: AtRunTime[int] = Field(
        _DEFAULT.namespace_bundle_max_topics,
        ge=1,
        description="Topics of a bundle above which to split.",
    )
    load_balancer_namespace_bundle_max_sessions: AtRunTime[int] = Field(
        _DEFAULT.namespace_bundle_max_sessions,
        ge=0,
        description="Producers and consumers of a bundle above which to split; 0: any number.",
    )
    load_balancer_namespace_bundle_max_msg_rate: AtRunTime[float] = Field(
        _DEFAULT.namespace_bundle_max_msg_rate,
        gt=0,
        description="Messages/s of a bundle, in and out, above which to split.",
    )
    load_balancer_namespace_bundle_max_bandwidth_mbytes: AtRunTime[float] = Field(
        _DEFAULT.namespace_bundle_max_bandwidth_mbytes,
        gt=0,
        description="Megabytes/s of a bundle, in and out, above which to split.",
    )
    default_namespace_bundle_split_algorithm: AtRunTime[
        Literal["range_equally_divide", "topic_count_equally_divide", "flow_or_qps_equally_divide"]
    ] = Field("range_equally_divide", description="Where an automatic split cuts a bundle.")
    flow_or_qps_difference_threshold_percentage: AtRunTime[float] = Field(
        _DEFAULT.flow_or_qps_difference_threshold_percentage,
        ge=0,
        description="Percent by which flow_or_qps_equally_divide wants a bundle over its limits.",
    )

    def balance_settings(self) -> BalanceSettings:
        """What is decided by; it may have a fault (`fault_of`)."""
        fields = {
            field: getattr(self, _setting_of(field)) for field in BalanceSettings.__struct_fields__
        }
        excluded = str(fields["shedding_excluded_namespaces"]).split(",")
        fields["shedding_excluded_namespaces"] = tuple(filter(None, map(str.strip, excluded)))
        algorithm = fields["default_namespace_bundle_split_algorithm"]
        fields["default_namespace_bundle_split_algorithm"] = SplitAlgorithm(algorithm)
        return BalanceSettings(**fields)

    def balance_problem(self) -> str:
        """What is wrong with them together, in words; "" for nothing."""
        wrong = fault_of(self.balance_settings())
        if wrong:
            return wrong
        least_ms = self.load_balancer_report_update_min_interval_millis
        longest_s = self.load_balancer_report_update_max_interval_minutes * 60
        if least_ms > longest_s * 1000:
            return (
                f"loadBalancerReportUpdateMinIntervalMillis is {least_ms} ms, more than "
                f"loadBalancerReportUpdateMaxIntervalMinutes, {longest_s:g} s: give less"
            )
        return ""
