"""The run's scalars and its waterfall: tables `mfu` and `run_facts`, from what the stages before found."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pipeline.attribution import mfu
from pipeline.attribution.ideal import ideal_network_ns, why_no_ideal
from pipeline.attribution.mfu import Cell, IdealExceedsCompute, Point
from pipeline.model.categories import GIVEN_BACK
from pipeline.model.run import RunConfig
from pipeline.model.schema import TABLES

if TYPE_CHECKING:
    import duckdb

_BATCH = 20_000
_FACTORS = (
    *((headline.value, "time without this and all that follows / time with it") for headline in GIVEN_BACK),
    ("rest", "latency, excess, transfer inside a node, what can't be told apart"),
)
"""Factors of transfer efficiency, in the order in which they are given back, and what they say."""
Fact = tuple[str, str, str]


def summarise(connection: duckdb.DuckDBPyConnection, config: RunConfig) -> None:
    """Make the tables `mfu` and `run_facts` of a connection that has breakdown, steps, ranks, _mfu_cells,
    _counted_steps and _source_facts."""
    ideals, facts = _ideals(connection, config)
    errors: list[str] = []
    _create(connection, "mfu")
    batch: list[list[Any]] = []
    for row in _points(connection, ideals, errors):
        batch.append(row)
        if len(batch) == _BATCH:
            _insert(connection, "mfu", batch)
            batch.clear()
    _insert(connection, "mfu", batch)
    if errors:
        text = f"{errors[0]}: FLOPs, peak or dtype is wrong"
        facts += [("mfu_error", str(len(errors)), text), ("mfu_absent", "error", text)]
    elif ideals:
        facts += _hfu(connection, config)
    facts += _pop(connection)
    _create(connection, "run_facts")
    _insert(connection, "run_facts", [list(fact) for fact in facts])
    connection.execute("INSERT INTO run_facts SELECT name, value, text FROM _source_facts")


def _ideals(connection: duckdb.DuckDBPyConnection, config: RunConfig) -> tuple[dict[int, Fraction], list[Fact]]:
    """Ideal compute time of a step of each rank, ns; empty where there can be no MFU. And why."""
    rows = connection.execute("SELECT rank, gpu_name FROM ranks WHERE rank IS NOT NULL ORDER BY rank").fetchall()
    gpus = {int(rank): name for rank, name in rows}
    flops = mfu.model_flops(config.model)
    facts: list[Fact] = []
    if flops is not None:
        facts.append(("flops_per_step", str(flops.per_step), flops.basis))
    peaks = {rank: mfu.rank_peak(config.hardware, name) for rank, name in gpus.items()}
    for source in sorted({found.source for found in peaks.values() if found.flops_per_s is not None}):
        facts.append((f"peak_source_{len(facts)}", config.hardware.dtype, source))
    absent = _why_not(connection, config, flops, peaks)
    if absent is not None or flops is None:
        return {}, [*facts, ("mfu_absent", "absent", absent or "")]
    ranks = max(len(gpus), config.ranks.expected or 0)
    ideals = {
        rank: mfu.ideal_ns(flops.per_step, ranks, found.flops_per_s)
        for rank, found in peaks.items()
        if found.flops_per_s is not None
    }
    spread = "" if config.ranks.expected else "; if the job had more ranks than were captured, give [ranks] expected"
    facts.append(("flops_ranks", str(ranks), f"the step's FLOPs are shared by {ranks} ranks{spread}"))
    if len(set(ideals.values())) == 1:
        ideal = next(iter(ideals.values()))
        facts.append(("ideal_step_ns", str(ideal), "ideal compute time of one rank and step, F / (P * ranks), ns"))
    return ideals, facts


def _why_not(
    connection: duckdb.DuckDBPyConnection,
    config: RunConfig,
    flops: mfu.Flops | None,
    peaks: dict[int, mfu.RankPeak],
) -> str | None:
    if config.steps.kind == "decode":
        return "decode has no MFU; the bars are shares of the time per output token"
    if flops is None:
        return "the model's FLOPs are not known: give [model] flops_per_step, or params_active and tokens_per_step"
    for rank, found in peaks.items():
        if found.flops_per_s is None:
            return f"rank {rank}: {found.source}"
    sources = {row[0] for row in connection.execute("SELECT DISTINCT source FROM _counted_steps").fetchall()}
    if not sources:
        return "there is no step with GPU time"
    if "window" in sources:
        return "no steps were found, so how many steps' FLOPs were done is not known"
    return None


def _points(
    connection: duckdb.DuckDBPyConnection, ideals: dict[int, Fraction], errors: list[str]
) -> Iterator[list[Any]]:
    """Rows of `mfu`. A scope whose ideal exceeds its compute goes to `errors` and keeps its compute."""
    whole, denominator = mfu.common_ideal(ideals) if ideals else ({}, 1)
    cells = connection.execute(
        "SELECT scope, rank, step, category, evidence, attributed_ns, wall_ns, n_by_rank FROM _mfu_cells"
    ).fetchall()
    for (scope, rank, step), group in groupby(cells, key=lambda row: (row[0], row[1], row[2])):
        found = list(group)
        wall_ns, n_by_rank = int(found[0][6]), found[0][7]
        ideal = None
        # A step of another kind (evaluation, partial) does not do the step's FLOPs.
        if ideals and n_by_rank is not None and all(int(each) in whole for each in n_by_rank):
            ideal = Fraction(sum(whole[int(each)] * int(n) for each, n in n_by_rank.items()), denominator)
        times = [Cell(row[3], row[4], int(row[5])) for row in found]
        try:
            points = mfu.waterfall(times, wall_ns, ideal)
        except IdealExceedsCompute as error:
            errors.append(f"{_scope_name(scope, rank, step)}: {error}")
            points = mfu.waterfall(times, wall_ns, None)
        for point in points:
            yield _row(scope, rank, step, point)


def _row(scope: str, rank: int | None, step: int | None, point: Point) -> list[Any]:
    return [
        scope,
        rank,
        step,
        point.category,
        float(point.points),
        point.evidence,
        point.attributed_ns,
        str(point.points.numerator),
        str(point.points.denominator),
    ]


def _scope_name(scope: str, rank: int | None, step: int | None) -> str:
    if scope == "run":
        return "the run"
    return " ".join(f"{name} {value}" for name, value in (("rank", rank), ("step", step)) if value is not None)


def _hfu(connection: duckdb.DuckDBPyConnection, config: RunConfig) -> list[Fact]:
    """Hardware FLOPs utilisation beside MFU, only where the recompute is known."""
    flops = mfu.model_flops(config.model)
    recompute = config.model.recompute_flops_per_step
    row = connection.execute(
        "SELECT numerator, denominator FROM mfu WHERE scope = 'run' AND category = 'mfu'"
    ).fetchone()
    if flops is None or row is None:
        return []
    if recompute is None:
        return [("hfu_absent", "absent", "HFU counts recompute too; give [model] recompute_flops_per_step (0: none)")]
    points = Fraction(int(row[0]), int(row[1])) * (flops.per_step + mfu.exact(recompute)) / flops.per_step
    return [("hfu_points", f"{float(points):.6f}", "hardware FLOPs utilisation: MFU with recompute counted, of 100")]


def _pop(connection: duckdb.DuckDBPyConnection) -> list[Fact]:
    """POP efficiencies over the counted steps of all ranks; transfer and serialisation where the ideal time is known."""
    rows = connection.execute(
        """SELECT w.rank, w.wall_ns, coalesce(sum(b.attributed_ns), 0)
        FROM (SELECT rank, sum(wall_ns)::BIGINT AS wall_ns FROM _counted_steps GROUP BY rank) AS w
        LEFT JOIN (
            SELECT b.rank, b.attributed_ns FROM breakdown AS b
            JOIN _counted_steps AS c ON c.rank = b.rank AND c.step = b.step
            WHERE b.category = 'compute'
        ) AS b ON b.rank = w.rank
        GROUP BY ALL ORDER BY w.rank"""
    ).fetchall()
    useful, wall = [int(row[2]) for row in rows], max((int(row[1]) for row in rows), default=0)
    absent = why_no_ideal(connection)
    found = mfu.pop_efficiencies(useful, wall, ideal_network_ns(connection) if absent is None else ())
    if found is None:
        return []
    if found.serialisation is None or found.transfer is None:
        apart = [("pop_transfer_absent", "absent", f"nor serialisation: {absent}")]
    else:
        apart = [
            ("pop_serialisation_efficiency", f"{float(found.serialisation):.6f}", "longest compute time / ideal time"),
            ("pop_transfer_efficiency", f"{float(found.transfer):.6f}", "ideal time / wall time"),
            (
                "pop_ideal_network_ns",
                str(found.transfer * wall),
                "the counted wall time if communication took none, but waits",
            ),
            *_transfer_factors(connection, found),
        ]
    return [
        *apart,
        ("pop_load_balance", f"{float(found.load_balance):.6f}", "mean / longest compute time of the ranks"),
        ("pop_communication_efficiency", f"{float(found.communication):.6f}", "longest compute time / wall time"),
        ("pop_parallel_efficiency", f"{float(found.parallel):.6f}", "mean compute time / wall time"),
    ]


def _transfer_factors(connection: duckdb.DuckDBPyConnection, found: mfu.PopEfficiencies) -> list[Fact]:
    """The factors of transfer efficiency, where any time was told apart: else all of them but the last would be a claim."""
    told = connection.execute(
        """SELECT count(*) FROM breakdown AS b JOIN categories AS c ON b.category = c.category
        WHERE c.given_back IS NOT NULL AND b.attributed_ns > 0"""
    ).fetchone()
    if told == (0,):
        return [("pop_transfer_factors_absent", "absent", "no exposed communication was told apart into its classes")]
    return [
        (f"pop_transfer_factor_{name}", f"{float(factor):.6f}", text)
        for (name, text), factor in zip(_FACTORS, found.transfer_factors, strict=True)
    ]


def _create(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    columns = ", ".join(f"{column.name} {column.type}" for column in TABLES[name].columns)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({columns})")


def _insert(connection: duckdb.DuckDBPyConnection, name: str, rows: list[list[Any]]) -> None:
    import pyarrow as pa

    if not rows:
        return
    schema = TABLES[name].arrow_schema()
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    connection.register("new_rows", pa.Table.from_arrays(columns, schema=schema))
    connection.execute(f"INSERT INTO {name} SELECT * FROM new_rows")
    connection.unregister("new_rows")
