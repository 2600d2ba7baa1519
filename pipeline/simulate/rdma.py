"""Writes what else a node has: the eBPF collector's CSV, clock anchors, port counters and library logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.simulate.clocks import NodeClock, pid, proxy_tid, qp_number, worker_tid
from pipeline.simulate.cluster import LEAD_IN_NS, Played

_OFF_RUNNABLE, _OFF_BLOCKED, _WOKEN, _ON = 0, 1, 2, 3
_MTU = 4_096
_SIGNALED = 2
_WRITTEN_AT_ONCE = 1_000_000


def write_ebpf(played: Played, clock: NodeClock, node: int, path: Path) -> int:
    """rdma-ebpf-csv-1 on CLOCK_BOOTTIME, a record a line, in the order a buffer is drained: by time. Returns its records."""
    g = played.gpus_per_node
    s = played.scenario
    chain = s.library == "nccl"

    def here(columns: Any) -> Any:
        rank = columns["rank"]
        return np.flatnonzero((rank >= node * g) & (rank < (node + 1) * g))

    pids = np.array([pid(local) for local in range(g)], np.int64)
    tids = np.array([proxy_tid(local) for local in range(g)], np.int64)
    frames = []

    at = here(played.posts)
    if at.size:
        local = played.posts["rank"][at] % g
        enter, leave = (clock.boottime(played.posts[name][at]) for name in ("enter", "exit"))
        size = played.posts["bytes"][at]
        wr = played.posts["wr_id"][at]
        frames.append(
            _lines(
                leave, 1, local,
                ["PO", enter, leave, pids[local], tids[local], _core(local), qp_number(played.posts["rank"][at], played.posts["flow"][at]),
                 wr, 0, 0 if chain else _SIGNALED, 1, _address(wr), 2 if chain else 1,
                 1 if chain else 0, _SIGNALED, size, 0],
            )
        )  # fmt: skip
        at = here(played.done)
        local = played.done["rank"][at] % g
        seen = clock.boottime(played.done["seen"][at])
        flow = played.done["flow"][at]
        n_ret, index = _batches(local, seen, played.done["order"][at])
        frames.append(
            _lines(
                seen, 2, local * 2**40 + index,
                ["PC", seen, pids[local], tids[local], _core(local), n_ret, index, played.done["wr_id"][at], 0,
                 1, 0, qp_number(played.done["rank"][at], flow)],
            )
        )  # fmt: skip
        at = here(played.switches)
        local = played.switches["rank"][at] % g
        when = clock.boottime(played.switches["at"][at])
        frames += _switches(when, local, played.switches["what"][at], played.switches["other"][at])
    edge = clock.boottime(np.array([0, played.end_ns + LEAD_IN_NS], np.int64))
    cost = s.probe_before_ns + s.probe_after_ns
    calibrated = {"probe_cost_ns": cost, "probe_exit_ns": s.probe_after_ns, "probe_call_ns": cost}
    meta = [
        f"META,{edge[0]},schema,rdma-ebpf-csv-1",
        f"META,{edge[0]},clock,boottime",
        *(f"META,{edge[0]},{key},{value}" for key, value in calibrated.items()),
    ]
    meta += _connections(played, node, int(edge[0]))
    beat = np.arange(edge[0] + 10**9, edge[1], 10**9)
    if beat.size:
        frames.append(_lines(beat, 0, np.arange(beat.size), ["HB", beat, beat + clock.boot_ns]))
    records = (
        pl.concat(frames)
        if frames
        else pl.DataFrame(schema={"at": pl.Int64, "tie": pl.Int64, "kind": pl.Int64, "line": pl.String})
    )
    for loss in (each for each in played.losses if each.node == node):
        start, end = clock.boottime(np.array([loss.start_ns, loss.end_ns], np.int64)).tolist()
        kept = records.filter((pl.col("at") < start) | (pl.col("at") >= end) | (pl.col("kind") == 0))
        lost = f"Lost {records.height - kept.height} events"
        records = kept.vstack(pl.DataFrame({"at": [start], "tie": [0], "kind": [0], "line": [lost]}))
    lines = records.sort("at", "kind", "tie").get_column("line")
    with path.open("w", encoding="ascii", newline="\n") as out:
        out.write("Attaching 9 probes...\n")
        out.writelines(f"{line}\n" for line in meta)
        for first in range(0, len(lines), _WRITTEN_AT_ONCE):
            out.write("\n".join(lines[first : first + _WRITTEN_AT_ONCE].to_list()) + "\n")
        out.write(f"META,{edge[1]},end,1\n")
    return len(lines)


def _connections(played: Played, node: int, at: int) -> list[str]:
    """What the collector saw of modify_qp: number, device and the other end's number of each queue pair."""
    g, each = played.gpus_per_node, played.scenario.qps_per_peer
    lines = []
    for rank in range(node * g, (node + 1) * g):
        device = f"mlx5_{played.nic[rank] % g}"
        for place, peer in enumerate(played.peers[rank]):
            back = played.peers[peer].index(rank)
            for k in range(each):
                own, far = qp_number(rank, place * each + k), qp_number(peer, back * each + k)
                lines.append(f"META,{at},qp,{pid(rank % g)}/{own}/{device}/{far}")
    return lines


def _switches(when: Any, local: Any, what: Any, other: Any) -> list[pl.DataFrame]:
    """Records of the scheduler about the proxy threads: WK, SI, SO."""
    g = int(local.max(initial=0)) + 1
    pids, tids, workers = (np.array([f(k) for k in range(g)], np.int64) for f in (pid, proxy_tid, worker_tid))
    core = _core(local)
    rival = np.where(other == 1, workers[local], 0)
    records: dict[int, list[Any]] = {
        _WOKEN: ["WK", when, tids[local], core, pids[local], core + 1],
        _ON: ["SI", when, tids[local], core, rival],
        _OFF_RUNNABLE: ["SO", when, tids[local], core, 0],
        _OFF_BLOCKED: ["SO", when, tids[local], core, 1],
    }
    frames = []
    for kind, fields in records.items():
        keep = what == kind
        kept = [f[keep] if isinstance(f, np.ndarray) else f for f in fields]
        if keep.any():
            frames.append(_lines(when[keep], 3, local[keep], kept))
    return frames


def _lines(at: Any, kind: int, tie: Any, fields: list[Any]) -> pl.DataFrame:
    """One text line a record, with what orders it."""
    columns: dict[str, Any] = {"at": at, "tie": np.broadcast_to(tie, at.shape), "kind": np.full(at.shape, kind)}
    frame = pl.DataFrame(columns)
    parts = [pl.lit(f) if isinstance(f, (str, int)) else pl.Series(str(i), f) for i, f in enumerate(fields)]
    return frame.with_columns(pl.concat_str(*parts, separator=",").alias("line"))


def _address(wr: Any) -> pl.Series:
    """A remote address as the collector prints it: hexadecimal without a prefix (decimal digits are such too)."""
    return "7f" + pl.Series(wr * 131_072).cast(pl.String).str.zfill(10)


def _core(local: Any) -> Any:
    return 2 + 12 * local


def _batches(local: Any, seen: Any, order: Any) -> tuple[Any, Any]:
    """Completions that one poll saw: how many, and the place of each."""
    by = np.lexsort((order, seen, local))
    l_, s_ = local[by], seen[by]
    first = np.r_[True, (l_[1:] != l_[:-1]) | (s_[1:] != s_[:-1])]
    group = np.cumsum(first) - 1
    size = np.bincount(group)
    place = np.arange(by.size) - np.flatnonzero(first)[group]
    n_ret, index = np.empty_like(local), np.empty_like(local)
    n_ret[by], index[by] = size[group], place
    return n_ret, index


def write_anchors(played: Played, clock: NodeClock, path: Path) -> None:
    """Clock readings at the start and the end of the capture."""
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for when, true_ns in (("start", 0), ("end", played.end_ns + LEAD_IN_NS)):
            realtime = clock.utc_at(true_ns)
            boot = realtime - clock.boot_ns
            reading = {
                "type": "anchor", "when": when, "node": clock.name,
                "boot_id": f"5e1f0000-0000-4000-9000-{clock.boot_ns % 2**48:012x}",
                "monotonic_ns": boot, "monotonic_raw_ns": boot - 1_000_000, "boottime_ns": boot,
                "realtime_ns": realtime, "tai_ns": realtime + 37 * 10**9, "bracket_ns": 240,
            }  # fmt: skip
            out.write(json.dumps(reading) + "\n")


def write_counters(played: Played, clock: NodeClock, node: int, path: Path) -> None:
    """Port and hardware counters of the node's NICs at the start and the end, in their drivers' own units."""
    s, g = played.scenario, played.gpus_per_node
    infiniband = s.link_layer == "InfiniBand"
    at = [clock.utc_at(t) for t in (0, played.end_ns + LEAD_IN_NS)]
    wire = played.wire
    sent_bytes, sent = np.zeros(played.ranks, np.int64), np.zeros(played.ranks, np.int64)
    np.add.at(sent_bytes, wire["nic"], wire["bytes"])
    np.add.at(sent, wire["nic"], wire["messages"])
    packets = sent_bytes // _MTU + sent
    # Local route and base transport headers and the checksum on every packet, the RDMA header on the first.
    octets = sent_bytes + 24 * packets + 16 * sent
    rows = ["node,device,port,link_layer,counter,at_ns,value"]
    rng = np.random.default_rng([node, 0xC0])
    for local in range(g):
        nic = node * g + local
        base = int(rng.integers(10**9, 10**12))
        unit = 4 if infiniband else 1
        extra = _congestion(played, nic)
        xmit = "port_xmit_data" if infiniband else "tx_vport_rdma_unicast_bytes"
        recv = "port_rcv_data" if infiniband else "rx_vport_rdma_unicast_bytes"
        moving = {xmit: int(octets[nic]) // unit, recv: int(octets[nic]) // unit, **extra}
        for counter, delta in moving.items():
            start = base if counter in (xmit, recv) else base % 1_000
            for when, value in zip(at, (start, start + delta), strict=True):
                rows.append(f"{clock.name},mlx5_{local},1,{s.link_layer},{counter},{when},{value}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")


def _congestion(played: Played, nic: int) -> dict[str, int]:
    """Counters that tell of congestion, by link layer; quiet unless the scenario makes it."""
    s = played.scenario
    posts = played.posts
    to_hot = 0
    if s.hot_rank is not None:
        to_hot = int(((posts["rank"] == nic) & (posts["peer"] == s.hot_rank % played.ranks)).sum())
    if s.link_layer == "InfiniBand":
        return {"port_xmit_wait": 0, "out_of_sequence": 0, "local_ack_timeout_err": 0, "packet_seq_err": 0}
    hot = s.hot_rank is not None and nic == s.hot_rank % played.ranks
    marked = int((posts["peer"] == nic).sum()) if hot else 0
    return {
        "np_ecn_marked_roce_packets": marked,
        "np_cnp_sent": marked // 2,
        "rp_cnp_handled": to_hot // 2,
        "rx_prio3_pause": to_hot // 8,
        "out_of_sequence": 0,
        "local_ack_timeout_err": 0,
    }


def write_logs(played: Played, clock: NodeClock, node: int, folder: Path) -> list[Path]:
    """NCCL's or NVSHMEM's debug log of the node's processes."""
    s, g = played.scenario, played.gpus_per_node
    lines = []
    if s.library == "nccl":
        path = folder / "nccl.log"
        layer = "IB" if s.link_layer == "InfiniBand" else "RoCE"
        devices = " ".join(f"[{k}]mlx5_{k}:1/{layer}" for k in range(g))
        for local in range(g):
            head = f"{clock.name}:{pid(local)}:{pid(local) + 20} [{local}] NCCL INFO"
            lines += [f"{head} NCCL version 2.28.9+cuda12.8", f"{head} NET/IB : Using {devices}"]
            lines.append(
                f"{head} comm 0x55d0c8a1f2c0 rank {node * g + local} nranks {played.ranks} cudaDev {local} - Init COMPLETE"
            )
    else:
        path = folder / "nvshmem.log"
        for local in range(g):
            lines += [f"{clock.name}:{pid(local)}:{pid(local)} [{local}] {line}" for line in s.log_lines]
    if not lines:
        return []
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return [path]
