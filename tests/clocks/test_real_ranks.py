"""Two NCCL ranks on one machine, read as if they were two nodes: the true offset is 0. Rank 1 is late in 3, 5 and 6."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.attribution.engine import attribute
from pipeline.clocks.align import align
from pipeline.ingest import ingest
from pipeline.lake.layout import RunDir
from pipeline.model.run import RunConfig
from tests.clocks.cluster import query

STALLS = {3: "data_sleep_30ms", 5: "cpu_spin_20ms_between_fwd_bwd", 6: "file_write_fsync_32MiB"}


@pytest.fixture(scope="module")
def lake(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    folder = tmp_path_factory.mktemp("ranks")
    captures = [shared / f"real/h200/rank{rank}_new.sqlite" for rank in (0, 1)]
    ingest(captures, folder / "lake", run="r", config=RunConfig(), jobs=1)
    return RunDir(folder / "lake" / "run=r")


def apart(run_dir: RunDir, ahead_ns: int) -> None:
    """Make rank 1's capture one of another node, whose clock is ahead."""
    for table, column in (("captures", "host"), ("ranks", "node")):
        for file in run_dir.files(table):
            rows = pq.read_table(file).to_pylist()
            for row in rows:
                if row.get("rank") == 1 or "rank1" in str(row.get("name")):
                    row[column] = "other"
            pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(file)), file)
    [(capture,)] = query(run_dir, "SELECT capture_id FROM captures WHERE host = 'other'")
    for table in ("gpu_ops", "comm_ops", "nvtx", "cuda_api"):
        file = run_dir.file(table, capture)
        found = pq.read_table(file)
        for name in found.column_names:
            if name.endswith("_ns"):
                moved = pa.compute.add(found[name], ahead_ns)
                found = found.set_column(found.column_names.index(name), name, moved)
        pq.write_table(found, file)


@pytest.mark.shared
@pytest.mark.parametrize("ahead_ns", [0, 300_000])
def test_the_known_offset_lies_within_the_stated_bound(lake: RunDir, tmp_path: Path, ahead_ns: int) -> None:
    run_dir = RunDir(tmp_path / "run")
    for table in ("captures", "ranks", "gpu_ops", "comm_ops", "nvtx", "cuda_api"):
        for file in lake.files(table):
            run_dir.file(table, file.stem).write_bytes(file.read_bytes())
    apart(run_dir, ahead_ns)
    before = dict(query(run_dir, "SELECT rank, min(start_ns) FROM gpu_ops GROUP BY rank"))
    align(run_dir, RunConfig())
    [(status, error)] = query(run_dir, "SELECT status, error_ns FROM clock_offsets WHERE node <> 'vm'")
    after = dict(query(run_dir, "SELECT rank, min(start_ns) FROM gpu_ops GROUP BY rank"))
    assert status == "fitted"
    assert after[0] == before[0]
    assert abs(after[1] - before[1] + ahead_ns) <= error
    # The two share one GPU by time slices of milliseconds: collectives end that long after the last arrival.
    assert error < 3_000_000

    attribute(run_dir, RunConfig())
    waits = dict(
        query(run_dir, "SELECT step, max(wait_ns) FROM waits WHERE rank = 0 AND NOT within_clock_error GROUP BY step")
    )
    # 30 ms late in step 3, 20 ms in step 5; what step 6 ends with shows at the first collective of step 7.
    for step, late_ns in ((3, 30_000_000), (5, 20_000_000), (7, 17_000_000)):
        assert abs(waits[step] - late_ns) < 3_000_000 + error


@pytest.mark.shared
def test_rank_1_is_late_where_the_program_stalled_it(lake: RunDir, shared: Path) -> None:
    truth = json.loads((shared / "real/h200/rank1_new.truth.rank1.json").read_text())
    assert {step["step"]: step["stall"]["kind"] for step in truth["steps"] if step["stall"]} == STALLS
    waits = dict(query(lake, "SELECT step, max(wait_ns) FROM waits WHERE rank = 0 AND culprit_rank = 1 GROUP BY step"))
    assert sorted(step for step in range(2, 9) if waits.get(step, 0) > 15_000_000) == [3, 5, 7]
    [(charged, waited)] = query(
        lake,
        "SELECT (SELECT sum(delay_ns) FROM delay_cost), (SELECT sum(wait_ns) FROM waits WHERE NOT within_clock_error)",
    )
    assert charged == waited
