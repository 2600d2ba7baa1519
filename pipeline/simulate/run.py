"""`simulate`: plays a scenario and writes what a cluster would have left behind, and the truth."""

from __future__ import annotations

import difflib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.model.errors import UsageError
from pipeline.simulate.clocks import EPOCH_NS, MAX_DRIFT_PPB, MAX_OFFSET_NS, NodeClock, node_clocks
from pipeline.simulate.cluster import Cluster, Played
from pipeline.simulate.scenarios import SCENARIOS, Scenario

_EBPF, _ANCHORS, _COUNTERS = "ebpf.csv", "anchors.jsonl", "counters.csv"


def simulate(
    scenario: str,
    out: Path,
    *,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    steps: int | None = None,
    seed: int = 1,
    scale: float | None = None,
    lose: float = 0.0,
    force: bool = False,
    truth: bool = True,
) -> Path:
    """Write the files of a run of `scenario` into `out`; returns `out`. The same arguments give the same bytes.

    A folder per node (its name is the node): Nsight Systems exports, ebpf.csv with anchors.jsonl, counters.csv, logs.
    Beside them run.toml, truth.parquet (rank, step, category, true_ns), truth_waits.parquet and truth.json.
    nodes, gpus_per_node, steps, scale: None takes the scenario's own; scale shrinks durations and message counts
    together. lose: share of the middle step for which the last node's collector loses its records. truth: False writes
    none, which of tens of millions of messages takes more memory than all the rest.
    Raises UsageError for an unknown scenario, sizes that can't be, or a folder that holds files already.
    """
    sized = sized_scenario(scenario, nodes, gpus_per_node, steps, scale)
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise UsageError("is a file", where=out, todo="name a folder")
    if out.exists() and any(out.iterdir()) and not force:
        raise UsageError("holds files already", where=out, todo="name another folder, or use --force")
    if not 0 <= lose <= 0.5:
        raise UsageError(f"a loss of {lose:g} of a step is not in 0 to 0.5", todo="change --lose")
    cluster = Cluster(sized, sized.nodes, sized.gpus_per_node, sized.steps, seed, truth=truth)
    played = cluster.play()
    cluster.lose(lose)
    clocks = node_clocks(sized.nodes, seed)
    out.mkdir(parents=True, exist_ok=True)
    for node, clock in enumerate(clocks):
        _write_node(played, clock, node, out / clock.name)
    (out / "run.toml").write_text(run_toml(sized), encoding="utf-8", newline="\n")
    if truth:
        _write_truth(played, clocks, seed, out)
    return out


def node_sizes(
    name: str, nodes: int | None, gpus_per_node: int | None, ranks: int | None
) -> tuple[int | None, int | None]:
    """Nodes and GPUs a node where the number of ranks is given instead of one of them. Raises UsageError."""
    if ranks is None:
        return nodes, gpus_per_node
    if nodes is None:
        own = SCENARIOS[name].gpus_per_node if name in SCENARIOS else 1
        gpus_per_node = gpus_per_node or min(own, max(1, ranks // 2))
        nodes = ranks // max(1, gpus_per_node)
    elif gpus_per_node is None:
        gpus_per_node = ranks // max(1, nodes)
    if nodes * gpus_per_node != ranks:
        raise UsageError(
            f"{ranks} ranks are not {nodes} nodes of {gpus_per_node} GPUs", todo="give --nodes and --gpus-per-node"
        )
    return nodes, gpus_per_node


def sized_scenario(
    name: str, nodes: int | None, gpus_per_node: int | None, steps: int | None, scale: float | None
) -> Scenario:
    """The scenario at the size asked for. Raises UsageError."""
    if name not in SCENARIOS:
        near = difflib.get_close_matches(name, SCENARIOS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(SCENARIOS)}"
        raise UsageError(f"no scenario {name}", todo=hint)
    base = SCENARIOS[name]
    sized = replace(
        base,
        nodes=base.nodes if nodes is None else nodes,
        gpus_per_node=base.gpus_per_node if gpus_per_node is None else gpus_per_node,
    ).lasting(base.steps if steps is None else steps)
    if sized.nodes < 2:
        raise UsageError(f"{sized.nodes} node: the incidents happen between nodes", todo="give at least 2 nodes")
    if not 1 <= sized.gpus_per_node <= 8 or sized.steps < 1:
        raise UsageError("1 to 8 GPUs a node and at least 1 step", todo="change --gpus-per-node or --steps")
    if sized.shared_nic and sized.gpus_per_node < 2:
        raise UsageError(f"{name} needs 2 GPUs a node to share a NIC", todo="give --gpus-per-node 2")
    scale = base.scale if scale is None else scale
    if not 0.002 <= scale <= 1:
        raise UsageError(f"scale {scale:g} is not in 0.002 to 1", todo="change --scale")
    return sized.scaled(scale)


def run_toml(s: Scenario) -> str:
    """The run's description, as a user of the real cluster would write it."""
    ranks = range(s.nodes * s.gpus_per_node)
    flops = s.flops_per_step_per_gpu
    nics = {rank: rank % s.gpus_per_node for rank in ranks}
    if s.shared_nic:
        nics = {rank: 0 if local == 1 else local for rank, local in nics.items()}
    lines = [
        "[run]",
        f'id = "{s.name}"',
        'started = "2026-01-15T03:00:00Z"',
        f'note = "simulated, scale {s.scale:g}: {s.title}"',
        "",
        *(["[model]", f"flops_per_step = {round(flops * len(ranks))}", ""] if flops else []),
        "[hardware]",
        'gpu = "H100 SXM"',
        'dtype = "bf16"',
        "",
        "[steps]",
        f'kind = "{s.kind}"',
        "",
        "[ranks]",
        f"gpus_per_node = {s.gpus_per_node}",
        f"expected = {len(ranks)}",
        "",
        "[comm]",
        f"groups = [{list(ranks)}]",
        "",
        "[network]",
        f'link_layer = "{s.link_layer}"',
        f"beta_bytes_per_s = {s.beta_bytes_per_s}",
        f"rtt0_ns = {s.rtt0_ns}",
        f"fetch_ns = {s.fetch_ns}",
        "nics = { " + ", ".join(f'{rank} = "mlx5_{nic}"' for rank, nic in nics.items()) + " }",
    ]
    return "\n".join(lines) + "\n"


def _write_node(played: Played, clock: NodeClock, node: int, folder: Path) -> None:
    from pipeline.simulate import nsys, rdma

    folder.mkdir(exist_ok=True)
    nsys.write_node(played, clock, node, folder)
    rdma.write_ebpf(played, clock, node, folder / _EBPF)
    rdma.write_anchors(played, clock, folder / _ANCHORS)
    rdma.write_counters(played, clock, node, folder / _COUNTERS)
    rdma.write_logs(played, clock, node, folder)


def _write_truth(played: Played, clocks: list[NodeClock], seed: int, out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.simulate.truth import account

    truth = account(played)
    table = pa.table(
        {
            "rank": truth.rank,
            "step": truth.step,
            "category": pa.array(truth.category, pa.string()),
            "true_ns": truth.true_ns,
        }
    )
    pq.write_table(table, out / "truth.parquet", compression="zstd")
    waits = {
        "rank": truth.waits["rank"],
        "culprit_rank": truth.waits["culprit"],
        "operation": truth.waits["op"],
        "step": truth.waits["step"],
        "start_ns": truth.waits["arrival"] + EPOCH_NS,
        "end_ns": truth.waits["end"] + EPOCH_NS,
    }
    pq.write_table(pa.table(waits), out / "truth_waits.parquet", compression="zstd")
    s = played.scenario
    (out / "truth.json").write_text(
        json.dumps(_summary(played, clocks, seed, s), indent=1) + "\n", encoding="utf-8", newline="\n"
    )


def _summary(played: Played, clocks: list[NodeClock], seed: int, s: Scenario) -> dict[str, Any]:
    def rank(number: int | None) -> int | None:
        return None if number is None else number % played.ranks

    culprit = next((r for r in (s.slow_launch_rank, s.starved_rank, s.hot_rank) if r is not None), None)
    return {
        "scenario": s.name,
        "title": s.title,
        "seed": seed,
        "scale": s.scale,
        "nodes": played.nodes,
        "gpus_per_node": played.gpus_per_node,
        "steps": played.steps,
        "expected_findings": list(s.expected_findings),
        "consequences": list(s.consequences),
        "culprit_rank": rank(culprit),
        "culprit_node": None if s.stalled_node is None else clocks[s.stalled_node % played.nodes].name,
        "culprit_nic": "mlx5_0" if s.shared_nic else None,
        "undisturbed_step_ns": s.step_ns,
        "messages_per_step_and_nic": s.messages,
        "message_bytes": s.message_bytes,
        "posted_by": s.initiator,
        "beta_bytes_per_s": s.beta_bytes_per_s,
        "rtt0_ns": s.rtt0_ns,
        "fetch_ns": s.fetch_ns,
        "post_ns": s.post_ns,
        "probe_cost_ns": s.probe_before_ns + s.probe_after_ns,
        "lost": [
            {
                "node": clocks[x.node].name,
                "start_ns": x.known[0] + EPOCH_NS,
                "end_ns": x.known[1] + EPOCH_NS,
                "events": x.events,
            }
            for x in played.losses
        ],
        "clocks": [{"node": c.name, "offset_ns": c.offset_ns, "drift_ppb": c.drift_ppb} for c in clocks],
        "clock_bounds": {"offset_ns": MAX_OFFSET_NS, "drift_ppb": MAX_DRIFT_PPB},
    }
