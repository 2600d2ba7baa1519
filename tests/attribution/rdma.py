"""Plain DuckDB connections for tests of the network queries: literal rows or a real capture, then SQL files by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipeline.attribution.work import WORK_TABLES
from pipeline.model.library import sql
from pipeline.model.schema import TABLES

PAIRING = ("_op_windows", "_wakeups", "_queue_pairs", "_posts", "_completions", "_pairs", "rdma_messages")

_DEFAULTS: dict[str, dict[str, Any]] = {
    "ranks": {"rank": 0, "node": "n0", "pid": 1, "nic": "mlx5_0"},
    "rdma_posts": {"node": "n0", "rank": 0, "pid": 1, "tid": 9, "qp": 1, "opcode": "RDMA_WRITE", "n_wr": 1,
                   "signaled": True, "ret": 0, "bytes": 4096, "source": "bpftrace"},
    "rdma_completions": {"node": "n0", "rank": 0, "pid": 1, "tid": 9, "qp": 1, "status": 0, "opcode": "RDMA_WRITE"},
    "thread_states": {"node": "n0", "pid": 1, "tid": 9},
    "_operations": {"rank": 0},
    "steps": {"rank": 0, "step": 0},
    "losses": {"node": "n0", "source": "ebpf"},
    "comm_phases": {"rank": 0},
    "_links": {"node": "n0"},
}  # fmt: skip
_KINDS = {"BIGINT": pa.int64(), "UBIGINT": pa.uint64(), "INTEGER": pa.int32(), "DOUBLE": pa.float64(),
          "BOOLEAN": pa.bool_(), "VARCHAR": pa.string()}  # fmt: skip
_INPUTS = ("ranks", "rdma_posts", "rdma_completions", "rdma_qps", "thread_states", "_operations", "steps", "losses",
           "comm_phases", "captures", "_links", "_shared_messages")  # fmt: skip


def connect(
    *,
    beta: int | None = None,
    rtt0_ns: int | None = None,
    fetch_ns: int | None = None,
    **tables: Sequence[Mapping[str, Any]],
) -> duckdb.DuckDBPyConnection:
    """A connection with the inputs of the network queries, filled with `tables` (columns without a value: NULL)."""
    connection = duckdb.connect(config={"threads": 1})
    for name in _INPUTS:
        columns = WORK_TABLES.get(name) or tuple((c.name, c.type) for c in TABLES[name].columns)
        rows = [{**_DEFAULTS.get(name, {}), **row} for row in tables.get(name, [{}] if name == "ranks" else [])]
        assert not {key for row in rows for key in row} - {column for column, _ in columns}, name
        batch = pa.table(
            {column: pa.array([row.get(column) for row in rows], _KINDS[kind]) for column, kind in columns}
        )
        connection.register("batch", batch)
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM batch")
        connection.unregister("batch")
    connection.execute("CREATE TEMP TABLE nics (rank BIGINT, nic VARCHAR)")
    connection.execute(
        "CREATE TEMP TABLE run_config AS SELECT $1::DOUBLE AS beta_bytes_per_s, $2::BIGINT AS rtt0_ns, $3::BIGINT AS fetch_ns",
        [beta, rtt0_ns, fetch_ns],
    )
    return connection


def run(connection: duckdb.DuckDBPyConnection, names: Sequence[str] = PAIRING) -> duckdb.DuckDBPyConnection:
    """Run the SQL files of `names` in order."""
    for name in names:
        connection.execute(sql(name))
    return connection


def load_capture(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Append a real rdma-ebpf-csv-1 capture (records PO, PC, SI, SO, WK) as rank 0 of node n0."""
    names = [f"c{index:02d}" for index in range(17)]
    columns = "{" + ", ".join(f"'{name}': 'VARCHAR'" for name in names) + "}"
    connection.execute(
        f"""CREATE TEMP TABLE raw AS SELECT * FROM read_csv('{path}', columns = {columns}, header = false, delim = ',',
        quote = '', escape = '', null_padding = true, ignore_errors = true, auto_detect = false)"""
    )
    connection.execute(
        """INSERT INTO rdma_posts BY NAME SELECT 'n0' AS node, 0 AS rank, c03::BIGINT AS pid, c04::BIGINT AS tid,
        c06::BIGINT AS qp, c07::UBIGINT AS wr_id, CASE c08 WHEN '0' THEN 'RDMA_WRITE' WHEN '1' THEN 'RDMA_WRITE_WITH_IMM'
        WHEN '6' THEN 'ATOMIC_FETCH_AND_ADD' ELSE c08 END AS opcode, c12::BIGINT AS n_wr, c15::BIGINT AS bytes,
        c14::BIGINT & 2 <> 0 AS signaled, c01::BIGINT AS enter_ns, c02::BIGINT AS exit_ns, c16::BIGINT AS ret
        FROM raw WHERE c00 = 'PO'"""
    )
    connection.execute(
        """INSERT INTO rdma_completions BY NAME SELECT 'n0' AS node, 0 AS rank, c02::BIGINT AS pid, c03::BIGINT AS tid,
        c11::BIGINT AS qp, c07::UBIGINT AS wr_id, c08::BIGINT AS status, c09 AS opcode, c01::BIGINT AS seen_ns
        FROM raw WHERE c00 = 'PC'"""
    )
    connection.execute(
        """INSERT INTO thread_states BY NAME
        WITH events AS (
            SELECT c01::BIGINT AS at_ns, c02::BIGINT AS tid,
                CASE WHEN c00 = 'SI' THEN 'running' WHEN c00 = 'WK' OR c04 = '0' THEN 'runnable' ELSE 'blocked' END AS state
            FROM raw WHERE c00 IN ('SI', 'SO', 'WK')
        )
        SELECT 'n0' AS node, tid, at_ns AS start_ns, lead(at_ns) OVER (PARTITION BY tid ORDER BY at_ns) AS end_ns, state
        FROM events QUALIFY end_ns IS NOT NULL"""
    )
    connection.execute("DROP TABLE raw")
