"""The clocks of the nodes, and who is who on them: what turns true time into the stamps of a file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.simulate.network import Ints

EPOCH_NS = 1_768_446_000_000_000_000
"""True UTC at the start of a capture: 2026-01-15T03:00:00Z."""
MAX_OFFSET_NS = 300_000
MAX_DRIFT_PPB = 5_000
VM_ID = 1


@dataclass(frozen=True)
class NodeClock:
    """A node's UTC: offset_ns at the start of the capture, running drift_ppb fast; BOOTTIME counts from boot_ns UTC."""

    name: str
    offset_ns: int
    drift_ppb: int
    boot_ns: int
    session_ns: int

    def utc(self, true_ns: Ints) -> Ints:
        """The node's CLOCK_REALTIME at true instants (ns from the start of the capture)."""
        result: Ints = EPOCH_NS + true_ns + self.offset_ns + true_ns * self.drift_ppb // 10**9
        return result

    def boottime(self, true_ns: Ints) -> Ints:
        """The node's CLOCK_BOOTTIME."""
        return self.utc(true_ns) - self.boot_ns

    def session(self, true_ns: Ints) -> Ints:
        """ns from the start of the node's nsys session."""
        return self.utc(true_ns) - self.session_utc

    def utc_at(self, true_ns: int) -> int:
        """`utc` of one instant."""
        return int(self.utc(np.array([true_ns], np.int64))[0])

    @property
    def session_utc(self) -> int:
        """utcEpochNs of the session."""
        return self.utc_at(self.session_ns)


def node_clocks(nodes: int, seed: int) -> list[NodeClock]:
    """Clocks of all nodes; the first one's offset is 0, so that true time is the run clock."""
    rng = np.random.default_rng([seed, 0xC10C])
    clocks = []
    for node in range(nodes):
        offset, drift = (int(rng.integers(-m, m + 1)) for m in (MAX_OFFSET_NS, MAX_DRIFT_PPB))
        uptime = int(rng.integers(10**15, 5 * 10**15))
        session = int(rng.integers(0, 1_000_000))
        if node == 0:
            offset = drift = 0
        clocks.append(NodeClock(f"node{node:02d}", offset, drift, EPOCH_NS - uptime, session))
    return clocks


def pid(local: int) -> int:
    """Process of a GPU: the same numbers on every node, as containers have them."""
    return 4_100 + 160 * local


def proxy_tid(local: int) -> int:
    """Thread that posts."""
    return pid(local) + 71


def worker_tid(local: int) -> int:
    """A data worker that competes for the proxy's core."""
    return pid(local) + 112


def global_pid(local: int) -> int:
    """nsys's packing: bits 24 to 47 the process, above that the VM."""
    return VM_ID << 48 | pid(local) << 24


def qp_number(rank: int, flow: int) -> int:
    """A queue pair's number, in 24 bits; a flow is a peer's place among the rank's peers and one of its queue pairs."""
    return 0x400 + rank * 8_192 + flow
