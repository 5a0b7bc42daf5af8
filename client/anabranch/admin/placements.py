"""The places that bundles may have: isolation policies and failure domains of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from anabranch.admin.calls import Answer, Call, Resource, RestMethod, TransportT, nothing, path
from anabranch.core import names


class FailoverParameters(Answer, frozen=True, rename=None):
    """The condition under which secondary brokers may take bundles."""

    min_limit: int  # while fewer primary ones than this are there
    usage_threshold: int  # percent; kept, and decides nothing


class FailoverPolicy(Answer, frozen=True, rename=None):
    """The rule for missing primary brokers."""

    policy_type: str
    parameters: FailoverParameters


class IsolationData(Answer, frozen=True, rename=None):
    """The brokers that the bundles of some namespaces belong to.
    All fields are patterns of whole names.
    """

    namespaces: list[str]
    primary: list[str]
    secondary: list[str]
    auto_failover_policy: FailoverPolicy


class BrokerIsolationData(Answer, frozen=True):
    """The part of one isolation policy that concerns one broker."""

    broker_name: str
    policy_name: str
    primary: bool
    namespace_regex: list[str]


class FailureDomainData(Answer, frozen=True):
    """Brokers that fail together, by their ids."""

    brokers: list[str]


_POLICIES: Final = msgspec.json.Decoder(dict[str, IsolationData]).decode
_POLICY: Final = msgspec.json.Decoder(IsolationData).decode
_BROKERS: Final = msgspec.json.Decoder(list[BrokerIsolationData]).decode
_DOMAINS: Final = msgspec.json.Decoder(dict[str, FailureDomainData]).decode
_DOMAIN: Final = msgspec.json.Decoder(FailureDomainData).decode


def _policies(cluster: str, *more: str) -> str:
    return path("admin", "v2", "clusters", cluster, "namespaceIsolationPolicies", *more)


def _domains(cluster: str, *more: str) -> str:
    return path("admin", "v2", "clusters", cluster, "failureDomains", *more)


class Placements(Resource[TransportT]):
    """Operations on isolation policies and failure domains.
    `tenants.get_clusters` returns the cluster's name.
    """

    @RestMethod
    def get_isolation_policies(self, cluster: str) -> Call[dict[str, IsolationData]]:
        """Returns all isolation policies, by name."""
        return Call("GET", _policies(cluster), _POLICIES)

    @RestMethod
    def get_isolation_policy(self, cluster: str, policy_name: str) -> Call[IsolationData]:
        """Returns one isolation policy."""
        return Call("GET", _policies(cluster, policy_name), _POLICY)

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
        return Call("POST", _policies(cluster, policy_name), nothing, body=body)

    @RestMethod
    def delete_isolation_policy(self, cluster: str, policy_name: str) -> Call[None]:
        """Deletes an isolation policy."""
        return Call("DELETE", _policies(cluster, policy_name), nothing)

    @RestMethod
    def get_isolated_brokers(self, cluster: str) -> Call[list[BrokerIsolationData]]:
        """Returns the policies of each broker that serves now."""
        return Call("GET", _policies(cluster, "brokers"), _BROKERS)

    @RestMethod
    def get_isolated_broker(self, cluster: str, broker: str) -> Call[list[BrokerIsolationData]]:
        """Returns the policies of one broker, serving or not."""
        return Call("GET", _policies(cluster, "brokers", names.broker_id(broker)), _BROKERS)

    @RestMethod
    def get_failure_domains(self, cluster: str) -> Call[dict[str, FailureDomainData]]:
        """Returns all failure domains, by name."""
        return Call("GET", _domains(cluster), _DOMAINS)

    @RestMethod
    def get_failure_domain(self, cluster: str, domain: str) -> Call[FailureDomainData]:
        """Returns one failure domain."""
        return Call("GET", _domains(cluster, domain), _DOMAIN)

    @RestMethod
    def set_failure_domain(self, cluster: str, domain: str, brokers: Sequence[str]) -> Call[None]:
        """Creates a failure domain, or replaces its brokers. A broker is in one domain at most."""
        return Call("POST", _domains(cluster, domain), nothing, body={"brokers": list(brokers)})

    @RestMethod
    def delete_failure_domain(self, cluster: str, domain: str) -> Call[None]:
        """Deletes a failure domain. Its brokers stay."""
        return Call("DELETE", _domains(cluster, domain), nothing)
