"""Bodies about the load balancer (Anabranch's own)."""

from __future__ import annotations

from pydantic import BaseModel, Field


class BrokerLoadStats(BaseModel):
    """A broker's load as it was reported; null where nothing was."""

    brokerId: str
    load: float | None = Field(
        description="The moving average that decisions are made by; 1 is all of a resource."
    )
    msgThroughput: float | None = Field(description="Bytes a second, in and out.")
    msgRate: float | None = Field(description="Messages a second, in and out.")
    bundles: int | None
    topics: int | None
    updatedMillis: int | None = Field(description="Time of the measurement.")
    reportedBundles: int = Field(description="Bundles that it has told the leader of.")
    ignored: str = Field(description="Why this load takes no part; empty if it does.")


class UnmovedBundle(BaseModel):
    """A bundle that was reported, and is not offered."""

    bundle: str
    reason: str
    why: str
    setting: str = Field(description="The setting that could change this; empty for none.")


class ExchangeStats(BaseModel):
    """Two brokers, the more loaded one first, and their exchange."""

    source: str
    destination: str
    wanted: float = Field(description="Bytes a second that should go.")
    moved: float = Field(description="Bytes a second that would go, less what comes back.")
    stopped: str = Field(description="Why not more.")
    why: str
    nextBundle: str = Field(description="The bundle that it stopped at; empty for none.")
    unmoved: list[UnmovedBundle]


class UnloadStats(BaseModel):
    """A bundle that would be moved."""

    bundle: str
    source: str
    destination: str = Field(description="Empty: the broker that the next look-up finds.")
    reason: str
    deviation: float = Field(description="Deviation of the loads before its cycle.")
    predicted: float = Field(description="The same, after.")


class CycleStats(BaseModel):
    """One cycle of shedding."""

    ended: str = Field(description="Why it does no more.")
    why: str
    setting: str = Field(description="The setting that could change this; empty for none.")
    condition: str | None = Field(description="Why there is something to do; null if there is not.")
    counted: str | None = Field(description="The metrics' word for it if it moves nothing.")
    hits: int = Field(description="Cycles in a row with a condition, after this one.")
    average: float | None = Field(
        description="Average of the loads; null if the cycle ends before that."
    )
    deviation: float | None
    predicted: float | None = Field(description="The deviation when all is done.")
    awaited: list[str] = Field(description="Brokers whose next report it waits for.")
    thresholds: str = Field(
        description="Thresholds that hold in place of the settings, and why; empty for none."
    )
    strategy: str = Field(description="Your own strategy that decided; empty for the built-in one.")
    fault: str = Field(description="Why the strategy that is set did not decide; empty if it did.")
    exchanges: list[ExchangeStats]
    unloads: list[UnloadStats]


class BalanceOutlook(BaseModel):
    """The brokers' loads, and the leader's next step."""

    leader: str
    atMillis: int = Field(description="The log's time.")
    nextCycleMillis: int | None = Field(
        description="Time until the leader's next cycle; null if it is not known."
    )
    settings: dict[str, bool | int | float | str] = Field(
        description="Values of the balancer's settings, by name."
    )
    average: float | None = Field(description="Average of the loads that take part; null for none.")
    deviation: float | None
    hits: int = Field(description="Cycles in a row with a condition so far.")
    prevented: str = Field(description="Why there is no cycle; empty if there is.")
    brokers: list[BrokerLoadStats]
    cycles: list[CycleStats] = Field(description="The next one; none where it is prevented.")


class AutomaticMoveStats(BaseModel):
    """A move or split that the balancer decided on by itself."""

    offset: int = Field(description="Its place in the log.")
    timestampMillis: int
    move: str = Field(description="RELEASE or SPLIT.")
    bundle: str
    to: str = Field(description="The next owner, empty if a look-up finds it; or the parts.")
    reason: str
    deviation: float | None = Field(
        description="Deviation of the loads at the time of the decision."
    )
    predicted: float | None = Field(description="The same, as it should be after this one.")
    rule: str = Field(
        description="The reason, with the strategy and thresholds where not built in, or as set."
    )
    observed: float | None = Field(
        description="The deviation that the next cycle with a move has found; null for none yet."
    )


class BalanceHistoryStats(BaseModel):
    """The newest of them that a node has read, the oldest first."""

    sinceOffset: int = Field(description="Earlier entries of the log are not known here.")
    moves: list[AutomaticMoveStats]
