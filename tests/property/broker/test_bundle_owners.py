"""The cache of look-ups answers as the view itself does, whatever has changed in between."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.bundle_owners import Routes, owner_to_name
from anabranch.core.entities.tenant import NamespaceInfo
from anabranch.core.entities.unit import Move, Unit, UnitState
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import namespace_key
from anabranch.core.log.state import Change
from anabranch.core.names import Namespace, parse_topic
from anabranch.core.ring import FULL_RING, bundle_name, even_ranges, split_bundle_name, topic_hash

HOMES = (Namespace("public/a"), Namespace("public/b"))
TOPICS = [f"public/a/t{n}" for n in range(20)] + [f"public/b/t{n}" for n in range(20)]
BROKERS = ("x:1", "y:1")

steps = st.lists(
    st.tuples(
        st.sampled_from(["own", "free", "split", "drop", "make", "look"]),
        st.integers(0, 63),
        st.sampled_from(BROKERS),
    ),
    max_size=40,
)


def unit(state: UnitState, broker: str = "") -> Unit:
    return Unit(state, broker, "", 1, Move.CREATE, 0, 0, "")


def created(home: Namespace) -> list[Change]:
    free = unit(UnitState.FREE)
    bundles: list[Change] = [(bundle_name(home, part), free) for part in even_ranges(3)]
    return [(namespace_key(home), NamespaceInfo(1, 3, 0, "")), *bundles]


def changed(state: MemoryReplica, what: str, number: int, broker: str) -> list[Change]:
    home = HOMES[number % len(HOMES)]
    live = [(n, u) for n, u in state.bundles(home) if u.state is not UnitState.DELETED]
    if what == "make":
        return [] if live else created(home)
    if not live:
        return []
    name, _ = live[number % len(live)]
    if what == "drop":
        return [(namespace_key(home), None), *((n, None) for n, _ in state.bundles(home))]
    if what == "split":
        parts = split_bundle_name(name)[1].halves()
        owned = unit(UnitState.OWNED, broker)
        gone: Change = (name, unit(UnitState.DELETED))
        return [gone, *((bundle_name(home, part), owned) for part in parts)]
    kind = UnitState.OWNED if what == "own" else UnitState.FREE
    return [(name, unit(kind, broker if what == "own" else ""))]


@given(st.lists(steps, max_size=5), st.integers(1, 12))
def test_the_cache_and_the_view_agree_after_any_batches(
    batches: list[list[tuple[str, int, str]]], slots_max: int
) -> None:
    state = MemoryReplica()
    routes = Routes(state, slots_max)
    for batch in batches:
        changes: list[Change] = []
        for what, number, broker in batch:
            step = changed(state, what, number, broker)
            state.apply(step)
            changes += step
        routes.changed(changes)
        for topic in TOPICS:
            name, home = parse_topic(topic)
            found = state.bundle_at(home, topic_hash(name))
            expected = owner_to_name(found[1]) if found else ""
            assert routes.owner(name, home) == expected


def test_the_last_hash_of_the_ring_belongs_to_the_last_bundle() -> None:
    state = MemoryReplica()
    state.apply(created(HOMES[0]))
    last = bundle_name(HOMES[0], even_ranges(3)[-1])
    state.apply([(last, unit(UnitState.OWNED, "x:1"))])
    assert FULL_RING.upper in split_bundle_name(last)[1]
    routes = Routes(state)
    above = next(
        name
        for n in range(1000)
        if topic_hash(name := f"persistent://{HOMES[0]}/{n}") >= split_bundle_name(last)[1].lower
    )
    assert routes.owner(above, HOMES[0]) == "x:1"


def test_a_look_up_names_the_owner_while_it_serves_and_nobody_while_a_bundle_moves() -> None:
    named = {state for state in UnitState if owner_to_name(unit(state, "x:1"))}
    assert named == {UnitState.OWNED, UnitState.SPLITTING}
