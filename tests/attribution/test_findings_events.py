"""Detectors that read events: each hits at its threshold, not below it, and not for what it excludes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attribution.test_findings_environment import found

Rows = Sequence[Mapping[str, Any]]


def counter(name: str, growth: float, device: str = "mlx5_0", link_layer: str = "InfiniBand") -> list[dict[str, Any]]:
    row = {"node": "n", "device": device, "port": 1, "link_layer": link_layer, "counter": name}
    return [{**row, "at_ns": 1, "value": 10}, {**row, "at_ns": 2, "value": 10 + growth}]


def operation(rank: int, seq: int, end: int | None, start: int | None = 1) -> dict[str, Any]:
    return {
        "rank": rank,
        "comm_id": "c",
        "seq": seq,
        "op": "AllReduce",
        "source": "flight_recorder",
        "start_ns": start,
        "end_ns": end,
    }


@pytest.mark.parametrize(
    ("name", "growth", "hits"),
    [
        ("packet_seq_err", 1, 1),
        ("packet_seq_err", 0, 0),
        ("packet_seq_err", -5, 0),
        ("roce_adp_retrans", 3, 1),
        ("out_of_buffer", 1_000, 0),
    ],
)
def test_retransmission_counts_timeouts_and_sequence_errors_but_no_drops_for_want_of_buffers(
    name: str, growth: float, hits: int
) -> None:
    assert len(found("retransmission", counters=counter(name, growth))) == hits


@pytest.mark.parametrize(("status", "hits"), [(12, 1), (0, 0)])
def test_completions_count_where_their_status_is_an_error(status: int, hits: int) -> None:
    rows = [{"node": "n", "rank": 0, "pid": 1, "qp": 7, "status": status, "seen_ns": 5}]
    assert len(found("error_completions", rdma_completions=rows)) == hits


def test_a_hang_names_the_rank_that_has_not_arrived() -> None:
    ((severity, text, _),) = found("hang", comm_ops=[operation(0, 4, 9), operation(1, 4, 9), operation(0, 5, None)])
    assert (severity, "not arrived: rank 1" in text) == ("critical", True)


@pytest.mark.parametrize(
    "rows",
    [
        [operation(0, 5, None, start=None)],
        [operation(0, 5, 9), operation(1, 4, 9)],
        [{**operation(0, 5, None), "source": "nvtx"}],
    ],
    ids=["merely scheduled", "ended", "cut off by the end of a trace"],
)
def test_no_hang_without_a_started_operation_that_a_recorder_left_open(rows: Rows) -> None:
    assert found("hang", comm_ops=rows) == []


SENT = counter("port_xmit_data", 500_000)  # words of 4 bytes: 2 MB
COLLECTOR = [{"name": "e.csv", "kind": "ebpf_csv", "status": "ok"}]


def posted(n_bytes: int, nic: str = "mlx5_0") -> list[dict[str, Any]]:
    return [{"node": "n", "rank": 0, "nic": nic, "bytes": n_bytes, "enter_ns": 1}]


@pytest.mark.parametrize(
    ("counters", "captures", "messages", "hits"),
    [
        (SENT, COLLECTOR, posted(10_000), 1),
        (SENT, [], posted(10_000), 0),
        (SENT, [{**COLLECTOR[0], "status": "unusable"}], [], 0),
        (SENT, COLLECTOR, posted(100_000), 0),
        (counter("port_xmit_data", 200_000), COLLECTOR, [], 0),
    ],
    ids=["ports send what nobody posted", "no collector ran", "its capture is unusable", "CPUs post", "little traffic"],
)
def test_communication_is_gpu_initiated_only_where_a_collector_saw_no_posts(
    counters: Rows, captures: Rows, messages: Rows, hits: int
) -> None:
    assert len(found("gpu_initiated", counters=counters, captures=captures, rdma_messages=messages)) == hits


@pytest.mark.parametrize(
    ("first", "second", "hits"),
    [(900_000, 100_000, 1), (740_000, 260_000, 0), (90_000, 10_000, 0)],
    ids=["uneven", "just below 1.5 times the mean", "too little traffic"],
)
def test_nics_are_compared_where_they_carry_enough(first: int, second: int, hits: int) -> None:
    rows = [*posted(first), *posted(second, "mlx5_1")]
    assert len(found("nic_imbalance", rdma_messages=rows)) == hits


def test_nodes_with_the_same_busy_nic_are_one_finding() -> None:
    nodes = {"a": ("mlx5_0", 8), "b": ("mlx5_0", 9), "c": ("mlx5_0", 8), "d": ("mlx5_0", 7), "e": ("mlx5_1", 8)}
    rows = [
        {**row, "node": node}
        for node, (nic, busy) in nodes.items()
        for other in ("mlx5_0", "mlx5_1", "mlx5_2")
        for row in posted(busy * 1_000_000 if other == nic else 1_000_000, other)
    ]
    assert sorted(row[1] for row in found("nic_imbalance", rdma_messages=rows)) == [
        "mlx5_0 of 4 nodes (b, a, c, ...) carries up to 2.5 times the mean of the node's 3 NICs (by posted messages).",
        "mlx5_1 of e carries 2.4 times the mean of the node's 3 NICs (by posted messages).",
    ]


def test_a_single_nic_has_no_imbalance() -> None:
    assert found("nic_imbalance", rdma_messages=posted(5_000_000)) == []


@pytest.mark.parametrize(("lost", "hits"), [(1, 1), (0, 0), (None, 0)])
def test_lost_events_are_what_the_tool_declares(lost: int | None, hits: int) -> None:
    assert len(found("lost_events", captures=[{**COLLECTOR[0], "host": "n", "lost_events": lost}])) == hits


@pytest.mark.parametrize(("status", "hits"), [("unaligned", 1), ("fitted", 0), ("reference", 0)])
def test_only_nodes_without_any_tie_are_unaligned(status: str, hits: int) -> None:
    assert len(found("unaligned_clocks", clock_offsets=[{"node": "n", "status": status}])) == hits


FELL_BACK = {"node": "n", "source": "nvshmem", "code": "nvshmem_doorbell_by_cpu", "text": "CPU fallback path"}
ASKED = {"node": "n", "source": "env", "code": "NVSHMEM_IB_ENABLE_IBGDA", "text": "NVSHMEM_IB_ENABLE_IBGDA=1"}
PEERMEM = {"node": "n", "source": "nvshmem", "code": "nvshmem_registration_by_peermem", "text": "peermem"}
POST = {"node": "n", "rank": 0, "pid": 1, "tid": 9, "qp": 1, "enter_ns": 1}


@pytest.mark.parametrize(
    ("events", "posts", "severities"),
    [
        ([FELL_BACK], [POST], ["critical"]),
        ([ASKED], [POST], ["critical"]),
        ([FELL_BACK], [], ["warning"]),
        ([PEERMEM], [], ["info"]),
        ([ASKED], [], []),
        ([{**ASKED, "text": "NVSHMEM_IB_ENABLE_IBGDA=0"}], [POST], []),
        ([], [POST], []),
    ],
    ids=["said and seen", "asked and not so", "said only", "registration only", "asked and so", "not asked", "nothing"],
)
def test_a_fallback_has_its_grades(events: Rows, posts: Rows, severities: list[str]) -> None:
    assert [row[0] for row in found("gpu_initiated_fallback", log_events=events, rdma_posts=posts)] == severities


@pytest.mark.parametrize(("world", "hits"), [(2, 1), (1, 0)])
def test_ranks_are_missing_from_what_the_environment_says_the_world_is(world: int, hits: int) -> None:
    said = [{"node": "n", "source": "env", "code": "WORLD_SIZE", "text": f"WORLD_SIZE={world}"}]
    assert len(found("missing_ranks", log_events=said, ranks=[{"rank": 0, "node": "n", "pid": 1}])) == hits


@pytest.mark.parametrize(
    ("seen_bytes", "hits"), [(1_900_000, 1), (1_980_000, 0), (0, 0)], ids=["unseen", "headers only", "GPU-initiated"]
)
def test_unseen_traffic_counts_headers_in_and_leaves_gpu_initiated_ports_out(seen_bytes: int, hits: int) -> None:
    assert len(found("unseen_traffic", counters=SENT, rdma_messages=posted(seen_bytes))) == hits


def test_posts_on_a_nic_without_a_name_are_posts() -> None:
    """Nothing says which of the node's ports they took: no port is put down to the GPU, and none to strangers."""
    counters = [*SENT, *counter("port_xmit_data", 500_000, device="mlx5_1")]
    unnamed = [{**row, "nic": None} for row in posted(3_960_000)]
    assert found("gpu_initiated", counters=counters, captures=COLLECTOR, rdma_messages=unnamed) == []
    assert found("unseen_traffic", counters=counters, rdma_messages=unnamed) == []


def on_the_wire(n_bytes: int) -> int:
    """Bytes of a message packet by packet: LRH 8, BTH 12, ICRC 4 each, RETH 16 on the first."""
    left, total = n_bytes, 16
    while True:
        total += min(left, 4096) + 24
        left -= 4096
        if left <= 0:
            return total


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300_000), st.booleans(), st.sampled_from(["a", "b"])), min_size=1, max_size=20),
    st.booleans(),
)
def test_I9_bytes_posted_with_headers_are_the_ports_within_two_percent_or_traffic_is_unseen(
    sent: list[tuple[int, bool, str]], named: bool
) -> None:
    """Of the messages of two ports some were lost; with the ports' names or without."""
    counters, known = [], []
    for device in ("a", "b"):
        words = sum(on_the_wire(size) for size, _, nic in sent if nic == device) / 4
        counters += counter("port_xmit_data", words, device)
    known = [(size, nic) for size, seen, nic in sent if seen]
    messages = [
        {"node": "n", "rank": 0, "nic": nic if named else None, "bytes": size, "enter_ns": at}
        for at, (size, nic) in enumerate(known)
    ]
    whole = sum(on_the_wire(size) for size, _, _ in sent)
    part = sum(on_the_wire(size) for size, _ in known)
    # Less than a fiftieth of it posted is no loss but the GPU's own doorbell.
    expected = part >= 0.02 * whole and whole - part > 0.02 * whole
    assert len(found("unseen_traffic", counters=counters, rdma_messages=messages)) == expected
