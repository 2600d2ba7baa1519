"""Plays a scenario: ranks, streams, launch threads, proxies and NICs, one step after another.

Time is true time, int64 ns from the start of the capture; clocks are put on when files are written. Every quantity
is an array over ranks; collectives are the only places where ranks meet. What happened is kept in `Played`:
events for the writers, and the simulator's own intervals for the truth.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from pipeline.model.categories import BY_NAME
from pipeline.simulate.network import Ints, fifo, next_at_or_after, serial_posts
from pipeline.simulate.scenarios import Scenario

LAUNCH_NS = 4_000
"""A kernel launch call, traced."""
PYTHON_NS = 3_000
"""The launch thread between two calls."""
LAUNCH_LATENCY_NS = 1_500
"""From the end of the launch call to an idle GPU starting the kernel."""
KERNEL_GAP_NS = 600
"""Between two kernels of a stream."""
NOTIFY_NS = 1_000
"""From the kernel's flag to the wake-up of the proxy (DESIGN: ctl_notify)."""
WAKE_NS = 3_000
"""From wake-up to running."""
FIRST_LOOP_NS = 300
KERNEL_EXIT_NS = 1_500
"""From the last flag to the end of a communication kernel."""
LOSS_COPY_NS = 2_000
LEAD_IN_NS = 2_000_000
"""Capture starts this long before the first step."""

CODES = {name: code for code, name in enumerate(BY_NAME)}
"""Categories as numbers, for columns."""
COMPUTE_STREAM, COMM_STREAM, COPY_STREAM = 7, 24, 16


SPILL_BYTES = 1 << 28
"""A table's columns beyond this go to temporary files: tens of millions of messages do not fit into memory."""


class Columns:
    """Growing columns: appends arrays (or scalars, broadcast), gives each column as one array.

    kept: False forgets all that is added. What is spilled is read back through the page cache.
    """

    def __init__(self, *, kept: bool = True) -> None:
        self._parts: dict[str, list[np.ndarray[Any, Any]]] = defaultdict(list)
        self._files: dict[str, IO[bytes]] = {}
        self._kept = kept
        self._held_bytes = 0
        self._rows = 0

    def add(self, **values: Any) -> None:
        if not self._kept:
            return
        shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
        for name, value in values.items():
            part = np.broadcast_to(np.asarray(value), shape).flatten()
            self._parts[name].append(part)
            self._held_bytes += part.nbytes
        self._rows += math.prod(shape)
        if self._held_bytes > SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        """Move numbers to files. A column keeps one type, and texts (few of them) stay where they are."""
        for name, parts in self._parts.items():
            if all(part.dtype == np.int64 for part in parts):
                if name not in self._files:
                    self._files[name] = tempfile.TemporaryFile()  # noqa: SIM115 (it goes with the object)
                for part in parts:
                    self._files[name].write(part.data)
                parts.clear()
        self._held_bytes = 0

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        parts = self._parts[name]
        if name in self._files:
            file = self._files[name]
            for part in parts:
                file.write(part.data)
            parts.clear()
            file.flush()
            return np.memmap(file, np.int64, "r")
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self._rows


@dataclass(frozen=True)
class Loss:
    """Records of a node's collector that were stamped in [start_ns, end_ns) are lost; it is known to the record
    before and the record after (`known`)."""

    node: int
    start_ns: int
    end_ns: int
    known: tuple[int, int]
    events: int


@dataclass
class Played:
    """What happened. rank is a column of every table; op counts a rank's communication operations.

    gpu: start, end, stream, name, what (compute, comm, copy), bytes, launch_start, launch_end, correlation, step
    api: start, end, name, correlation. nvtx: start, end, text, domain. os: start, end, name.
    posts: enter, exit (as a probe stamps them), body, rung (the function itself), peer, qp, wr_id, bytes, op
    done: seen, qp, wr_id, order. switches: at, what (0 off runnable, 1 off blocked, 2 woken, 3 on), other.
    ops: op, step, arrival, last_arrival, culprit, end, network (whether messages of it can be seen)
    truth: start, end, category (a number of CODES), op. wire: bytes and messages on each NIC.
    """

    scenario: Scenario
    nodes: int
    gpus_per_node: int
    steps: int
    nic: tuple[int, ...] = ()
    """The NIC of each rank, counted over the cluster."""
    peers: tuple[tuple[int, ...], ...] = ()
    """The ranks that each rank sends to."""
    end_ns: int = 0
    losses: list[Loss] = field(default_factory=list)
    gpu: Columns = field(default_factory=Columns)
    api: Columns = field(default_factory=Columns)
    nvtx: Columns = field(default_factory=Columns)
    os: Columns = field(default_factory=Columns)
    posts: Columns = field(default_factory=Columns)
    done: Columns = field(default_factory=Columns)
    switches: Columns = field(default_factory=Columns)
    ops: Columns = field(default_factory=Columns)
    truth: Columns = field(default_factory=Columns)
    wire: Columns = field(default_factory=Columns)

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node


def expected_gap_ns(scenario: Scenario) -> float:
    """Distance between posts of a proxy (or of the GPU) that makes the exchanges take exposed_ns, undisturbed."""
    messages = scenario.messages // scenario.exchanges
    wire = -(-scenario.message_bytes * 10**9 // scenario.beta_bytes_per_s)
    flight = scenario.fetch_ns + wire + scenario.rtt0_ns + scenario.poll_ns + KERNEL_EXIT_NS
    start = NOTIFY_NS + WAKE_NS + FIRST_LOOP_NS + scenario.probe_before_ns + scenario.post_ns
    overhead = (
        62_000 if scenario.kind == "decode" else 90_000
    ) / scenario.exchanges  # the small all-reduces, copies and gaps of the step
    return (scenario.exposed_ns / scenario.exchanges - flight - start - overhead) / (messages - 1)


class Cluster:
    """The state of all ranks while a scenario is played."""

    def __init__(
        self, scenario: Scenario, nodes: int, gpus_per_node: int, steps: int, seed: int, *, truth: bool = True
    ) -> None:
        self.s = scenario
        self.out = Played(scenario, nodes, gpus_per_node, steps, truth=Columns(kept=truth))
        self.rng = np.random.default_rng(seed)
        self.n = nodes * gpus_per_node
        self.rank = np.arange(self.n, dtype=np.int64)
        self.node = self.rank // gpus_per_node
        self.local = self.rank % gpus_per_node
        self.nic = self.rank.copy()
        if scenario.shared_nic:
            self.nic[self.local == 1] -= 1
        self.peer = self._peers()
        self.out.nic = tuple(self.nic.tolist())
        self.out.peers = tuple(tuple(row) for row in self.peer.tolist())
        zero = np.zeros(self.n, np.int64)
        self.cpu = zero + LEAD_IN_NS
        self.gpu = zero.copy()
        self.gpu_last = zero.copy()
        self.correlation = zero + 1_000
        self.op = 0
        self.step = 0
        self.busy_until = zero.copy()
        self.posted = np.zeros((self.n, self.peer.shape[1], scenario.qps_per_peer), np.int64)
        self.python = zero + PYTHON_NS
        if scenario.slow_launch_rank is not None:
            self._slow(scenario.slow_launch_rank % self.n)

    # What the ranks are.

    def _peers(self) -> Ints:
        """[ranks, peers]: ranks on other nodes that a rank sends to, in the order it sends."""
        rows = []
        for rank in range(self.n):
            turn = [(rank + shift) % self.n for shift in range(1, self.n)]
            away = [p for p in turn if self.node[p] != self.node[rank]]
            if self.s.peers == "same_rail":
                away = [p for p in away if self.local[p] == self.local[rank]]
            rows.append(away)
        return np.array(rows, np.int64)

    def _slow(self, rank: int) -> None:
        kernels = self._kernels() * (self.s.exchanges + 1)
        per_kernel = self.s.compute_ns * self.s.slow_launch_factor / kernels
        self.python[rank] = max(PYTHON_NS, round(per_kernel) - LAUNCH_NS)

    def _kernels(self) -> int:
        block = self.s.compute_ns / (self.s.exchanges + 1)
        return int(np.clip(block / 150_000, 3, 48))

    def _vary(self, mean: float, share: float, shape: tuple[int, ...]) -> Ints:
        """Durations around `mean`, a few per cent apart, never below half of it."""
        factor = 1 + share * np.clip(self.rng.standard_normal(shape), -3, 3)
        return np.maximum(np.rint(mean * factor), mean / 2).astype(np.int64)

    # The launch thread.

    def _call(
        self, name: str, duration: int | Ints, *, correlated: bool = True, slow: bool = False
    ) -> tuple[Ints, Ints, Ints]:
        start = self.cpu.copy()
        end = start + duration
        self.correlation += 1
        self.out.api.add(rank=self.rank, start=start, end=end, name=name, correlation=self.correlation)
        self.cpu = end + (self.python if slow else PYTHON_NS)
        return start, end, self.correlation.copy() if correlated else np.zeros_like(start)

    def _kernel(
        self, name: str, what: str, stream: int, start: Ints, end: Ints, size: int, call: tuple[Ints, Ints, Ints]
    ) -> None:
        self.out.gpu.add(
            rank=self.rank, start=start, end=end, stream=stream, name=name, what=what, bytes=size,
            launch_start=call[0], launch_end=call[1], correlation=call[2], step=self.step,
        )  # fmt: skip
        self.gpu_last = np.maximum(self.gpu_last, end)

    def _compute(self, total_ns: float, names: tuple[str, ...]) -> None:
        for name in names:
            call = self._call("cudaLaunchKernel_v7000", LAUNCH_NS, slow=True)
            start = np.maximum(self.gpu + KERNEL_GAP_NS, call[1] + LAUNCH_LATENCY_NS)
            end = start + self._vary(total_ns / len(names) - KERNEL_GAP_NS, 0.002, (self.n,))
            self._kernel(name, "compute", COMPUTE_STREAM, start, end, 0, call)
            self.gpu = end

    def _copy(self, name: str, size: int, duration: int, stream: int) -> None:
        call = self._call("cudaMemcpyAsync_v3020", LAUNCH_NS + 1_000)
        start = np.maximum(self.gpu + KERNEL_GAP_NS, call[1] + LAUNCH_LATENCY_NS)
        end = start + duration
        self._kernel(name, "copy", stream, start, end, size, call)
        self.gpu = end

    # Communication.

    def _collective(self, kernel: str, nvtx: str | None, messages: int, size: int, *, small: bool = False) -> Ints:
        """Launch a collective over all ranks behind what `gpu` says is done; returns when its kernel ends."""
        self._call("cudaEventRecord_v3020", 1_000, correlated=False)
        self._call("cudaStreamWaitEvent_v3020", 1_000, correlated=False)
        begin = self.cpu - 1_000
        call = self._call("cuLaunchKernelEx" if nvtx else "cudaLaunchKernelExC_v11060", LAUNCH_NS + 1_000)
        if nvtx:
            self.out.nvtx.add(rank=self.rank, start=begin, end=call[1] + 500, text=nvtx, domain="NCCL")
        arrival = np.maximum(np.maximum(self.gpu, self.busy_until) + KERNEL_GAP_NS, call[1] + LAUNCH_LATENCY_NS)
        last = np.full(self.n, arrival.max())
        two_sided = nvtx is not None
        go = last if two_sided else arrival
        if self.s.initiator == "gpu" and not small:
            sent, received, opened = self._by_gpu(go, messages)
        else:
            sent, received, opened = self._by_proxy(go, messages, size, small)
        end = np.maximum(sent, received) + KERNEL_EXIT_NS
        self._kernel(kernel, "comm", COMM_STREAM, arrival, end, 0, call)
        op = np.full(self.n, self.op)
        self.out.ops.add(rank=self.rank, op=op, step=self.step, arrival=arrival, last_arrival=last,
                         culprit=int(arrival.argmax()), end=end, network=opened is not None)  # fmt: skip
        self._truth("comm_unattributed", arrival, end)
        self._truth("wait_straggler", arrival, np.minimum(last, end))
        if opened is not None:
            last_two = np.sort(opened)[-2:]
            others = np.where(opened == last_two[-1], last_two[0], last_two[-1])
            self._truth("wait_sender", np.maximum(opened, arrival), np.minimum(others, end))
        self.op += 1
        self.busy_until = end
        return end

    def _node_collective(self) -> None:
        """A reduce-scatter between the GPUs of each node, over NVLink."""
        g = self.out.gpus_per_node
        begin = self.cpu - 1_000
        call = self._call("cuLaunchKernelEx", LAUNCH_NS + 1_000)
        self.out.nvtx.add(rank=self.rank, start=begin, end=call[1] + 500, text="ncclReduceScatter", domain="NCCL")
        arrival = np.maximum(np.maximum(self.gpu, self.busy_until) + KERNEL_GAP_NS, call[1] + LAUNCH_LATENCY_NS)
        by_node = arrival.reshape(-1, g)
        last = by_node.max(axis=1).repeat(g)
        culprit = (by_node.argmax(axis=1) + g * np.arange(by_node.shape[0])).repeat(g)
        end = last + self.s.node_op_ns + KERNEL_EXIT_NS
        self._kernel(_REDUCE_SCATTER, "comm", COMM_STREAM, arrival, end, 0, call)
        self.out.ops.add(rank=self.rank, op=self.op, step=self.step, arrival=arrival, last_arrival=last,
                         culprit=culprit, end=end, network=False)  # fmt: skip
        self._truth("nvlink_transfer", arrival, end)
        self._truth("wait_straggler", arrival, np.minimum(last, end))
        self.op += 1
        self.busy_until = end
        self.gpu = end

    def _truth(self, category: str, start: Ints, end: Ints) -> None:
        keep = end > start
        rank = np.broadcast_to(self.rank if start.ndim == 1 else self.rank[:, None], start.shape)
        self.out.truth.add(rank=rank[keep], start=start[keep], end=end[keep], category=CODES[category], op=self.op)

    def _by_gpu(self, go: Ints, messages: int) -> tuple[Ints, Ints, None]:
        gap = expected_gap_ns(self.s)
        sent = go + self._vary(messages * gap, 0.002, (self.n,))
        # A kernel needs what all the others send to it.
        received = np.full(self.n, sent.max()) + self.s.rtt0_ns // 2
        self.out.wire.add(nic=self.nic, bytes=messages * self.s.message_bytes, messages=messages)
        return sent + self.s.rtt0_ns, received, None

    def _destinations(self, messages: int) -> Ints:
        peers = self.peer.shape[1]
        turn = np.arange(messages)
        # Stop-and-wait serves one peer after another; the others take turns.
        column = np.minimum(turn // -(-messages // peers), peers - 1) if self.s.window == 1 else turn % peers
        to = np.broadcast_to(column, (self.n, messages)).copy()
        if self.s.hot_rank is not None:
            hot = self.s.hot_rank % self.n
            senders = int((self.node != self.node[hot]).sum())
            wire = self.s.message_bytes * 1e9 / self.s.beta_bytes_per_s
            share = min(0.9, self.s.hot_backlog * expected_gap_ns(self.s) / (senders * wire) + 1 / senders)
            for rank in np.flatnonzero(self.node != self.node[hot]):
                last = int(np.flatnonzero(self.peer[rank] == hot)[0])
                rest = [c for c in range(peers) if c != last]
                if not rest:
                    continue
                to[rank] = np.array(rest)[turn % len(rest)]
                to[rank, round(messages * (1 - share)) :] = last
        return to

    def _by_proxy(self, go: Ints, messages: int, size: int, small: bool) -> tuple[Ints, Ints, Ints]:
        """Each rank's proxy posts `messages` of `size` bytes; returns sent, received and when the last is complete."""
        s, shape = self.s, (self.n, messages)
        column = (
            np.broadcast_to(np.arange(messages) % self.peer.shape[1], shape) if small else self._destinations(messages)
        )
        peer = np.take_along_axis(self.peer, column, axis=1)
        wire = np.full(shape, -(-size * 10**9 // s.beta_bytes_per_s), np.int64)
        before, after = s.probe_before_ns, s.probe_after_ns
        body = self._vary(s.post_ns, 0.03, shape)
        busy = before + body + after
        gap = expected_gap_ns(s)
        pace = round(max(gap, int(wire[0, 0]) + 40))
        if s.staged:
            gap = s.post_ns + before + after + 1_500  # the loop polls; pace decides
        sched = np.zeros(shape, np.int64)
        if not small:
            sched = self._preemptions(shape)
        mean_loop = gap - s.post_ns - before - after - (s.preempt_ns / s.preempt_every if s.preempt_every else 0)
        between = self._vary(max(mean_loop, 120.0), 0.05, shape) + sched
        woken = go + NOTIFY_NS
        running = woken + WAKE_NS
        first = running + FIRST_LOOP_NS
        lane = np.broadcast_to(self.nic[:, None], shape)
        tie = np.broadcast_to(np.arange(messages), shape)
        jitter = np.minimum(self.rng.exponential(60, shape), 400).astype(np.int64)

        if s.window == 1 and not small:
            flight = s.fetch_ns + wire + s.rtt0_ns + jitter + s.poll_ns
            each = before + body + flight
            enter = serial_posts(first, each, between, None)
            rung = enter + before + body
            begins, ends = rung + s.fetch_ns, rung + s.fetch_ns + wire
            delivered = ends + s.rtt0_ns // 2
            seen = rung + flight
            stamped = rung + after  # the loop goes on behind the probe, inside the flight
        else:
            available = None
            if s.staged and not small:
                available = first[:, None] + np.arange(messages, dtype=np.int64) * pace
            enter = serial_posts(first, busy, between, available)
            rung = enter + before + body
            stamped = rung + after
            begins, ends = (
                a.reshape(shape) for a in fifo(lane.ravel(), (rung + s.fetch_ns).ravel(), wire.ravel(), tie.ravel())
            )
            half = s.rtt0_ns // 2
            # The receiver takes bytes at beta too; a cut-through switch hands them on as they come.
            work = wire + (0 if small else s.qp_miss_ns)
            at_peer = self.nic[peer]
            _, delivered = fifo(at_peer.ravel(), (begins + half).ravel(), work.ravel(), (lane * messages + tie).ravel())
            delivered = delivered.reshape(shape)
            due = delivered + (s.rtt0_ns - half) + jitter
            seen = next_at_or_after(stamped, due, due + s.poll_ns)

        queue = np.zeros(shape, np.int64)
        if s.qps_per_peer > 1 and not small:
            queue = (self.op * messages + tie) // self.peer.shape[1] % s.qps_per_peer
        flow = column * s.qps_per_peer + queue
        seen = self._in_order(flow, seen)
        self._record(
            flow, peer, enter, stamped, rung, body, begins, ends, seen, between, sched, size, woken, running, small
        )
        received = np.zeros(self.n, np.int64)
        np.maximum.at(received, peer.ravel(), delivered.ravel())
        last = seen.max(axis=1)
        return last, received, last

    def _in_order(self, flow: Ints, seen: Ints) -> Ints:
        """Completions of a queue pair come in the order of its posts."""
        order = np.argsort(flow, axis=1, kind="stable")
        sorted_flow = np.take_along_axis(flow, order, axis=1)
        far = np.int64(1) << np.int64(44)
        running = (
            np.maximum.accumulate(np.take_along_axis(seen, order, axis=1) + sorted_flow * far, axis=1)
            - sorted_flow * far
        )
        result = np.empty_like(seen)
        np.put_along_axis(result, order, running, axis=1)
        return result

    def _preemptions(self, shape: tuple[int, int]) -> Ints:
        """How long the proxy is off its core before each post, though it could run."""
        s = self.s
        sched = np.zeros(shape, np.int64)
        turn = np.arange(shape[1])[None, :]
        if s.preempt_every:
            phase = self.rng.integers(0, s.preempt_every, (self.n, 1))
            sched = np.where((turn + phase) % s.preempt_every == s.preempt_every - 1, s.preempt_ns, 0).astype(np.int64)
        if s.starved_rank is not None:
            rank = s.starved_rank % self.n
            every = min(s.starved_every, shape[1])  # a small exchange too is held up once
            sched[rank] = np.where(turn[0] % every == every - 1, s.starved_ns, 0)
        sched[:, 0] = 0
        return sched

    def _record(
        self, flow: Ints, peer: Ints, enter: Ints, stamped: Ints, rung: Ints, body: Ints, begins: Ints, ends: Ints,
        seen: Ints, between: Ints, sched: Ints, size: int, woken: Ints, running: Ints, small: bool,
    ) -> None:  # fmt: skip
        s, out, shape = self.s, self.out, enter.shape
        rank = np.broadcast_to(self.rank[:, None], shape)
        # wr_id counts a queue pair's posts.
        order = np.argsort(flow, axis=1, kind="stable")
        sorted_flow = np.take_along_axis(flow, order, axis=1)
        position = np.broadcast_to(np.arange(shape[1]), shape)
        begun = np.concatenate([np.ones((self.n, 1), bool), sorted_flow[:, 1:] != sorted_flow[:, :-1]], axis=1)
        head = np.maximum.accumulate(np.where(begun, position, 0), axis=1)
        count = np.empty_like(flow)
        np.put_along_axis(count, order, position - head, axis=1)
        posted = self.posted.reshape(self.n, -1)
        wr_id = (np.take_along_axis(posted, flow, axis=1) + count) % 65_536
        for lane in range(self.n):
            posted[lane] += np.bincount(flow[lane], minlength=posted.shape[1])
        out.posts.add(
            rank=rank, enter=enter, exit=stamped, rung=rung, peer=peer, flow=flow, wr_id=wr_id, bytes=size, op=self.op
        )
        out.done.add(rank=rank, seen=seen, flow=flow, wr_id=wr_id, order=position)
        out.wire.add(nic=self.nic[rank], bytes=size, messages=1)

        # The proxy thread: woken for the operation, off its core when preempted, asleep when all is complete.
        last = seen.max(axis=1)
        out.switches.add(rank=self.rank, at=woken, what=2, other=0)
        out.switches.add(rank=self.rank, at=running, what=3, other=0)
        chain = s.window == 1 and not small
        free = np.concatenate([running[:, None], (seen if chain else stamped)[:, :-1]], axis=1)
        off = free + (between - sched) // 2
        hit = sched > 0
        out.switches.add(rank=rank[hit], at=off[hit], what=0, other=1)
        out.switches.add(rank=rank[hit], at=(off + sched)[hit], what=3, other=1)
        out.switches.add(rank=self.rank, at=last + 400, what=1, other=0)

        one = np.broadcast_to
        self._truth("rdma_transfer", begins, ends)
        self._truth("ctl_schedule", woken, running)
        if hit.any():
            out.truth.add(
                rank=rank[hit], start=off[hit], end=(off + sched)[hit], category=CODES["ctl_schedule"], op=self.op
            )
        loop_start, loop_end = free[:, 1:], enter[:, 1:]
        cut = hit[:, 1:]
        self._truth("ctl_loop", loop_start, np.where(cut, off[:, 1:], loop_end))
        self._truth("ctl_loop", np.where(cut, (off + sched)[:, 1:], loop_end), loop_end)
        self._truth("ctl_post", rung - body, rung)
        # What the probe itself takes before and after the function is the proxy's time, and not the function's.
        self._truth("ctl_loop", enter, rung - body)
        if not chain:
            self._truth("ctl_loop", rung, stamped)
        self._truth("ctl_fetch", rung, one(rung + s.fetch_ns, shape))
        self._truth("blocking_rtt" if chain else "net_latency", ends, np.minimum(ends + s.rtt0_ns, seen))
        self._truth("net_excess", ends + s.rtt0_ns, seen)

    # A step.

    def play(self) -> Played:
        s, out = self.s, self.out
        kernels = self._kernels()
        decode = s.kind == "decode"
        names = _DECODE_KERNELS if decode else _TRAIN_KERNELS
        size = max(4_096, round(s.step_ns * 0.001 * 20))  # a pageable-speed copy of a thousandth of the step
        block = s.compute_ns / (s.exchanges + 1)
        for self.step in range(out.steps):
            begin = self.cpu.copy()
            self._data()
            self._copy("HtoD", size, max(1_000, round(s.step_ns * 0.001)), COPY_STREAM)
            pending: Ints | None = None
            for exchange in range(s.exchanges + 1):
                layer = self.cpu.copy()
                self._compute(block, tuple(names[k % len(names)] for k in range(kernels)))
                if exchange < s.exchanges:
                    if pending is not None:
                        self.gpu = np.maximum(self.gpu, pending)
                    messages = s.messages // s.exchanges
                    if s.library == "nccl":
                        end = self._collective(_SEND_RECV, "ncclAlltoAll", messages, s.message_bytes)
                    else:
                        phase = "combine" if exchange % 2 else "dispatch"
                        end = self._collective(_DEEP_EP[phase], None, messages, s.message_bytes)
                    if s.overlap:
                        pending = end
                    else:
                        self.gpu = end
                out.nvtx.add(rank=self.rank, start=layer, end=self.cpu - 500, text=f"layer_{exchange}", domain="")
            if pending is not None:
                self.gpu = np.maximum(self.gpu, pending)
            if s.node_op_ns and out.gpus_per_node > 1:
                self._node_collective()
            # Gradient norm, then loss: the second one finds all ranks together, as the end of a step does.
            for _ in range(2):
                self.gpu = self._collective(_ALL_REDUCE, "ncclAllReduce", 2, 4_096, small=True)
            if not decode:
                self._compute(max(4_000, s.compute_ns * 0.002), (_OPTIMIZER,))
            self._copy("DtoH", 4, LOSS_COPY_NS, COMPUTE_STREAM)
            call_start = self.cpu.copy()
            self._call("cudaStreamSynchronize_v3020", np.maximum(self.gpu + 2_000, self.cpu + 1_000) - self.cpu)
            out.nvtx.add(rank=self.rank, start=call_start - 500, end=self.cpu - PYTHON_NS + 200,
                         text="sample_sync" if decode else "loss_item_sync", domain="")  # fmt: skip
            prefix = "decode_step" if decode else "step"
            out.nvtx.add(rank=self.rank, start=begin, end=self.cpu, text=f"{prefix}_{self.step}", domain="")
            self.cpu = self.cpu + 1_000
        out.end_ns = int(max(self.cpu.max(), self.gpu_last.max(), out.done["seen"].max(initial=0)))
        return out

    def lose(self, share: float) -> None:
        """Lose the last node's collector records for `share` of the middle step."""
        out, node = self.out, self.out.nodes - 1
        if share <= 0:
            return
        mine = [
            columns[name][columns["rank"] // out.gpus_per_node == node]
            for columns, name in ((out.posts, "exit"), (out.done, "seen"), (out.switches, "at"))
        ]
        stamps = np.sort(np.concatenate(mine))
        if stamps.size == 0:
            return
        arrivals = out.ops["arrival"][out.ops["step"] == out.steps // 2]
        begin, length = int(arrivals.min()), int(arrivals.max() - arrivals.min())
        start = begin + length // 4
        end = start + round(length * share)
        lo, hi = np.searchsorted(stamps, (start, end))
        if 0 < lo < hi < stamps.size:
            known = int(stamps[lo - 1]), int(stamps[hi])
            out.losses.append(Loss(node, start, end, known, int(hi - lo)))

    def _data(self) -> None:
        """Fetch the batch: at once, or after a stall in the data loader."""
        s = self.s
        start = self.cpu + 500
        took = np.full(self.n, 2_000, np.int64)
        if s.stalled_node is not None and self.step and self.step % s.stall_every == s.stall_every - 1:
            late = self.node == s.stalled_node % self.out.nodes
            took[late] = s.stall_ns + self.rng.integers(0, max(1, s.stall_ns // 50), int(late.sum()))
            self.out.os.add(
                rank=self.rank[late], start=(start + 500)[late], end=(start + took - 500)[late], name="poll"
            )
        self.out.nvtx.add(rank=self.rank, start=start, end=start + took, text="DataLoader.next_batch", domain="")
        self.cpu = start + took + 1_000


_TRAIN_KERNELS = (
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "void at::native::vectorized_elementwise_kernel<(int)8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char *, (unsigned long)3>>(int, T2, T3)",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
    "void at::native::<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>(int, T2, const T1 *, const T1 *, const T1 *, T2 *, T2 *, T1 *)",
)
_DECODE_KERNELS = (
    "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, (int)128, (int)4>>(Flash_fwd_params)",
    "void moe::grouped_gemm_swiglu_kernel<__nv_fp8_e4m3, __nv_bfloat16>(GroupedGemmParams)",
)
_OPTIMIZER = "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::FusedOptimizerTensorListMetadata<(int)4>, at::native::<unnamed>::FusedAdamMathFunctor<c10::BFloat16, float, (int)4>>(T1, T2)"
_SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
_REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
_DEEP_EP = {
    "dispatch": "void deep_ep::internode_ll::dispatch<(bool)1, (bool)0, (int)7168>(void *, void *, int *, long *, int *, int *)",
    "combine": "void deep_ep::internode_ll::combine<(bool)0, (int)7168, (int)9>(void *, void *, int *, void *, const void *)",
}
