"""The files that a simulated cluster leaves behind."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import tomllib
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.model.categories import BY_NAME
from pipeline.model.errors import UsageError
from pipeline.model.run import load
from pipeline.simulate import node_sizes, simulate

_SIZES = {"nodes": 2, "gpus_per_node": 2, "steps": 2, "scale": 0.004}


def _digest(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def test_one_seed_gives_the_same_bytes_and_another_one_others(tmp_path: Path) -> None:
    first = _digest(simulate("proxy-starved", tmp_path / "a", seed=3, **_SIZES))

    assert first == _digest(simulate("proxy-starved", tmp_path / "b", seed=3, **_SIZES))
    other = _digest(simulate("proxy-starved", tmp_path / "c", seed=4, **_SIZES))
    assert first.keys() == other.keys()
    assert first["node00/ebpf.csv"] != other["node00/ebpf.csv"]


def test_a_folder_that_holds_files_is_left_alone_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds files already; name another folder, or use --force"):
        simulate("healthy", tmp_path, **_SIZES)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]

    simulate("healthy", tmp_path, force=True, **_SIZES)
    assert (tmp_path / "run.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scenario": "healty"}, "no scenario healty; did you mean healthy?"),
        ({"scenario": "healthy", "nodes": 1}, "1 node: the incidents happen between nodes"),
        ({"scenario": "healthy", "gpus_per_node": 9}, "1 to 8 GPUs a node"),
        ({"scenario": "healthy", "scale": 7.0}, "scale 7 is not in 0.002 to 1"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        simulate(out=tmp_path / "run", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_every_scenario_writes_a_folder_a_node_that_can_be_opened(written: Path) -> None:
    truth = json.loads((written / "truth.json").read_text())
    config = load(written / "run.toml")

    assert config.run.id == truth["scenario"]
    assert [c["node"] for c in truth["clocks"]] == sorted(p.name for p in written.iterdir() if p.is_dir())
    processes: Counter[int] = Counter()
    for path in sorted(written.glob("node*/*.sqlite")):
        with _open(path) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            steps = database.execute("SELECT count(*) FROM NVTX_EVENTS WHERE text GLOB '*step_[0-9]*'").fetchone()[0]
            n = database.execute("SELECT count(*) FROM PROCESSES").fetchone()[0]
            assert steps == 4 * n
            processes[n] += n
    assert sum(processes.values()) == 4
    for node in ("node00", "node01"):
        anchors = [json.loads(line) for line in (written / node / "anchors.jsonl").read_text().splitlines()]
        assert [a["when"] for a in anchors] == ["start", "end"]


def test_every_kernel_and_copy_finds_its_launch_by_process_and_correlation(written: Path) -> None:
    for path in written.glob("node*/*.sqlite"):
        with _open(path) as database:
            orphans = database.execute(
                """SELECT count(*) FROM (SELECT correlationId, globalPid, start FROM CUPTI_ACTIVITY_KIND_KERNEL
                   UNION ALL SELECT correlationId, globalPid, start FROM CUPTI_ACTIVITY_KIND_MEMCPY) AS k
                   LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r
                   ON r.correlationId = k.correlationId AND r.globalTid & ~0xFFFFFF = k.globalPid AND r.end < k.start
                   WHERE r.start IS NULL"""
            ).fetchone()[0]
            unnamed = database.execute(
                """SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r
                   LEFT JOIN StringIds AS s ON s.id = r.nameId WHERE s.id IS NULL"""
            ).fetchone()[0]
        assert (orphans, unnamed) == (0, 0)


def test_the_truth_file_has_known_categories_and_every_rank_and_step(written: Path) -> None:
    rows = pq.read_table(written / "truth.parquet").to_pylist()

    assert {row["category"] for row in rows} <= BY_NAME.keys()
    assert {(row["rank"], row["step"]) for row in rows} == {(r, s) for r in range(4) for s in range(4)}


def test_records_of_the_collector_are_in_order_and_posts_match_completions(written: Path) -> None:
    for path in written.glob("node*/ebpf.csv"):
        lines = [line.split(",") for line in path.read_text().splitlines()[1:]]
        kinds = Counter(line[0] for line in lines)
        stamps = [int(line[2] if line[0] == "PO" else line[1]) for line in lines]
        posted = Counter((line[3], line[6], line[7]) for line in lines if line[0] == "PO")
        seen = Counter((line[2], line[11], line[7]) for line in lines if line[0] == "PC")

        assert stamps == sorted(stamps)
        assert posted == seen
        assert {len(line) for line in lines if line[0] == "PO"} <= {17}
        known = [tuple(line[3].split("/")[:2]) for line in lines if line[0] == "META" and line[2] == "qp"]
        assert kinds["META"] == 6 + len(known)
        assert len(known) == len(set(known))
        assert {(line[3], line[6]) for line in lines if line[0] == "PO"} <= set(known)


def test_both_ends_of_a_connection_name_each_other(written: Path) -> None:
    ends = set()
    for path in written.glob("node*/ebpf.csv"):
        for line in path.read_text().splitlines():
            if ",qp," in line and line.startswith("META"):
                _, own, _, far = line.split(",")[3].split("/")
                ends.add((own, far))

    assert ends
    assert ends == {(far, own) for own, far in ends}


def test_port_counters_account_for_the_posted_bytes_within_two_per_cent(written: Path) -> None:
    by_gpu = json.loads((written / "truth.json").read_text())["posted_by"] == "gpu"
    posted = Counter[str]()
    nics = tomllib.loads((written / "run.toml").read_text())["network"]["nics"]
    for node in (0, 1):
        for line in (written / f"node{node:02d}" / "ebpf.csv").read_text().splitlines():
            fields = line.split(",")
            if fields[0] == "PO":
                local = (int(fields[3]) - 4_100) // 160
                posted[f"node{node:02d}/{nics[str(node * 2 + local)]}"] += int(fields[15])
    counted = Counter[str]()
    for node in (0, 1):
        for line in (written / f"node{node:02d}" / "counters.csv").read_text().splitlines()[1:]:
            name, device, _, _, counter, _, value = line.split(",")
            unit = {"port_xmit_data": 4, "tx_vport_rdma_unicast_bytes": 1}.get(counter)
            if unit:
                key = f"{name}/{device}"
                counted[key] = unit * int(value) - counted[key]
    for key, size in counted.items():
        if by_gpu:
            # Posts by the GPU are not seen: ports send what no CPU posted, beside a few messages of set-up.
            assert 100 * posted[key] < size
        else:
            assert posted[key] <= size <= 1.02 * posted[key] + 1_000_000


@pytest.mark.shared
def test_the_export_has_the_tables_and_columns_of_a_real_one(shared: Path) -> None:
    real = shared / "nsys_schema" / "schema_2025.3.2.sql"

    def columns(ddl: str) -> dict[str, list[tuple[str, str]]]:
        with sqlite3.connect(":memory:") as database:
            database.executescript(ddl)
            names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {n: [(r[1], r[2]) for r in database.execute(f"PRAGMA table_info({n})")] for n in names}

    ours = columns((files("pipeline.simulate") / "nsys_2025_3_2.sql").read_text())
    theirs = columns(real.read_text())
    assert ours == {name: theirs[name] for name in ours}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None), (None, None)),
        ((3, None, None), (3, None)),
        ((None, None, 64), (8, 8)),
        ((None, None, 2), (2, 1)),
        ((4, None, 8), (4, 2)),
        ((None, 2, 8), (4, 2)),
    ],
)
def test_a_number_of_ranks_stands_for_nodes_or_gpus(
    given: tuple[int | None, ...], expected: tuple[int | None, int | None]
) -> None:
    assert expected == node_sizes("moe-control-plane", *given)


def test_ranks_that_do_not_fill_the_nodes_are_refused() -> None:
    with pytest.raises(UsageError, match="7 ranks are not 2 nodes of 3 GPUs; give --nodes and --gpus-per-node"):
        node_sizes("moe-control-plane", None, None, 7)
