"""The network's candidates and the proxy's occupancy against DESIGN's rules read aloud, one nanosecond at a time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.attribution.rdma import PAIRING, connect, run

ACCOUNT = ("_served_messages", "_carried_messages", "_ctl_occupancy", "_network_candidates")
Spans = list[tuple[int, int]]


@dataclass
class Sent:
    """A message of the oracle. One byte takes one nanosecond."""

    tid: int
    qp: int
    nic: str
    size: int
    enter: int
    exit: int
    complete: int | None
    doorbell: int | None
    op: int | None = None
    served: tuple[int, int] = (0, 0)
    outstanding: int = 0
    before: Sent | None = None
    follows: bool = False
    chain: bool = False
    waited_for: bool = False


@dataclass
class World:
    sent: list[Sent]
    ops: Spans
    states: dict[int, list[tuple[int, int, str]]]
    polls: Spans
    rtt0: int
    fetch: int
    categories: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    leaves: dict[tuple[int, str], set[int]] = field(default_factory=lambda: defaultdict(set))


def owner(world: World, at: int) -> int | None:
    """The operation that an instant belongs to: of those open, the one that started first."""
    return next((op for op, (start, end) in enumerate(world.ops) if start <= at < end), None)


def state(world: World, tid: int, at: int) -> str | None:
    return next((name for start, end, name in world.states[tid] if start <= at < end), None)


def wakeups(world: World, tid: int) -> list[int]:
    found, before = [], None
    for start, end, name in world.states[tid]:
        if name == "blocked":
            found.append(end)
        if name == "runnable" and before != "running":
            found.append(start)
        before = name
    return found


def tell(world: World) -> None:
    """Fill in service, chains, categories and leaves."""
    for message in world.sent:
        message.op = owner(world, message.enter)
    for nic in {m.nic for m in world.sent}:
        free = 0
        for m in sorted((m for m in world.sent if m.nic == nic), key=lambda m: (m.exit, m.enter)):
            begin = max(m.exit + world.fetch, free)
            m.served, free = (begin, begin + m.size), begin + m.size
    for qp in {m.qp for m in world.sent}:
        _find_chain(world, sorted((m for m in world.sent if m.qp == qp), key=lambda m: m.enter))
    carried = [m for m in world.sent if m.op is None or m.nic == _carrier(world, m.op)]
    _find_categories(world, carried)
    _find_leaves(world, [m for m in carried if m.op is not None])


def _released(queue: list[Sent], index: int) -> int | None:
    return next((m.complete for m in queue[index:] if m.complete is not None), None)


def _find_chain(world: World, queue: list[Sent]) -> None:
    for index, m in enumerate(queue):
        ends = [_released(queue, earlier) for earlier in range(index)]
        m.outstanding = sum(end is None or end > m.enter for end in ends)
        if index and queue[index - 1].op == m.op:
            m.before = queue[index - 1]
            since = m.before.exit if m.before.complete is None else m.before.complete
            m.follows = not any(since < at <= m.enter for at in wakeups(world, m.tid))
        elif index:
            m.before = queue[index - 1]
    member = [m.follows or (i + 1 < len(queue) and queue[i + 1].follows) for i, m in enumerate(queue)]
    members = [m for m, yes in zip(queue, member, strict=True) if yes]
    following = [m for m in queue if m.follows]
    prompt = 0
    for m in following:
        assert m.before is not None
        if m.before.complete is not None and m.before.complete <= m.enter:
            gap = range(m.before.complete, m.enter)
            prompt += sum(state(world, m.tid, at) != "runnable" for at in gap) <= 2_000
    light = sum(m.complete is not None and 2 * m.size < m.complete - m.exit for m in members)
    n = len(members)
    if n >= 8 and 10 * sum(m.outstanding == 0 for m in members) >= 9 * n:
        for m in members if 10 * prompt >= 9 * len(following) else []:
            m.waited_for, m.chain = True, 10 * light >= 9 * n


def _carrier(world: World, op: int) -> str:
    def last(m: Sent) -> int:
        queue = sorted((other for other in world.sent if other.qp == m.qp), key=lambda other: other.enter)
        released = _released(queue, queue.index(m))
        return m.exit if released is None else released

    ends = {(max(last(m) for m in world.sent if m.op == op and m.nic == nic), nic) for nic in _nics(world, op)}
    latest = max(end for end, _ in ends)
    return min(nic for end, nic in ends if end == latest)


def _nics(world: World, op: int) -> set[str]:
    return {m.nic for m in world.sent if m.op == op}


def _find_categories(world: World, carried: list[Sent]) -> None:
    for m in carried:
        queue = sorted((other for other in world.sent if other.qp == m.qp), key=lambda other: other.enter)
        released = _released(queue, queue.index(m))
        start, end = m.served
        due = end + world.rtt0
        world.categories["rdma_transfer"] |= set(range(start, end))
        world.categories["ctl_fetch"] |= set(range(m.exit, m.exit + world.fetch))
        base = "blocking_rtt" if m.chain else "net_latency"
        world.categories[base] |= set(range(end, due if released is None else min(due, released)))
        if m.complete is not None:
            world.categories["net_excess"] |= set(range(due, m.complete))
    for start, end in world.polls:
        world.categories["ctl_notify"] |= set(range(start, end))


def _find_leaves(world: World, messages: list[Sent]) -> None:
    polled = {at for start, end in world.polls for at in range(start, end)}
    for tid in {m.tid for m in messages}:
        own = sorted((m for m in messages if m.tid == tid), key=lambda m: m.enter)
        wants: dict[int, set[int]] = defaultdict(set)
        for before, m in zip([None, *own], own, strict=False):
            assert m.op is not None
            if m.doorbell is None:
                _busy(world, m.op, "ctl_post", range(m.enter, m.exit))
            else:
                _busy(world, m.op, "ctl_wqe", range(m.enter, m.doorbell))
                _busy(world, m.op, "ctl_doorbell", range(m.doorbell, m.exit))
            wants[m.op] |= set(range(min(world.ops[m.op][0], m.enter), m.enter))
            if m.complete is not None:
                wants[m.op] |= set(range(m.served[1] + world.rtt0, m.complete))
            if before is not None and before.op == m.op:
                since = before.exit
                if m.waited_for and m.outstanding == 0 and m.before is not None and m.before.complete is not None:
                    since = max(since, m.before.complete)
                for at in set(range(since, m.enter)) - polled:
                    leaf = {"running": "ctl_loop", None: "ctl_cpu"}.get(state(world, tid, at))
                    if leaf:
                        _busy(world, m.op, leaf, [at])
        for op, instants in wants.items():
            _busy(world, op, "ctl_schedule", [at for at in instants if state(world, tid, at) == "runnable"])


def _busy(world: World, op: int, leaf: str, instants: Any) -> None:
    found = {at for at in instants if owner(world, at) == op}
    if found:
        world.leaves[op, leaf] |= found
        world.categories["ctl_cpu"] |= found


@st.composite
def worlds(draw: st.DrawFn) -> World:
    small = st.integers(0, 12)
    rtt0, fetch = draw(st.integers(0, 30)), draw(st.sampled_from([0, 3]))
    waits = draw(st.booleans())
    threads = draw(st.sampled_from([1, 2]))
    sent: list[Sent] = []
    for tid in range(threads):
        now, last_seen = draw(small), 0
        for _ in range(draw(st.integers(8, 14) if waits else st.integers(0, 8))):
            enter = now + draw(st.integers(0, 3) if waits else small)
            exit_ns = enter + draw(small)
            size = draw(st.integers(1, 4 if waits else 25))
            flight = size + fetch + (rtt0 + draw(st.sampled_from([0, 0, 0, 9]))) if waits else draw(st.integers(0, 60))
            complete = max(exit_ns + flight, last_seen + 1)
            last_seen = complete
            doorbell = draw(st.sampled_from([None, enter + (exit_ns - enter) // 2]))
            sent.append(Sent(tid, tid, draw(st.sampled_from(["a", "a", "b"])) if not waits else "a", size, enter,
                             exit_ns, complete, doorbell))  # fmt: skip
            now = max(complete if waits else exit_ns, exit_ns) + 1
        # The last completions may come after the capture.
        for m in sent[len(sent) - draw(st.integers(0, 2)) :] if not waits else []:
            if m.tid == tid:
                m.complete = None
    ops, at = [], draw(small)
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 400 if waits else 80))
        ops.append((at, at + length))
        at += draw(st.integers(1, length + 20))
    states = {}
    for tid in range(threads):
        at, slices = draw(st.integers(-5, 20)), []
        for _ in range(draw(st.integers(0, 10))):
            length = draw(st.integers(1, 40))
            slices.append((at, at + length, draw(st.sampled_from(["running", "running", "runnable", "blocked"]))))
            at += length
        states[tid] = slices
    polls = [(start, start + draw(st.integers(1, 30))) for start in draw(st.lists(st.integers(0, 150), max_size=2))]
    return World(sent, ops, states, polls, rtt0, fetch)


def spans_to_instants(rows: list[tuple[Any, ...]]) -> dict[Any, set[int]]:
    found: dict[Any, set[int]] = defaultdict(set)
    for key, start, end in rows:
        found[key] |= set(range(start, end))
    return dict(found)


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(worlds())
def test_every_instant_is_claimed_as_the_rules_read(world: World) -> None:
    connection = run(
        connect(
            ranks=[{}],
            rdma_posts=[
                {"tid": m.tid, "qp": m.qp, "nic": m.nic, "wr_id": k, "bytes": m.size, "enter_ns": m.enter,
                 "exit_ns": m.exit, "doorbell_ns": m.doorbell}
                for k, m in enumerate(world.sent)
            ],
            rdma_completions=[
                {"tid": m.tid, "qp": m.qp, "wr_id": k, "seen_ns": m.complete}
                for k, m in enumerate(world.sent)
                if m.complete is not None
            ],
            _operations=[{"op_id": op, "start_ns": start, "end_ns": end} for op, (start, end) in enumerate(world.ops)],
            thread_states=[
                {"tid": tid, "start_ns": start, "end_ns": end, "state": name}
                for tid, slices in world.states.items()
                for start, end, name in slices
            ],
            comm_phases=[{"phase": "SendGPUWait", "start_ns": start, "end_ns": end} for start, end in world.polls],
            _links=[
                {"nic": nic, "beta_bytes_per_s": 10**9, "rtt0_ns": world.rtt0, "fetch_ns": world.fetch} for nic in "ab"
            ],
        ),
        (*PAIRING, *ACCOUNT),
    )  # fmt: skip
    tell(world)
    chains = connection.execute("SELECT wr_id FROM _served_messages WHERE chain ORDER BY wr_id").fetchall()
    assert [row[0] for row in chains] == [k for k, m in enumerate(world.sent) if m.chain]
    leaves = connection.execute("SELECT (op_id, leaf), start_ns, end_ns FROM _ctl_occupancy").fetchall()
    assert spans_to_instants(leaves) == dict(world.leaves)
    claims = connection.execute("SELECT category, start_ns, end_ns FROM _network_candidates").fetchall()
    assert spans_to_instants(claims) == {name: instants for name, instants in world.categories.items() if instants}
