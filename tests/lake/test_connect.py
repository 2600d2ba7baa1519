"""Readers of a lake: every table typed, from any folder, and no way out of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import pipeline
from pipeline.ingest import ingest
from pipeline.lake.catalog import CATALOG, refresh
from pipeline.lake.connect import Lake, check_query
from pipeline.model.errors import LakeError, NoSuchRun, UsageError
from pipeline.model.schema import TABLES
from tests import toy


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake of runs 007 and job, in a folder whose name needs escaping in globs, in SQL and in paths."""
    folder = tmp_path_factory.mktemp("lake")
    path = folder / "it's [a] lake*"
    with pytest.MonkeyPatch.context() as patch:
        toy.install(patch)
        for number, run in enumerate(("007", "job")):
            toy.write(folder / run / "rank0.toy", starts=(10 + number, 20 + number))
            ingest([folder / run], path, jobs=1, attribute=False)
    yield path


def test_views_of_all_runs_are_typed_as_the_schema_says_with_run_as_text(lake: Path) -> None:
    with pipeline.connect(lake) as connection:
        for table in TABLES.values():
            described = [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {table.name}").fetchall()]
            assert [("run", "VARCHAR"), *((c.name, c.type) for c in table.columns)] == described
        rows = connection.execute("SELECT run, start_ns FROM gpu_ops ORDER BY 1, 2").fetchall()
    assert rows == [("007", 10), ("007", 20), ("job", 11), ("job", 21)]


def test_one_run_can_be_connected_to_alone(lake: Path) -> None:
    with pipeline.connect(lake, "007") as connection:
        assert connection.execute("SELECT DISTINCT run FROM gpu_ops").fetchall() == [("007",)]
    with pytest.raises(NoSuchRun, match="no run 'x' in the lake; runs there: 007, job"):
        pipeline.connect(lake, "x")


def test_catalog_sql_works_in_a_plain_duckdb_from_any_folder(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as plain:
        plain.execute((lake / CATALOG).read_text())
        assert plain.execute("SELECT count(*) FROM gpu_ops").fetchall() == [(4,)]
        assert plain.execute("SELECT count(*) FROM segments").fetchall() == [(0,)]
        assert plain.execute("SELECT on_run_clock(1000000000, 100, 0, 5)").fetchall() == [(1_000_000_105,)]


def test_a_copied_lake_works_after_refresh(lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    refresh(copy)
    text = (copy / CATALOG).read_text()
    assert (str(copy) in text, str(lake).replace("'", "''") in text) == (True, False)
    with duckdb.connect() as plain:
        plain.execute(text)
        assert plain.execute("SELECT count(*) FROM gpu_ops").fetchall() == [(4,)]


OUTWARD = (
    "COPY (SELECT 1) TO '{out}'",
    "COPY gpu_ops TO '{lake}/x.csv'",
    "WITH x AS (COPY (SELECT 1) TO '{lake}/x.csv') SELECT * FROM x",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{lake}/x.csv'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('{lake}/../../../../../../../../etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM parquet_metadata('{out}')",
    "ATTACH '{lake}/x.db'",
    "ATTACH '{out}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "EXPORT DATABASE '{lake}/x'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET allowed_directories",
    "PRAGMA enable_profiling",
    "CREATE SECRET s (TYPE s3)",
    "CREATE PERSISTENT SECRET s (TYPE s3)",
    "SELECT * FROM read_csv('https://example.org/x.csv')",
    "PREPARE p AS COPY (SELECT 1) TO '{lake}/x.csv'",
    "CREATE TEMP TABLE t AS SELECT * FROM read_csv('/etc/passwd')",
    "CALL enable_logging(storage_path = '{lake}/log')",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{lake}/x.csv''')",
)


@pytest.mark.parametrize("query", OUTWARD)
def test_a_query_can_not_write_or_reach_outside_the_lake(lake: Path, tmp_path: Path, query: str) -> None:
    before = sorted(lake.rglob("*"))
    out = tmp_path / "x"
    with pipeline.connect(lake) as connection:
        for run in (connection.execute, lambda text: (connection.sql(text) or _nothing()).fetchall()):
            with pytest.raises((UsageError, duckdb.Error)):
                run(query.format(lake=str(lake).replace("'", "''"), out=out))
    assert (before, False) == (sorted(lake.rglob("*")), out.exists())


class _nothing:  # noqa: N801 - stands for the result of a statement that has none
    def fetchall(self) -> list[object]:
        return []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT op_class FROM gpu_ops WHERE op_class = 'copy' -- copy",
        'SELECT op_class AS "copy" FROM gpu_ops',
        "FROM gpu_ops",
        "DESCRIBE gpu_ops",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM gpu_ops",
        "SUMMARIZE gpu_ops",
        "PIVOT gpu_ops ON op_class USING count(*)",
        "CREATE TEMP TABLE mine AS SELECT 1 AS x; SELECT * FROM mine",
        "CREATE MACRO twice(x) AS 2 * x; SELECT twice(2)",
        "SET VARIABLE r = 0; SELECT getvariable('r')",
    ],
)
def test_reading_in_any_form_is_allowed(lake: Path, query: str) -> None:
    with pipeline.connect(lake) as connection:
        connection.execute(query).fetchall()


def test_a_syntax_error_is_told_as_bad_use() -> None:
    with pytest.raises(UsageError, match="syntax error"):
        check_query("SELEKT 1")


def test_scans_give_polars_frames_with_the_run_and_every_column(lake: Path) -> None:
    frame = Lake(lake).scan("gpu_ops").collect().sort("run", "start_ns")
    assert ["run", *TABLES["gpu_ops"].column_names] == frame.columns
    assert frame.select("run", "start_ns").rows() == [("007", 10), ("007", 20), ("job", 11), ("job", 21)]
    empty = Lake(lake).scan("mfu", "job").collect()
    assert (["run", *TABLES["mfu"].column_names], 0) == (empty.columns, empty.height)
    assert Lake(lake).runs() == ["007", "job"]


def test_no_lake_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no such lake; make one with: mfuloss ingest"):
        pipeline.connect(tmp_path / "none")
