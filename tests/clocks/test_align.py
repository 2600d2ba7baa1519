"""A run's nodes on one clock: DESIGN §4, clocks; FAULTS F39, F40."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.clocks.align import Shift, align
from pipeline.lake.layout import RunDir
from pipeline.model.errors import ClockContradiction
from pipeline.model.run import RunConfig, parse
from tests.clocks.cluster import EPOCH, Clock, Operation, collectives, contents, put, query, write

NODES = {rank: f"n{rank // 2}" for rank in range(8)}
CLOCKS = {
    "n0": Clock(0, 0.0),
    "n1": Clock(300_000, 5.0),
    "n2": Clock(-300_000, -5.0),
    "n3": Clock(120_000, 2.5),
}


def errors(run_dir: RunDir, operations: list[Operation], clocks: dict[str, Clock]) -> list[tuple[int, int]]:
    """(true error, stated bound) of each arrival's time against node n0's, after alignment."""
    found = []
    rows = query(
        run_dir,
        """SELECT g.rank, g.start_ns, coalesce(c.error_ns, 0)
        FROM gpu_ops AS g JOIN ranks AS r USING (rank)
        LEFT JOIN clock_pairs AS c ON c.node = r.node AND c.other_node = 'n0'
            AND g.start_ns >= c.start_ns AND g.start_ns < c.end_ns
        ORDER BY g.rank, g.start_ns""",
    )
    for (rank, start, bound), true in zip(
        rows, [(rank, op) for rank in NODES for op in operations if rank in op.arrivals], strict=True
    ):
        assert true[0] == rank
        found.append((abs(start - clocks["n0"].shows(true[1].arrivals[rank])), bound))
    return found


def test_offsets_of_300_us_and_drifts_of_5_ppm_are_recovered_within_the_stated_bound(tmp_path: Path) -> None:
    operations = collectives(8, 60, seed=1)
    run_dir = write(tmp_path, NODES, CLOCKS, operations)
    align(run_dir, RunConfig())
    found = errors(run_dir, operations, CLOCKS)
    assert all(error <= bound for error, bound in found)
    assert max(bound for _, bound in found) < 100_000
    assert query(run_dir, "SELECT node, status FROM clock_offsets ORDER BY node") == [
        ("n0", "reference"), ("n1", "fitted"), ("n2", "fitted"), ("n3", "fitted"),
    ]  # fmt: skip


def test_the_error_of_every_pair_holds_for_that_pair(tmp_path: Path) -> None:
    operations = collectives(8, 40, seed=2)
    run_dir = write(tmp_path, NODES, CLOCKS, operations)
    align(run_dir, RunConfig())
    starts = {
        (rank, k): start
        for rank, k, start in query(
            run_dir, "SELECT rank, row_number() OVER (PARTITION BY rank ORDER BY start_ns) - 1, start_ns FROM gpu_ops"
        )
    }
    windows = query(run_dir, "SELECT node, other_node, start_ns, end_ns, error_ns FROM clock_pairs")
    for k, op in enumerate(operations):
        for i, j in ((0, 2), (2, 4), (4, 6), (2, 6)):
            apart = starts[j, k] - starts[i, k]
            true = op.arrivals[j] - op.arrivals[i]
            (bound,) = [
                error
                for node, other, start, end, error in windows
                if (node, other) == (NODES[i], NODES[j]) and start <= starts[i, k] < end
            ]
            assert abs(apart - true) <= bound


def test_f39_a_constant_difference_of_the_ends_is_the_offset(tmp_path: Path) -> None:
    operations = [
        Operation({0: EPOCH + k * 10**7, 1: EPOCH + k * 10**7 + 900_000 * (k % 2)},
                  {0: EPOCH + k * 10**7 + 1_000_000, 1: EPOCH + k * 10**7 + 1_000_000 + 2_000 * (k % 3 - 1)})
        for k in range(20)
    ]  # fmt: skip
    run_dir = write(tmp_path, {0: "n0", 1: "n1"}, {"n0": Clock(), "n1": Clock(300_000)}, operations)
    align(run_dir, RunConfig())
    [(offset, error)] = query(run_dir, "SELECT offset_ns, error_ns FROM clock_offsets WHERE node = 'n1'")
    assert abs(offset + 300_000) <= error


def test_f40_clocks_seconds_apart_are_aligned_by_communicators_and_not_by_order(tmp_path: Path) -> None:
    operations = collectives(2, 20, seed=3)
    clocks = {"n0": Clock(), "n1": Clock(11_560_000_000, 3.0)}
    by_order = write(tmp_path / "order", {0: "n0", 1: "n1"}, clocks, operations)
    align(by_order, RunConfig())
    assert query(by_order, "SELECT node, status, offset_ns FROM clock_offsets") == [
        ("n0", "reference", 0),
        ("n1", "unaligned", None),
    ]
    assert query(by_order, "SELECT count(*) FROM clock_pairs") == [(0,)]
    assert query(by_order, "SELECT value FROM read_parquet('" + str(tmp_path / "order/run_facts/clocks.parquet") + "') "
                 "WHERE name = 'clock_unaligned_nodes'") == [("n1",)]  # fmt: skip
    named = write(tmp_path / "named", {0: "n0", 1: "n1"}, clocks, operations, comm_id="c")
    align(named, RunConfig())
    [(start, bound)] = query(named, "SELECT min(start_ns), max(error_ns) FROM gpu_ops, clock_offsets WHERE rank = 1")
    assert abs(start - operations[0].arrivals[1]) <= bound < 200_000


def test_aligning_twice_changes_no_byte(tmp_path: Path) -> None:
    run_dir = write(tmp_path, NODES, CLOCKS, collectives(8, 20, seed=4))
    align(run_dir, RunConfig())
    before = contents(run_dir)
    align(run_dir, RunConfig())
    assert contents(run_dir) == before


def test_files_that_come_later_end_where_they_would_have_been(tmp_path: Path) -> None:
    operations = collectives(8, 30, seed=5)
    at_once = write(tmp_path / "at_once", NODES, CLOCKS, operations)
    align(at_once, RunConfig())
    later = write(tmp_path / "later", {rank: NODES[rank] for rank in (0, 1, 2, 4, 5)}, CLOCKS, operations)
    align(later, RunConfig())
    write(tmp_path / "rest", {rank: NODES[rank] for rank in (3, 6, 7)}, CLOCKS, operations)
    for rank in (3, 6, 7):
        (tmp_path / f"rest/gpu_ops/c{rank:04d}.parquet").rename(tmp_path / f"later/gpu_ops/c{rank:04d}.parquet")
    # Ingest writes captures and ranks anew, on the nodes' UTC.
    full = write(tmp_path / "full", NODES, CLOCKS, operations)
    for table in ("captures", "ranks"):
        full.file(table, "ingest").replace(later.file(table, "ingest"))
    align(later, RunConfig())
    apart = (
        "SELECT rank, row_number() OVER (PARTITION BY rank ORDER BY start_ns) AS k, start_ns FROM gpu_ops ORDER BY 1, 2"
    )
    assert max(abs(a[2] - b[2]) for a, b in zip(query(at_once, apart), query(later, apart), strict=True)) <= 5
    assert all(error <= bound for error, bound in errors(later, operations, CLOCKS))


def test_captures_say_what_was_added_also_after_ingest_wrote_them_anew(tmp_path: Path) -> None:
    operations = collectives(8, 20, seed=6)
    run_dir = write(tmp_path / "a", NODES, CLOCKS, operations)
    align(run_dir, RunConfig())
    said = "SELECT capture_id, offset_ns, offset_error_ns, first_ns, last_ns FROM captures ORDER BY 1"
    first = query(run_dir, said)
    fresh = write(tmp_path / "b", NODES, CLOCKS, operations)
    fresh.file("captures", "ingest").replace(run_dir.file("captures", "ingest"))
    align(run_dir, RunConfig())
    assert query(run_dir, said) == first
    by_rank = dict(query(run_dir, "SELECT rank, min(start_ns) FROM gpu_ops GROUP BY rank"))
    raw = {rank: CLOCKS[NODES[rank]].shows(operations[0].arrivals[rank]) for rank in NODES}
    assert [(row[1], row[3]) for row in first] == [(5 + by_rank[r] - raw[r], by_rank[r]) for r in NODES]
    assert first[0][2] == 0 and first[7][2] > 0


def test_a_contradiction_names_the_nodes(tmp_path: Path) -> None:
    operations = [
        Operation({0: EPOCH + k * 10**7, 1: EPOCH + k * 10**7 + shift}, {0: EPOCH + k * 10**7 + 9_000, 1: EPOCH + k * 10**7 + shift + 9_000})
        for k, shift in enumerate((0, 100_000))
    ]  # fmt: skip
    run_dir = write(tmp_path, {0: "n0", 1: "n1"}, {"n0": Clock(), "n1": Clock()}, operations)
    with pytest.raises(ClockContradiction, match="nodes n0 and n1 contradict"):
        align(run_dir, RunConfig())


@pytest.mark.parametrize("kernel", ["void deep_ep::internode_ll::dispatch<true>", "nvshmemi_put_kernel", "ncclDevKernel_Broadcast_RING_LL"])  # fmt: skip
def test_puts_and_rooted_collectives_have_no_say(tmp_path: Path, kernel: str) -> None:
    run_dir = write(
        tmp_path, {0: "n0", 1: "n1"}, {"n0": Clock(), "n1": Clock()}, collectives(2, 5, seed=7), name=kernel
    )
    align(run_dir, RunConfig())
    assert query(run_dir, "SELECT status FROM clock_offsets WHERE node = 'n1'") == [("unaligned",)]


def test_a_send_receive_kernel_speaks_where_nothing_better_does(tmp_path: Path) -> None:
    operations = collectives(2, 10, seed=8)
    run_dir = write(
        tmp_path, {0: "n0", 1: "n1"}, {"n0": Clock(), "n1": Clock(50_000)}, operations, name="ncclDevKernel_SendRecv"
    )
    align(run_dir, RunConfig())
    assert query(run_dir, "SELECT status FROM clock_offsets WHERE node = 'n1'") == [("fitted",)]


def test_a_statement_in_run_toml_narrows_the_error(tmp_path: Path) -> None:
    # One-sided lateness: collectives alone leave a wide interval.
    operations = [
        Operation({0: EPOCH + k * 10**7, 1: EPOCH + k * 10**7 + 800_000}, dict.fromkeys((0, 1), EPOCH + k * 10 ** 7 + 900000))
        for k in range(10)
    ]  # fmt: skip
    bounds = []
    for name, config in (("without", {}), ("with", {"network": {"clock_error_ns": 50_000}})):
        run_dir = write(tmp_path / name, {0: "n0", 1: "n1"}, {"n0": Clock(), "n1": Clock(20_000)}, operations)
        align(run_dir, parse(config))
        bounds += query(run_dir, "SELECT error_ns FROM clock_offsets WHERE node = 'n1'")
    assert bounds[1][0] < bounds[0][0] and bounds[1][0] <= 90_000


def test_other_tables_move_with_the_node_and_captures_without_a_clock_stay(tmp_path: Path) -> None:
    operations = collectives(2, 10, seed=9)
    run_dir = write(tmp_path, {0: "n0", 1: "n1"}, {"n0": Clock(), "n1": Clock(200_000)}, operations)
    put(
        run_dir,
        "nvtx",
        "c0001",
        [{"rank": 1, "tid": 1, "kind": "mark", "start_ns": EPOCH + 200_000, "end_ns": None, "text": "x"}],
    )
    put(run_dir, "thread_states", "ebpf", [{"node": "n1", "tid": 1, "start_ns": 77, "end_ns": 99, "state": "running"}])
    align(run_dir, RunConfig())
    [(mark, end)] = query(run_dir, "SELECT start_ns, end_ns FROM nvtx")
    [(bound,)] = query(run_dir, "SELECT error_ns FROM clock_offsets WHERE node = 'n1'")
    assert (abs(mark - EPOCH) <= bound, end) == (True, None)
    assert query(run_dir, "SELECT start_ns, end_ns FROM thread_states") == [(77, 99)]


def test_one_node_is_its_own_clock_and_nothing_is_rewritten(tmp_path: Path) -> None:
    run_dir = write(tmp_path, {0: "n0", 1: "n0"}, {"n0": Clock(5)}, collectives(2, 3, seed=10))
    before = run_dir.file("gpu_ops", "c0001").read_bytes()
    align(run_dir, RunConfig())
    assert run_dir.file("gpu_ops", "c0001").read_bytes() == before
    assert query(run_dir, "SELECT node, offset_ns, error_ns, status FROM clock_offsets") == [("n0", 0, 0, "reference")]


def test_a_shift_and_its_inverse_meet_within_a_nanosecond() -> None:
    shift = Shift(-299_999, EPOCH, 5_000)
    for t in (EPOCH - 10**9, EPOCH, EPOCH + 3 * 10**10 + 7):
        assert abs(shift.back().at(shift.at(t)) - t) <= 1
        assert abs(shift.then(Shift(1_000, EPOCH, -4_000)).at(t) - Shift(1_000, EPOCH, -4_000).at(shift.at(t))) <= 2


def test_two_captures_of_one_node_are_held_against_each_other(tmp_path: Path) -> None:
    run_dir = write(tmp_path, {0: "n0"}, {"n0": Clock()}, collectives(1, 2, seed=11))
    captures = [
        {"capture_id": name, "kind": kind, "host": "n0", "name": name, "status": "ok", "clock": clock, "offset_ns": 0}
        for name, kind, clock in (("e", "ebpf_csv", "boottime"), ("s", "nsys_sqlite", "realtime"))
    ]
    put(run_dir, "captures", "more", captures)
    for name, late in (("e", 0), ("s", 7_000)):
        slices = [
            {"node": "n0", "tid": 3, "cpu": k % 2, "state": "running", "start_ns": EPOCH + k * 50_000 + late + k % 3 * 10, "end_ns": EPOCH + k * 50_000 + 20_000}
            for k in range(40)
        ]  # fmt: skip
        put(run_dir, "thread_states", name, [*slices, {**slices[0], "tid": 900 + late, "start_ns": EPOCH}])
    align(run_dir, RunConfig())
    facts = query(run_dir, "SELECT name, value, text FROM run_facts WHERE name LIKE 'clock_residual%'")
    assert facts == [
        ("clock_residual_n0_ns", "7000",
         "left between ebpf_csv, nsys_sqlite on n0: median over 40 thread switches that both saw, median distance 0 ns"),
    ]  # fmt: skip
