"""Ingest around its sources: what a run holds after one, two, many ingests, and after failures."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.ingest import attribute, ingest
from pipeline.ingest.find import Input, find_inputs
from pipeline.ingest.manifest import anchor_entries
from pipeline.lake.layout import RunDir
from pipeline.model.errors import LakeError, UnusableInput, UsageError
from tests import toy


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    toy.install(monkeypatch)


def load(lake: Path, inputs: list[Path], **options: Any) -> Any:
    return ingest(inputs, lake, jobs=1, attribute=False, **options)


def rows(lake: Path, query: str) -> list[tuple[Any, ...]]:
    with pipeline.connect(lake) as connection:
        return list(connection.execute(query).fetchall())


def files(lake: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(lake)): path.read_bytes()
        for path in sorted(lake.rglob("*"))
        if path.is_file() and ".staging" not in path.parts
    }


def test_anchors_replace_those_of_their_own_name_before_those_of_one_like_it(tmp_path: Path) -> None:
    (tmp_path / "anchors.jsonl").write_text("{}")
    known = [
        {"name": name, "kind": "anchors", "sha256": name, "bytes": 1, "anchors": []}
        for name in ("a/anchors.jsonl", "anchors.jsonl")
    ]
    found = anchor_entries([Input(tmp_path / "anchors.jsonl", "anchors.jsonl", explicit=True)], known)
    kept = {entry["name"]: entry["sha256"] for entry in found.values()}
    assert kept["a/anchors.jsonl"] == "a/anchors.jsonl"
    assert kept["anchors.jsonl"] != "anchors.jsonl"


def test_a_folder_becomes_a_run_of_its_name_with_rows_sorted_and_ranked(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy", pid=1, starts=(20, 10))
    toy.write(tmp_path / "job" / "rank1.toy", pid=2, starts=(30,))
    report = load(tmp_path / "lake", [tmp_path / "job"])
    assert (report.run, report.changed, report.rows) == ("job", True, 3)
    expected = [("job", 0, 10), ("job", 0, 20), ("job", 1, 30)]
    assert expected == rows(tmp_path / "lake", "SELECT run, rank, start_ns FROM gpu_ops ORDER BY 2, 3")
    expected_ranks = [(0, "job", 0, 1), (1, "job", 1, 2)]
    assert expected_ranks == rows(tmp_path / "lake", "SELECT rank, node, local_rank, pid FROM ranks ORDER BY rank")


def test_ingesting_the_same_content_again_changes_nothing_and_says_so(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    load(tmp_path / "lake", [tmp_path / "job"])
    before = files(tmp_path / "lake")
    report = load(tmp_path / "lake", [tmp_path / "job"])
    assert (report.changed, report.unchanged) == (False, ("job/rank0.toy",))
    assert before == files(tmp_path / "lake")


def test_a_changed_file_replaces_its_rows_alone(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy", pid=1, starts=(10,))
    toy.write(tmp_path / "job" / "rank1.toy", pid=2, starts=(20,))
    load(tmp_path / "lake", [tmp_path / "job"])
    toy.write(tmp_path / "job" / "rank1.toy", pid=2, starts=(21, 22))
    report = load(tmp_path / "lake", [tmp_path / "job"])
    assert (report.read, report.unchanged) == (("job/rank1.toy",), ("job/rank0.toy",))
    assert rows(tmp_path / "lake", "SELECT rank, start_ns FROM gpu_ops ORDER BY 1, 2") == [(0, 10), (1, 21), (1, 22)]
    assert rows(tmp_path / "lake", "SELECT count(*) FROM captures") == [(2,)]


def test_new_files_are_added_to_a_known_run(tmp_path: Path) -> None:
    first = toy.write(tmp_path / "job" / "rank0.toy", pid=1, starts=(10,))
    load(tmp_path / "lake", [first], run="r")
    second = toy.write(tmp_path / "job" / "rank1.toy", pid=2, starts=(20,))
    report = load(tmp_path / "lake", [second], run="r")
    assert report.read == ("job/rank1.toy",)
    assert rows(tmp_path / "lake", "SELECT rank, start_ns FROM gpu_ops ORDER BY 1, 2") == [(0, 10), (1, 20)]


def test_two_captures_that_claim_one_rank_are_an_error_that_names_both(tmp_path: Path) -> None:
    toy.write(tmp_path / "a" / "rank0.toy", pid=1)
    toy.write(tmp_path / "b" / "rank0.toy", pid=2)
    with pytest.raises(UsageError, match=r"a/rank0\.toy .* and b/rank0\.toy .* both claim rank 0"):
        load(tmp_path / "lake", [tmp_path / "a", tmp_path / "b"])
    assert not (tmp_path / "lake" / "run=a").exists()


def test_an_unusable_file_stays_visible_and_does_not_stop_the_others(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    (tmp_path / "job" / "rank1.toy").write_text("no JSON")
    (tmp_path / "job" / "rank2.toy").touch()
    (tmp_path / "job" / "rank3.toy").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    toy.write(tmp_path / "job" / "rank4.toy", pid=9, surprise=True)
    report = load(tmp_path / "lake", [tmp_path / "job"])
    expected = {
        "job/rank1.toy": "not a toy",
        "job/rank2.toy": "an empty file",
        "job/rank3.toy": "a Git LFS pointer, not the file itself; run: git lfs pull",
        "job/rank4.toy": "reading it failed: ZeroDivisionError: surprise",
    }
    assert expected == dict(report.unusable)
    query = "SELECT name, reason FROM captures WHERE status = 'unusable'"
    assert expected == dict(rows(tmp_path / "lake", query))
    again = load(tmp_path / "lake", [tmp_path / "job"])
    assert expected == dict(again.unusable)


def test_nothing_usable_is_an_error_and_leaves_no_run(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank0.toy").write_text("no JSON")
    with pytest.raises(UnusableInput, match="not a toy"):
        load(tmp_path / "lake", [tmp_path / "job"])
    assert list((tmp_path / "lake").glob("run=*")) == []


def test_files_that_nobody_claims_are_ignored_in_a_folder_and_an_error_when_named(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    notes = tmp_path / "job" / "notes.txt"
    notes.write_text("hello")
    assert (notes,) == find_inputs([tmp_path / "job"]).ignored
    assert load(tmp_path / "lake", [tmp_path / "job"]).unusable == ()
    report = load(tmp_path / "lake2", [tmp_path / "job" / "rank0.toy", notes])
    assert [name for name, _ in report.unusable] == ["job/notes.txt"]


def test_missing_paths_and_globs_without_match_are_errors(tmp_path: Path) -> None:
    for given in ("nowhere", "nowhere*.toy"):
        with pytest.raises(UsageError):
            load(tmp_path / "lake", [tmp_path / given])


def test_a_glob_is_expanded_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 9):
        toy.write(tmp_path / f"rank{number}.toy")
    names = [each.path.name for each in find_inputs([str(tmp_path / "rank*.toy")]).inputs]
    assert names == ["rank9.toy", "rank10.toy"]


def test_a_full_disk_is_a_lake_error_and_leaves_the_lake_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    load(tmp_path / "lake", [tmp_path / "job"])
    before = files(tmp_path / "lake")
    toy.write(tmp_path / "job" / "rank1.toy", pid=7)

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunDir, "write", full)
    with pytest.raises(LakeError, match="disk is full"):
        load(tmp_path / "lake", [tmp_path / "job"])
    assert before == files(tmp_path / "lake")
    assert [p for p in (tmp_path / "lake" / ".staging").iterdir() if p.is_dir()] == []


def test_times_are_mapped_to_utc_by_the_folders_anchors(tmp_path: Path) -> None:
    # UTC = boottime + 1000 at boottime 0, and gains 1 ns in 1000.
    anchors = [
        {"monotonic_ns": 0, "boottime_ns": 0, "realtime_ns": 1_000, "bracket_ns": 3, "when": "start"},
        {"monotonic_ns": 10_000_000, "boottime_ns": 10_000_000, "realtime_ns": 10_011_000 - 10_000, "when": "end"},
    ]
    toy.write(tmp_path / "job" / "rank0.toy", starts=(5_000_000,), clock="boottime")
    (tmp_path / "job" / "anchors.jsonl").write_text("\n".join(json.dumps(each) for each in anchors))
    load(tmp_path / "lake", [tmp_path / "job"])
    assert rows(tmp_path / "lake", "SELECT start_ns, end_ns FROM gpu_ops") == [(5_001_000, 5_001_005)]
    query = "SELECT offset_ns, offset_error_ns, status, first_ns FROM captures WHERE kind = 'toy'"
    assert rows(tmp_path / "lake", query) == [(1_000, 4, "ok", 5_001_000)]


def test_a_capture_without_anchor_is_unaligned_and_its_rows_have_no_rank(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy", starts=(5,), clock="boottime")
    load(tmp_path / "lake", [tmp_path / "job"])
    assert rows(tmp_path / "lake", "SELECT rank, start_ns FROM gpu_ops ORDER BY 1, 2") == [(None, 5)]
    [(offset, status, reason)] = rows(tmp_path / "lake", "SELECT offset_ns, status, reason FROM captures")
    assert (offset, status) == (None, "partial")
    assert "no anchor" in reason


def test_anchors_that_come_later_align_what_was_read_before(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy", starts=(5,), clock="boottime")
    load(tmp_path / "lake", [tmp_path / "job"])
    anchor = {"monotonic_ns": 0, "boottime_ns": 0, "realtime_ns": 100, "bracket_ns": 0}
    (tmp_path / "job" / "anchors.jsonl").write_text(json.dumps(anchor))
    load(tmp_path / "lake", [tmp_path / "job"])
    assert rows(tmp_path / "lake", "SELECT rank, start_ns FROM gpu_ops ORDER BY 1, 2") == [(0, 105)]


def test_bad_lines_are_kept_beside_the_tables(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy", bad_lines=["x,1", "y,2"])
    load(tmp_path / "lake", [tmp_path / "job"])
    [side] = (tmp_path / "lake" / "run=job" / "side").glob("*.bad_lines")
    assert side.read_bytes() == b"x,1\ny,2\n"
    assert rows(tmp_path / "lake", "SELECT status, reason FROM captures") == [("partial", "2 lines could not be read")]


def test_run_toml_of_the_folder_names_the_run_and_another_one_overrides_it(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    (tmp_path / "job" / "run.toml").write_text('[run]\nid = "named"\n')
    other = tmp_path / "other.toml"
    other.write_text('[run]\nid = "overridden"\n')
    assert load(tmp_path / "lake", [tmp_path / "job"]).run == "named"
    assert load(tmp_path / "lake", [tmp_path / "job"], config=other).run == "overridden"
    assert load(tmp_path / "lake", [tmp_path / "job"], run="given").run == "given"


def test_the_run_toml_that_was_given_is_the_one_that_the_run_goes_back_to(tmp_path: Path) -> None:
    """Also where the inputs have several, which without a word from the user would be one too many."""
    for rank, name in enumerate("ab"):
        toy.write(tmp_path / name / f"rank{rank}.toy", pid=rank + 1)
        (tmp_path / name / "run.toml").write_text(f'[run]\nid = "{name}"\n')
    given = tmp_path / "given.toml"
    given.write_text('[run]\nid = "c"\n')
    load(tmp_path / "lake", [tmp_path / "a", tmp_path / "b"], config=given)
    assert RunDir(tmp_path / "lake" / "run=c").manifest["config_path"] == str(given)


def test_one_content_under_two_names_is_read_once(tmp_path: Path) -> None:
    path = toy.write(tmp_path / "job" / "rank0.toy")
    (tmp_path / "job" / "copy.toy").write_bytes(path.read_bytes())
    report = load(tmp_path / "lake", [tmp_path / "job"])
    assert report.rows == 2
    assert report.notes == ("job/rank0.toy: same content as job/copy.toy; read once",)


def test_a_gpu_capture_that_no_rule_ranks_is_partial_and_says_what_to_do(tmp_path: Path) -> None:
    """One file has a rank in its environment, so a file without one can't be counted from 0 beside it."""
    toy.write(tmp_path / "job" / "a.toy", pid=1, processes=[toy.process(1, RANK="0")])
    toy.write(tmp_path / "job" / "b.toy", pid=2)
    load(tmp_path / "lake", [tmp_path / "job"])
    found = dict(rows(tmp_path / "lake", "SELECT name, status || ': ' || coalesce(reason, '') FROM captures"))
    assert found["job/a.toy"] == "ok: "
    assert found["job/b.toy"].startswith("partial: no rule gives its GPU processes a rank")


def test_a_file_name_that_is_no_utf_8_is_read_like_any_other(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff_rank0.toy"))
    toy.write(odd)
    load(tmp_path / "lake", [folder])
    assert rows(tmp_path / "lake", "SELECT count(*) FROM gpu_ops WHERE rank = 0") == [(2,)]


def test_a_run_that_another_version_read_is_not_attributed_but_ingested_again(tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    load(tmp_path / "lake", [tmp_path / "job"])
    manifest = tmp_path / "lake" / "run=job" / "manifest.json"
    told = json.loads(manifest.read_text("utf-8"))
    told["versions"]["reader"] -= 1
    manifest.write_text(json.dumps(told), "utf-8")
    before = files(tmp_path / "lake")
    with pytest.raises(UsageError, match="another version"):
        attribute(tmp_path / "lake", "job", jobs=1)
    assert before == files(tmp_path / "lake")
