"""The incidents that can be played, as data: sizes at full scale, ns, bytes and bytes per second.

A scenario is a training or decode step of one model on one cluster, and one thing that is wrong with it.
`Scenario.scaled` shrinks durations and message counts together, so shares of the step and bandwidths stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

NDR_BYTES_PER_S = 50_000_000_000
"""Payload bandwidth of a 400 Gbit/s link, one way."""
MS = 1_000_000
PEAK_FLOPS = 989.4e12
"""H100 SXM, BF16, dense (NVIDIA datasheet)."""
LAUNCHED_LATE_BELOW_NS = 200_000
"""A step meant to be shorter waits for its launches: what the host does between two steps does not shrink with the scale."""


@dataclass(frozen=True)
class Scenario:
    """A run to simulate.

    compute_ns, exposed_ns and messages are per step and NIC at scale 1; exchanges is the number of all-to-all
    operations of a step. exposed_ns is what all of them take, from the last arrival on, when nothing is wrong
    (`window` 0, no disturbance): the gap between posts follows from it. staged: messages become
    ready at that distance (staging through NVLink) and the proxy polls for them. window 1: one message outstanding.
    poll_ns: a proxy that only polls sees a completion this much after it is due.
    node_op_ns: a reduce-scatter between the GPUs of a node, over NVLink. payloads: the export keeps NVTX payloads
    (communicator, bytes). probe_before_ns, probe_after_ns: what a traced post_send costs before and after the function itself.
    """

    name: str
    title: str
    compute_ns: int
    exposed_ns: int
    messages: int
    message_bytes: int
    exchanges: int
    expected_findings: tuple[str, ...]
    consequences: tuple[str, ...] = ()
    kind: Literal["training", "decode"] = "training"
    mfu: float | None = None
    initiator: Literal["cpu", "gpu"] = "cpu"
    library: Literal["nccl", "deep_ep"] = "nccl"
    peers: Literal["remote", "same_rail"] = "remote"
    overlap: bool = False
    node_op_ns: int = 0
    payloads: bool = False
    window: int = 0
    staged: bool = False
    beta_bytes_per_s: int = NDR_BYTES_PER_S
    rtt0_ns: int = 3_000
    fetch_ns: int = 500
    post_ns: int = 1_500
    poll_ns: int = 200
    probe_before_ns: int = 800
    probe_after_ns: int = 400
    preempt_every: int = 50
    preempt_ns: int = 20_000
    link_layer: Literal["InfiniBand", "Ethernet"] = "InfiniBand"
    one_file_per: Literal["rank", "node"] = "node"
    nodes: int = 2
    gpus_per_node: int = 4
    steps: int = 6
    scale: float = 0.01
    # What is wrong.
    slow_launch_rank: int | None = None
    slow_launch_factor: float = 1.0
    starved_rank: int | None = None
    starved_every: int = 0
    starved_ns: int = 0
    hot_rank: int | None = None
    hot_backlog: float = 0.0
    qps_per_peer: int = 1
    qp_miss_ns: int = 0
    shared_nic: bool = False
    stalled_node: int | None = None
    stall_ns: int = 0
    stall_every: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    log_lines: tuple[str, ...] = ()

    def scaled(self, scale: float) -> Scenario:
        """The same scenario with durations and counts times `scale`; sizes, gaps and latencies stay.

        So does the host's work between two steps: it is a consequence once the step is short beside it.
        """
        decode = self.kind == "decode"
        exchanges = max(2, round(self.exchanges * scale)) if decode else self.exchanges
        per_exchange = max(8, round(self.messages * scale / exchanges))
        late = self.step_ns * scale < LAUNCHED_LATE_BELOW_NS
        return replace(
            self,
            consequences=(*self.consequences, "launch_bound") if late else self.consequences,
            compute_ns=round(self.compute_ns * scale),
            exposed_ns=round(self.exposed_ns * scale),
            messages=per_exchange * exchanges,
            exchanges=exchanges,
            stall_ns=round(self.stall_ns * scale),
            node_op_ns=round(self.node_op_ns * scale),
            scale=scale,
        )

    def lasting(self, steps: int) -> Scenario:
        """The same scenario over so many steps. What is late in some of them may not come to pass, or only once."""
        sized = replace(self, steps=steps)
        if not self.stall_every:
            return sized
        stalled = steps // self.stall_every
        if stalled == 0:
            return replace(sized, expected_findings=(), consequences=())
        if stalled * 4 < steps:  # late once is an event, not a straggler
            expected = tuple(code for code in self.expected_findings if code != "straggler")
            return replace(sized, expected_findings=expected, consequences=(*self.consequences, "straggler"))
        return sized

    @property
    def step_ns(self) -> int:
        """Length of a step without disturbance."""
        return self.compute_ns + self.node_op_ns + (0 if self.overlap else self.exposed_ns)

    @property
    def flops_per_step_per_gpu(self) -> float | None:
        """Model FLOPs of a step on one GPU, from the MFU that the undisturbed step is meant to have."""
        return None if self.mfu is None else self.mfu * PEAK_FLOPS * self.step_ns / 1e9


_INCIDENT = Scenario(
    name="moe-control-plane",
    title="expert-parallel training, one hop, posted by CPU proxies: 5.3 µs a message where the wire needs 2.3",
    compute_ns=650 * MS,
    exposed_ns=1_200 * MS,
    messages=224_958,
    message_bytes=114_688,
    exchanges=8,
    mfu=0.182,
    expected_findings=("control_plane_bound",),
    one_file_per="rank",
    nodes=8,
    gpus_per_node=8,
    environment={"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7"},
)
_TWO_HOP = replace(
    _INCIDENT,
    name="moe-two-hop",
    title="the same model, aggregated over NVLink first: eight times fewer, eight times larger messages at 48 GB/s",
    exposed_ns=537_500_000,
    messages=28_120,
    message_bytes=917_504,
    peers="same_rail",
    staged=True,
    mfu=0.2835,
    preempt_every=0,
    expected_findings=(),
    environment={"NCCL_DEBUG": "INFO", "NCCL_PXN_DISABLE": "0"},
)
_GPU_INITIATED = replace(
    _INCIDENT,
    name="moe-gpu-initiated",
    title="the same model with posts by the GPU: no proxy, no posts to see, near the wire bound",
    exposed_ns=585 * MS,
    initiator="gpu",
    library="deep_ep",
    mfu=0.2727,
    expected_findings=("gpu_initiated",),
    environment={"NVSHMEM_IB_ENABLE_IBGDA": "1", "NVSHMEM_IBGDA_NIC_HANDLER": "gpu"},
    log_lines=("NVSHMEM INFO IBGDA: initialized, NIC handler gpu",),
)
_DECODE = Scenario(
    name="decode-fixed",
    title="decode with fire-and-forget posts: TPOT 12 ms",
    kind="decode",
    compute_ns=5 * MS,
    exposed_ns=7 * MS,
    messages=4_600,
    message_bytes=4_096,
    exchanges=20,
    library="deep_ep",
    rtt0_ns=10_000,
    fetch_ns=0,
    poll_ns=50,
    post_ns=500,
    probe_before_ns=250,
    probe_after_ns=150,
    preempt_every=0,
    steps=10,
    scale=0.1,
    expected_findings=("control_plane_bound",),
    environment={"NVSHMEM_DEBUG": "INFO", "NVSHMEM_REMOTE_TRANSPORT": "ibrc"},
)
_SMALL = replace(_TWO_HOP, nodes=2, gpus_per_node=4, one_file_per="node")

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _INCIDENT,
        _TWO_HOP,
        _GPU_INITIATED,
        replace(
            _DECODE,
            name="decode-stop-and-wait",
            title="decode where each put waits for its completion: TPOT 58 ms instead of 12",
            window=1,
            expected_findings=("blocking_rtt",),
        ),
        _DECODE,
        replace(
            _SMALL,
            name="straggler",
            title="one rank's Python launches too slowly to keep its GPU busy; the others wait in every exchange",
            slow_launch_rank=3,
            slow_launch_factor=2.6,
            expected_findings=("straggler", "launch_bound"),
        ),
        replace(
            _INCIDENT,
            name="proxy-starved",
            title="one rank's proxy thread loses its core to a data worker; the others wait for its messages",
            nodes=2,
            gpus_per_node=4,
            one_file_per="node",
            starved_rank=2,
            starved_every=100,
            starved_ns=400_000,
            expected_findings=("proxy_starved", "control_plane_bound"),
            consequences=("straggler",),
        ),
        replace(
            _SMALL,
            name="incast",
            title="all ranks send to a hot expert's rank last: its NIC is the queue",
            exposed_ns=700 * MS,
            messages=224_958,
            message_bytes=114_688,
            peers="remote",
            staged=False,
            preempt_every=0,
            link_layer="Ethernet",
            hot_rank=1,
            hot_backlog=0.6,
            mfu=0.25,
            expected_findings=("incast",),
            consequences=("straggler",),
        ),
        replace(
            _SMALL,
            name="qp-thrash",
            title="64 queue pairs a peer: the receiving NIC misses its context cache on every message",
            exposed_ns=700 * MS,
            messages=224_958,
            message_bytes=114_688,
            peers="remote",
            staged=False,
            preempt_every=0,
            qps_per_peer=64,
            qp_miss_ns=2_600,
            mfu=0.25,
            expected_findings=("qp_thrash",),
        ),
        replace(
            _SMALL,
            name="nic-imbalance",
            title="two GPUs of each node share a NIC while another one idles",
            exposed_ns=700 * MS,
            messages=224_958,
            message_bytes=114_688,
            peers="remote",
            staged=False,
            preempt_every=0,
            shared_nic=True,
            mfu=0.25,
            expected_findings=("nic_imbalance",),
            # Ranks that share a NIC are not in step: its wire idles while both proxies are between posts.
            consequences=("control_plane_bound",),
        ),
        replace(
            _INCIDENT,
            name="gpu-initiated-fallback",
            title="GPU-initiated posts were asked for, the library fell back to a CPU proxy",
            library="deep_ep",
            nodes=2,
            gpus_per_node=4,
            one_file_per="node",
            expected_findings=("gpu_initiated_fallback", "control_plane_bound"),
            environment=_GPU_INITIATED.environment,
            log_lines=(
                "NVSHMEM WARN cudaHostRegister with IoMemory failed with error=800. We may need to use a fallback path.",
                "NVSHMEM WARN ibgda_nic_mem_gpu_map failed. We may need to use the CPU fallback path.",
                "NVSHMEM WARN ibgda_alloc_and_map_qp_uar with GPU as handler failed. We may need to enter the CPU fallback path.",
            ),
        ),
        replace(
            _SMALL,
            name="data-stall",
            title="a node's data loader is late at the head of some steps; the other node waits",
            stalled_node=1,
            stall_ns=400 * MS,
            stall_every=3,
            node_op_ns=20 * MS,
            payloads=True,
            expected_findings=("data_bound", "straggler"),
        ),
        replace(
            _SMALL,
            name="healthy",
            title="large messages, hidden behind compute: nothing to find",
            compute_ns=650 * MS,
            exposed_ns=537_500_000,
            overlap=True,
            node_op_ns=20 * MS,
            payloads=True,
            mfu=0.46,
            expected_findings=(),
        ),
    )
}
"""Every scenario by name."""
