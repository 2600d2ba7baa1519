"""A run changes in one step or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lake.layout import RunDir
from pipeline.lake.maintenance import clean_staging
from pipeline.lake.transaction import Transaction, host_name, staging_name
from pipeline.model.errors import LakeError


def staged(lake: Path) -> list[Path]:
    return [path for path in (lake / ".staging").iterdir() if path.is_dir()]


def write(lake: Path, text: str) -> None:
    with Transaction(lake, "r") as transaction:
        (transaction.staging.path / "t").mkdir(exist_ok=True)
        partial = transaction.staging.path / "t" / "x.partial"
        partial.write_text(text)
        partial.replace(transaction.staging.path / "t" / "x")
        transaction.commit()


def test_commit_swaps_the_staged_state_in_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path, "one")
    write(tmp_path, "two")
    assert (tmp_path / "run=r" / "t" / "x").read_text() == "two"
    assert staged(tmp_path) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_leaving_without_commit_changes_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    write(tmp_path, "one")
    with pytest.raises(error), Transaction(tmp_path, "r") as transaction:
        (transaction.staging.path / "t" / "x").unlink()
        raise error
    assert (tmp_path / "run=r" / "t" / "x").read_text() == "one"
    assert staged(tmp_path) == []


def test_a_manifest_that_is_staged_does_not_write_through_to_the_committed_one(tmp_path: Path) -> None:
    with Transaction(tmp_path, "r") as transaction:
        transaction.staging.write_manifest({"status": "one"})
        transaction.commit()
    with Transaction(tmp_path, "r") as transaction:
        transaction.staging.write_manifest({"status": "two"})
    assert RunDir(tmp_path / "run=r").manifest["status"] == "one"


def test_a_run_has_one_writer_at_a_time_and_other_runs_are_free(tmp_path: Path) -> None:
    with Transaction(tmp_path, "r"):
        with pytest.raises(LakeError, match="another process is writing run r"), Transaction(tmp_path, "r"):
            pass
        with Transaction(tmp_path, "other"):
            pass
    write(tmp_path, "one")


def test_what_dead_processes_staged_is_removed_and_what_may_live_stays(tmp_path: Path) -> None:
    dead = staging_name("r").split(".")
    dead[-2] = "4194305"  # above the largest pid of Linux
    mine, elsewhere = staging_name("a.b"), ".".join([dead[0], host_name() + "x", *dead[2:]])
    for name in (".".join(dead), mine, elsewhere):
        (tmp_path / ".staging" / name).mkdir(parents=True)
    assert [".".join(dead)] == clean_staging(tmp_path)
    assert sorted([mine, elsewhere]) == sorted(path.name for path in staged(tmp_path))
