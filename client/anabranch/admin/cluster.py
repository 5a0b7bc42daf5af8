"""A cluster: its brokers and settings, its load balancer, places of bundles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.admin.calls import Call, Resource, RestMethod, TransportT, path
from anabranch.admin.models import (
    BalanceOutlook,
    BrokerAddresses,
    BrokerIsolationData,
    FailureDomainData,
    IsolationData,
    LeaderBroker,
    NamespaceOwnershipStatus,
    NodeStatus,
    SettingOverrideData,
)
from anabranch.core import names
from anabranch.core.entities.override import is_setting_name
from anabranch.core.errors import InvalidInputError


def _brokers(*more: str) -> str:
    return path("admin", "v2", "brokers", *more)


def _setting(name: str) -> str:
    if not is_setting_name(name):
        raise InvalidInputError(
            f"{name!a:.200} is no setting: write its name as `anabranch settings` has it"
        )
    return name


def _policies(cluster: str, *more: str) -> str:
    return path("admin", "v2", "clusters", cluster, "namespaceIsolationPolicies", *more)


def _domains(cluster: str, *more: str) -> str:
    return path("admin", "v2", "clusters", cluster, "failureDomains", *more)


class Brokers(Resource[TransportT]):
    """Operations on brokers."""

    @RestMethod
    def get_active_brokers(self, cluster: str = "") -> Call[list[str]]:
        """Returns the ids (host:port) of the brokers that serve now.
        A node refuses a `cluster` that is not its own.
        """
        return Call("GET", _brokers(*filter(None, (cluster,))))

    @RestMethod
    def get_leader_broker(self) -> Call[LeaderBroker]:
        """Returns the broker that leads. Raises NotFoundError while there is none."""
        return Call("GET", _brokers("leaderBroker"))

    @RestMethod
    def list_addresses(self) -> Call[list[BrokerAddresses]]:
        """Returns the addresses of each broker that serves now."""
        return Call("GET", _brokers("addresses"))

    @RestMethod
    def get_owned_namespaces(
        self, cluster: str, broker: str
    ) -> Call[dict[str, NamespaceOwnershipStatus]]:
        """Returns the bundles that a broker owns, by tenant/namespace/range."""
        return Call("GET", _brokers(cluster, names.broker_id(broker), "ownedNamespaces"))

    @RestMethod
    def get_status(self) -> Call[NodeStatus]:
        """Returns the mode, the lease and the place in the log of the node that is asked."""
        return Call("GET", _brokers("status"))

    @RestMethod
    def get_runtime_configurations(self) -> Call[dict[str, str]]:
        """Returns the settings of the node that is asked, as text by name."""
        return Call("GET", _brokers("configuration", "runtime"))

    @RestMethod
    def get_setting_overrides(self) -> Call[dict[str, SettingOverrideData]]:
        """Returns the overrides by name, with the former value, the time and the broker of the
        change.
        """
        return Call("GET", _brokers("configuration", "overrides"))

    @RestMethod
    def update_dynamic_configuration(self, name: str, value: str) -> Call[None]:
        """Overrides a setting for all nodes.
        Raises PreconditionError for a value that cannot be used.
        """
        return Call("POST", _brokers("configuration", _setting(name), value))

    @RestMethod
    def delete_dynamic_configuration(self, name: str) -> Call[None]:
        """Removes an override, so that every node goes by its own setting again."""
        return Call("DELETE", _brokers("configuration", _setting(name)))

    @RestMethod
    def get_version(self) -> Call[str]:
        """Returns the version of the node that is asked."""
        return Call("GET", _brokers("version"))

    @RestMethod
    def health_check(self) -> Call[str]:
        """Returns `ok` while the node may own bundles. Raises UnavailableError while it may not."""
        return Call("GET", _brokers("health"))

    @RestMethod
    def ready_check(self) -> Call[str]:
        """Returns `ok` once the node serves. Raises UnavailableError before."""
        return Call("GET", _brokers("ready"))


class Placements(Resource[TransportT]):
    """Operations on isolation policies and failure domains.
    `tenants.get_clusters` returns the cluster's name.
    """

    @RestMethod
    def get_isolation_policies(self, cluster: str) -> Call[dict[str, IsolationData]]:
        """Returns all isolation policies, by name."""
        return Call("GET", _policies(cluster))

    @RestMethod
    def get_isolation_policy(self, cluster: str, policy_name: str) -> Call[IsolationData]:
        """Returns one isolation policy."""
        return Call("GET", _policies(cluster, policy_name))

    @RestMethod
    def set_isolation_policy(
        self,
        cluster: str,
        policy_name: str,
        namespaces: Sequence[str],
        primary: Sequence[str],
        secondary: Sequence[str] = (),
        *,
        min_limit: int = 0,
        usage_threshold: int = 100,
    ) -> Call[None]:
        """Creates or replaces an isolation policy. This moves no bundle.

        `namespaces` are patterns of names, `primary` and `secondary` patterns of brokers' hosts or
        ids. The balancer may choose a secondary broker while fewer than `min_limit` primary ones
        are there.
        """
        body: dict[str, Any] = {
            "namespaces": list(namespaces),
            "primary": list(primary),
            "secondary": list(secondary),
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": min_limit, "usage_threshold": usage_threshold},
            },
        }
        return Call("POST", _policies(cluster, policy_name), body=body)

    @RestMethod
    def delete_isolation_policy(self, cluster: str, policy_name: str) -> Call[None]:
        """Deletes an isolation policy."""
        return Call("DELETE", _policies(cluster, policy_name))

    @RestMethod
    def get_isolated_brokers(self, cluster: str) -> Call[list[BrokerIsolationData]]:
        """Returns the policies of each broker that serves now."""
        return Call("GET", _policies(cluster, "brokers"))

    @RestMethod
    def get_failure_domains(self, cluster: str) -> Call[dict[str, FailureDomainData]]:
        """Returns all failure domains, by name."""
        return Call("GET", _domains(cluster))

    @RestMethod
    def get_failure_domain(self, cluster: str, domain: str) -> Call[FailureDomainData]:
        """Returns one failure domain."""
        return Call("GET", _domains(cluster, domain))

    @RestMethod
    def set_failure_domain(self, cluster: str, domain: str, brokers: Sequence[str]) -> Call[None]:
        """Creates a failure domain, or replaces its brokers. A broker is in one domain at most."""
        return Call("POST", _domains(cluster, domain), body={"brokers": list(brokers)})

    @RestMethod
    def delete_failure_domain(self, cluster: str, domain: str) -> Call[None]:
        """Deletes a failure domain. Its brokers stay."""
        return Call("DELETE", _domains(cluster, domain))


class BalanceQuestions(Resource[TransportT]):
    """Questions to the load balancer. The leader answers."""

    @RestMethod
    def get_outlook(self) -> Call[BalanceOutlook]:
        """Returns the brokers' loads, their deviation, and what the next cycle would do."""
        return Call("GET", path("admin", "v2", "balance"))
