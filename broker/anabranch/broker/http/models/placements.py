"""Bodies about where bundles may be: isolation policies and failure domains, as Pulsar has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, StrictInt, model_validator
from pydantic_core import PydanticCustomError

from anabranch.broker.http.models.wanted import Texts, Wanted
from anabranch.core.entities.placement_policy import check_isolation
from anabranch.core.errors import InvalidInputError
from anabranch.core.policies.patterns import check_patterns

_Patterns = Annotated[Texts, Field(default_factory=list)]


def _whole(value: object) -> object:
    """Pulsar's clients send these numbers as text."""
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10
    return int(value) if is_text and isinstance(value, str) else value


_Whole = Annotated[StrictInt, BeforeValidator(_whole)]


class FailoverParameters(Wanted):
    """The condition on which other brokers than the primary ones help out."""

    min_limit: _Whole = Field(
        default=0,
        description="Secondary brokers may be chosen while fewer primary ones than this are there.",
    )
    usage_threshold: _Whole = Field(default=100, description="Percent; kept, and decides nothing.")


class FailoverPolicy(Wanted):
    """The answer to missing primary brokers."""

    policy_type: Literal["min_available"] = "min_available"
    parameters: FailoverParameters = Field(default_factory=FailoverParameters)


class IsolationData(Wanted):
    """The brokers that the bundles of some namespaces belong to.

    All are patterns of whole names: those of namespaces, and brokers' hosts or ids, host:port.
    """

    namespaces: _Patterns
    primary: _Patterns
    secondary: _Patterns
    auto_failover_policy: FailoverPolicy = Field(default_factory=FailoverPolicy)

    @model_validator(mode="after")
    def _possible(self) -> IsolationData:
        parameters = self.auto_failover_policy.parameters
        try:
            check_isolation(
                self.namespaces,
                self.primary,
                self.secondary,
                parameters.min_limit,
                parameters.usage_threshold,
            )
            check_patterns((*self.namespaces, *self.primary, *self.secondary))
        except InvalidInputError as error:  # as it is, pydantic would keep it, with its frames
            raise PydanticCustomError("isolation", "{why}", {"why": str(error)}) from None
        return self


class BrokerIsolationData(BaseModel):
    """One isolation policy's standing for one broker."""

    brokerName: str
    policyName: str
    primary: bool
    namespaceRegex: list[str]


class FailureDomainData(Wanted):
    """Brokers that fail together, by their ids, host:port."""

    brokers: Texts
