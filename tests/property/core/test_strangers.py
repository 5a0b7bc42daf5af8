"""What clients use up is counted right, whatever they do in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anabranch.core.strangers import AccountLimits, PortAccount, PortRefusal, stranger_of

ADDRESSES = ("a", "b", "c")
LIMITS = AccountLimits(
    connections=7,
    connections_per_ip=4,
    watches=9,
    memory=90,
)
MEMBERS = st.integers(0, 11)


class Clients(RuleBasedStateMachine):
    """A plain count beside the account: of each connection its address, watches and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.account: PortAccount[int] = PortAccount(LIMITS)
        self.address: dict[int, str] = {}
        self.silent: list[int] = []
        self.watches: Counter[int] = Counter()
        self.memory: Counter[int] = Counter()
        self.out: set[int] = set()

    def of(self, member: int, counted: Callable[[int], int]) -> int:
        """Of all connections of its address."""
        mine = self.address[member]
        return sum(counted(each) for each, address in self.address.items() if address == mine)

    @rule(member=MEMBERS, address=st.sampled_from(ADDRESSES))
    def join(self, member: int, address: str) -> None:
        if member in self.address:
            return
        found = self.account.join(member, address)
        here = sum(each == address for each in self.address.values())
        if here >= 4:
            assert found.refusal is PortRefusal.CONNECTIONS_PER_IP
        elif len(self.address) >= 7 and not self.silent:
            assert found.refusal is PortRefusal.CONNECTIONS
        else:
            wanted = self.silent[0] if len(self.address) >= 7 else None
            assert (found.refusal, found.gives_way) == (None, wanted)
            if wanted is not None:
                self.gone(wanted)
            self.address[member] = address
            self.silent.append(member)

    def gone(self, member: int) -> None:
        self.address.pop(member, None)
        self.out.discard(member)
        del self.watches[member]
        del self.memory[member]
        self.silent = [each for each in self.silent if each != member]

    @rule(member=MEMBERS)
    def greet(self, member: int) -> None:
        self.account.greet(member)
        self.silent = [each for each in self.silent if each != member]

    @rule(member=MEMBERS)
    def leave(self, member: int) -> None:
        self.account.leave(member)
        self.gone(member)

    @rule(member=MEMBERS)
    def open_watch(self, member: int) -> None:
        refusal = self.account.open_watch(member)
        if member not in self.address:
            assert refusal is None
        elif self.watches.total() >= 9 or self.of(member, lambda each: self.watches[each]) >= 5:
            assert refusal is PortRefusal.WATCHES
        else:
            assert refusal is None
            self.watches[member] += 1

    @rule(member=MEMBERS)
    def close_watch(self, member: int) -> None:
        self.account.close_watch(member)
        if self.watches[member]:
            self.watches[member] -= 1

    @rule(member=MEMBERS, memory=st.integers(0, 80))
    def keep(self, member: int, memory: int) -> None:
        is_over = self.account.keep(member, memory)
        if member not in self.address or member in self.out:
            assert not is_over
            return
        self.memory[member] = memory
        if not is_over:
            return
        for victim in self.account.overflow():  # an address that uses less keeps what it has
            mine = self.of(victim, lambda each: self.memory[each])
            assert self.memory.total() > 90
            assert all(self.of(each, lambda one: self.memory[one]) <= mine for each in self.address)
            assert self.memory[victim] == max(
                self.memory[each]
                for each in self.address
                if self.address[each] == self.address[victim]
            )
            self.memory[victim] = 0
            self.out.add(victim)

    @invariant()
    def nothing_is_lost_and_nothing_too_much(self) -> None:
        assert self.account.connections == len(self.address) <= 7
        assert self.account.strangers == len(set(self.address.values()))
        assert self.account.watches == self.watches.total() <= 9
        assert self.account.memory == self.memory.total() <= 90
        for member in self.address:
            assert self.account.watches_of(member) == self.watches[member]

    def teardown(self) -> None:
        for member in list(self.address):
            self.account.leave(member)
        found = self.account
        assert (found.connections, found.strangers, found.watches, found.memory) == (0, 0, 0, 0)
        kept = (found._uses, found._strangers, found._ungreeted)
        assert not any(kept)  # of those who have left


TestClients = Clients.TestCase


@given(st.ip_addresses(v=6), st.integers(0, 2**64 - 1))
def test_whatever_a_network_of_ipv6_calls_itself_it_is_one_stranger(
    address: IPv6Address, host: int
) -> None:
    other = IPv6Address(int(address) >> 64 << 64 | host)
    plain = all(
        each.ipv4_mapped is None and not each.is_link_local and not each.is_loopback
        for each in (address, other)
    )
    assert not plain or stranger_of(str(address)) == stranger_of(str(other))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_itself_also_where_ipv6_writes_it(address: IPv4Address) -> None:
    assert stranger_of(f"::ffff:{address}") == stranger_of(str(address)) == str(address)


@given(st.text())
def test_whatever_else_a_peer_is_called_is_its_name(name: str) -> None:
    assert stranger_of(name) or name == ""
