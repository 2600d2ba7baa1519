"""The nightly batch on a lake: what it reads, what it leaves, what it says, and that it can die anywhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pipeline import nightly as batch
from pipeline.lake import maintenance
from pipeline.lake.layout import RunDir
from pipeline.lake.transaction import Transaction
from pipeline.model.errors import ConfigError, GateFailed, LakeError, UsageError
from pipeline.nightly.inbox import job_of, run_id_of
from pipeline.nightly.lock import LOCK
from pipeline.nightly.settings import NightlyConfig
from tests import toy
from tests.conftest import ROOT

SETTLED = NightlyConfig.model_validate({"inbox": {"settle_s": 0}})


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inbox in which nothing needs to settle; the toy is the only source."""
    toy.install(monkeypatch)
    monkeypatch.setattr("pipeline.ingest.derive", lambda *_, **__: None)
    folder = tmp_path / "inbox"
    folder.mkdir()
    (folder / "nightly.toml").write_text("[inbox]\nsettle_s = 0\n")
    return folder


def drop(inbox: Path, name: str, *, toml: str = "", starts: tuple[int, ...] = (10, 20)) -> Path:
    toy.write(inbox / name / "rank0.toy", starts=starts)
    (inbox / name / "run.toml").write_text(toml)
    return inbox / name


def put_night(
    lake: Path, job: str, day: int, shares: dict[str, float], *, codes: tuple[str, ...] = (), source: str = "nvtx"
) -> None:
    """A run as the batch leaves it, with these shares and a step of 28 % of 1 ms by MFU (without MFU of 1 ms)."""
    run = f"{job}.2026-01-{day:02}"
    step_ns = round(28e6 / shares.get("mfu", 28))
    with Transaction(lake, run) as transaction:
        staged = transaction.staging
        rows = [{"scope": "run", "category": name, "points": points} for name, points in shares.items()]
        staged.write_batches("mfu", "summary", [toy.batch("mfu", sorted(rows, key=lambda row: str(row["category"])))])
        step = {
            "rank": 0,
            "step": 0,
            "start_ns": 0,
            "end_ns": step_ns,
            "source": source,
            "complete": True,
            "outlier": False,
        }
        staged.write_batches("steps", "steps", [toy.batch("steps", [step])])
        findings = [{"code": code, "severity": "warning"} for code in codes]
        if findings:
            staged.write_batches("findings", "findings", [toy.batch("findings", findings)])
        origin = {"kind": "nightly", "folder": run, "job": job, "fingerprint": run}
        config = {"run": {"started": f"2026-01-{day:02}T03:00:00Z"}, "model": {"flops_per_step": 1e15}}
        staged.write_manifest({"captures": {}, "config": config, "origin": origin, "rows": {}})
        transaction.commit()


def test_new_runs_are_read_and_a_second_call_does_nothing_and_says_so(inbox: Path, tmp_path: Path) -> None:
    drop(inbox, "moe/2026-01-01")
    drop(inbox, "2026-01-01/dense")
    lake, out = tmp_path / "lake", tmp_path / "out"

    first = batch.nightly(inbox, lake, jobs=1, out=out)
    before = {path: path.stat().st_mtime_ns for top in (lake, out) for path in top.rglob("*") if path.is_file()}
    second = batch.nightly(inbox, lake, jobs=1, out=out)
    after = {path: path.stat().st_mtime_ns for top in (lake, out) for path in top.rglob("*") if path.is_file()}

    assert first.read == ["2026-01-01.dense", "moe.2026-01-01"]
    assert {"moe", "dense"} == {series.job for series in first.series}
    assert batch.lines(second) == ["nothing new: 2 runs unchanged"]
    changed = {path.name for path in after if before.get(path) != after[path]}
    assert set() == changed - {LOCK}
    assert second.written == []


def test_a_night_without_steps_has_no_step_time_and_is_not_judged_by_its_windows(inbox: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for day in range(1, 6):
        put_night(lake, "moe", day, {"compute": 60.0, "host_launch": 40.0}, source="window" if day == 4 else "nvtx")
    drop(inbox, "other/2026-01-01")
    (series,) = (s for s in batch.nightly(inbox, lake, jobs=1).series if s.job == "moe")
    assert ["step_ns" in night.measures for night in series.nights] == [True, True, True, False, True]
    assert [verdict.status == "unknown" for verdict in series.verdicts] == [False, False, False, True, False]


def test_new_content_of_a_run_replaces_the_old_and_a_hand_made_run_is_no_night(inbox: Path, tmp_path: Path) -> None:
    from pipeline.ingest import ingest

    lake = tmp_path / "lake"
    folder = drop(inbox, "moe/2026-01-01")
    ingest([toy.write(tmp_path / "hand" / "rank0.toy")], lake, jobs=1)
    batch.nightly(inbox, lake, jobs=1)
    toy.write(folder / "rank0.toy", starts=(10, 20, 30))
    again = batch.nightly(inbox, lake, jobs=1)

    assert ["moe.2026-01-01"] == again.read == again.fresh
    assert maintenance.run_info(RunDir(lake / "run=moe.2026-01-01")).rows == 3
    assert [night.run for series in again.series for night in series.nights] == ["moe.2026-01-01"]


def test_a_folder_that_is_still_written_is_left_whatever_modification_times_it_keeps(
    inbox: Path, tmp_path: Path
) -> None:
    (inbox / "nightly.toml").write_text("[inbox]\nsettle_s = 3600\n")
    folder = drop(inbox, "moe/2026-01-01")
    for path in (folder / "rank0.toy", folder / "run.toml", folder):
        os.utime(path, (0, 0))
    toy.write(inbox / "moe" / "2026-01-02" / "rank0.toy")  # no run.toml yet

    outcome = batch.nightly(inbox, tmp_path / "lake", jobs=1)
    assert (outcome.waiting, outcome.read) == (["moe.2026-01-01"], [])
    assert batch.lines(outcome)[-1] == "left for later, still being written: moe.2026-01-01"


def test_a_bad_run_is_named_stops_no_other_and_is_tried_again(inbox: Path, tmp_path: Path) -> None:
    (inbox / "a").mkdir()
    (inbox / "a" / "run.toml").write_text("[run]\nidd = 1\n")
    (inbox / "a" / "rank0.toy").write_text("{")
    (drop(inbox, "b") / "rank0.toy").write_text("not json")
    drop(inbox, "c")

    for expected in (["c"], []):
        outcome = batch.nightly(inbox, tmp_path / "lake", jobs=1)
        assert [run for run, _ in outcome.failed] == ["a", "b"]
        assert (expected, 3) == (outcome.read, outcome.exit_code)
    assert "did you mean id?" in outcome.failed[0][1]


@pytest.mark.parametrize(
    ("folder", "job", "run"),
    [
        ("moe/2026-01-31", "moe", "moe.2026-01-31"),
        ("2026-01-31/moe", "moe", "2026-01-31.moe"),
        ("moe-2026-01-31", "moe", "moe-2026-01-31"),
        ("team/moe/night-07", "team/moe", "team.moe.night-07"),
        ("moe/first", "moe", "moe.first"),
        ("llama", "llama", "llama"),
    ],
)
def test_a_job_is_named_by_what_is_no_date_in_its_path(folder: str, job: str, run: str) -> None:
    assert (job, run) == (job_of(folder, SETTLED), run_id_of(folder))


def test_different_folders_never_get_one_run_id() -> None:
    folders = ["a/b", "a.b", "a b", "a-b", "a/.b", "ä"]
    assert len(folders) == len({run_id_of(folder) for folder in folders})


def test_a_rule_in_nightly_toml_names_jobs_and_a_wrong_key_names_the_nearest(inbox: Path, tmp_path: Path) -> None:
    rules = NightlyConfig.model_validate({"inbox": {"job": r"^(?P<job>[a-z]+)_"}})
    assert job_of("moe_17_x/y", rules) == "moe"
    (inbox / "nightly.toml").write_text("[inbox]\nsetle_s = 0\n")
    with pytest.raises(ConfigError, match=r"unknown key inbox.setle_s; did you mean settle_s\?"):
        batch.nightly(inbox, tmp_path / "lake")


GOOD = {"mfu": 28.0, "compute_loss": 26.0, "comm_unattributed": 46.0}
BAD = {"mfu": 14.0, "compute_loss": 13.0, "rdma_transfer": 23.0, "ctl_loop": 35.0, "ctl_post": 15.0}


@pytest.fixture
def nights(inbox: Path, tmp_path: Path) -> Path:
    """A lake with nine nights of two jobs; one fell back on the eighth."""
    lake = tmp_path / "lake"
    (lake / ".staging").mkdir(parents=True)
    for day in range(1, 10):
        put_night(lake, "moe", day, GOOD if day < 8 else BAD, codes=("gpu_initiated_fallback",) if day >= 8 else ())
        put_night(lake, "dense", day, GOOD)
    return lake


def test_a_fallback_is_told_on_its_night_alone_with_class_points_and_finding(nights: Path, inbox: Path) -> None:
    outcome = batch.nightly(inbox, nights)
    assert batch.lines(outcome) == [
        (
            "moe.2026-01-08: lost 14.00 MFU points (noise ±0.50, 7 nights): control-plane α +9.80 (0.0 → 35.0 % of the "
            "step), CPU doorbell +4.20 (0.0 → 15.0 % of the step); new: gpu_initiated_fallback"
        ),
        (
            "moe.2026-01-09: steady: +0.00 MFU points, within the noise of ±0.50; since moe.2026-01-08 14.00 below the "
            "level before"
        ),
        "0 read, 0 unchanged, 7 steady, 10 learning",
    ]
    with pytest.raises(GateFailed, match=r"lost 14\.00 MFU points"):
        batch.gate(outcome, 13.0)
    batch.gate(outcome, 14.5)
    again = batch.nightly(inbox, nights)
    assert batch.lines(again) == ["nothing new: 0 runs unchanged"]
    batch.gate(again, 0.0)


def test_pages_json_and_metrics_say_the_same_and_the_metrics_are_openmetrics(
    nights: Path, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.nightly.pages.render", lambda lake, run, format: f"<p>{run}</p>")
    out, metrics = tmp_path / "out", tmp_path / "m.prom"
    outcome = batch.nightly(inbox, nights, out=out, openmetrics=metrics)
    content = json.loads((out / "nightly.json").read_text())
    page = (out / "index.html").read_text()
    families = {each.name: each for each in text_string_to_metric_families(metrics.read_text())}

    assert content["schema"] == "mfuloss.nightly/1"
    by_run = {night["run"]: night for series in content["series"] for night in series["nights"]}
    assert (
        by_run["moe.2026-01-08"]["verdict"]["status"],
        by_run["moe.2026-01-08"]["page"],
    ) == ("worse", "runs/moe.2026-01-08.html")
    assert len(list((out / "runs").iterdir())) == 18
    assert "lost 14.00 MFU points" in page and 'href="runs/moe.2026-01-08.html"' in page
    assert not [
        each
        for each in ("http://", "https://", "@import", '<link rel="stylesheet')
        if each in page.replace("http://www.w3.org", "")
    ]
    mfu = {sample.labels["job"]: sample.value for sample in families["mfuloss_mfu_ratio"].samples}
    assert mfu == {"dense": 0.28, "moe": 0.14}
    for family in families.values():
        assert family.documentation and family.type == "gauge", family.name
        assert family.unit == (
            "" if not family.name.endswith(("_seconds", "_ratio")) else family.name.rsplit("_", 1)[1]
        )
    standing = [s.value for s in families["mfuloss_standing_loss_ratio"].samples]
    assert [pytest.approx(0.14)] == standing
    assert outcome.written


def test_labels_are_escaped_for_every_name_a_folder_can_have() -> None:
    from pipeline.reports import history
    from pipeline.reports.nights import openmetrics

    job = 'a"b\\c\nd'
    night = history.Night("r", 0, {"mfu": 28.0, "step_ns": 1e6})
    series = history.Series(f"{job}@123456", job, {}, (night,), (history.Verdict("r", "learning", "points"),))
    families = {each.name: each for each in text_string_to_metric_families(openmetrics([series], {}, 1.5))}
    assert job == families["mfuloss_mfu_ratio"].samples[0].labels["job"]


def test_another_model_size_or_gpu_is_a_series_of_its_own_and_says_what_changed(nights: Path, inbox: Path) -> None:
    path = RunDir(nights / "run=moe.2026-01-09")
    manifest = path.manifest
    path.write_manifest({**manifest, "config": {**manifest["config"], "ranks": {"expected": 8}}})
    outcome = batch.nightly(inbox, nights)
    assert "moe.2026-01-09: new series of moe: ranks 1 → 8" in batch.lines(outcome)


def test_a_rounding_of_the_flops_begins_no_series_that_would_hide_a_loss(nights: Path, inbox: Path) -> None:
    for day in (8, 9):
        path = RunDir(nights / f"run=moe.2026-01-{day:02}")
        manifest = path.manifest
        path.write_manifest({**manifest, "config": {**manifest["config"], "model": {"flops_per_step": 1.0003e15}}})
    outcome = batch.nightly(inbox, nights)
    assert [series.job for series in outcome.series] == ["dense", "moe"]
    found = outcome.verdict_of("moe.2026-01-08")
    assert found is not None and found[1].status == "worse"


# ---------------------------------------------------------------------------------------------------
# Locks, crashes, full disks


def test_two_calls_never_meet_and_a_lock_left_behind_is_recognised(inbox: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    batch.nightly(inbox, lake)
    code = (
        "import fcntl, os, sys, time; f = os.open(sys.argv[1], os.O_RDWR); fcntl.lockf(f, fcntl.LOCK_EX);"
        'os.pwrite(f, b\'{"pid": 7, "host": "h", "boot_id": "b"}\', 0); print(\'held\', flush=True); time.sleep(60)'
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(lake / LOCK)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=r"another nightly call is at work \(process 7 on h\)"):
            batch.nightly(inbox, lake)
    finally:
        holder.kill()
        holder.communicate()
    outcome = batch.nightly(inbox, lake)
    assert outcome.notes == ["stale lock of process 7 on h: the machine was started anew since"]
    assert batch.nightly(inbox, lake).notes == []


KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline import sources
from tests import toy
sys.modules["pipeline.sources.toy"] = toy
sources.SOURCES = ("toy",)
import pipeline.ingest
from pipeline import nightly
pipeline.ingest.derive = lambda *_, **__: None
left = int(sys.argv[3])

def dies_at_last(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call

for owner, name in ((os, "replace"), (os, "rename"), (os, "fsync"), (os, "link"), (os, "unlink"), (os, "pwrite"), (Path, "rename"), (Path, "write_text"), (Path, "write_bytes")):
    setattr(owner, name, dies_at_last(getattr(owner, name)))
nightly.nightly(sys.argv[1], sys.argv[2], jobs=1)
print("ended", left)
"""
"""A call that kills itself at its n-th change of a file."""


def rows_of(lake: Path) -> dict[str, tuple[int, list[str]]]:
    found = {}
    for info in maintenance.runs(lake):
        manifest = RunDir(lake / f"run={info.run}").manifest
        found[info.run] = (info.rows, sorted(entry["sha256"] for entry in manifest["captures"].values()))
    return found


def test_a_call_killed_at_any_change_loses_nothing_and_doubles_nothing(inbox: Path, tmp_path: Path) -> None:
    def start(lake: Path, change: int) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", KILLED, str(inbox), str(lake), str(change)],
            capture_output=True,
            text=True,
            env=environment,
        )

    drop(inbox, "moe/2026-01-01")
    known, whole = tmp_path / "known", tmp_path / "whole"
    batch.nightly(inbox, known, jobs=1)
    drop(inbox, "moe/2026-01-01", starts=(10, 20, 30))  # a changed run and a new one
    drop(inbox, "moe/2026-01-02", starts=(40,))
    batch.nightly(inbox, whole, jobs=1)
    done = start(tmp_path / "all", 10**6)
    changes = 10**6 - int(done.stdout.split()[-1])
    assert changes > 20, done.stderr

    for change in sorted({1, 2, changes, *range(3, changes, max(1, changes // 5))}):
        lake = tmp_path / f"lake{change}"
        shutil.copytree(known, lake)
        killed = start(lake, change)
        state = lake / batch.STATE
        reported = json.loads(state.read_text())["reported"] if state.is_file() else {}
        outcome = batch.nightly(inbox, lake, jobs=1)
        assert killed.returncode == -signal.SIGKILL or "ended" in killed.stdout, killed.stderr
        assert rows_of(whole) == rows_of(lake), f"killed at change {change}"
        assert [path for path in lake.glob(".staging/*") if path.is_dir()] == []
        assert {"moe.2026-01-01", "moe.2026-01-02"} == {n.run for series in outcome.series for n in series.nights}
        # What was reported nowhere is reported now, and nothing twice.
        runs = ("moe.2026-01-01", "moe.2026-01-02")
        now = {run: RunDir(lake / f"run={run}").manifest["origin"]["fingerprint"] for run in runs}
        assert {run for run in runs if reported.get(run) != now[run]} == set(outcome.fresh)
        assert (lake / "catalog.sql").stat().st_mtime_ns >= (
            lake / f"run={runs[1]}" / "manifest.json"
        ).stat().st_mtime_ns
        shutil.rmtree(lake)


def test_a_full_disk_is_one_clear_error_and_the_lake_stays_as_it_was(inbox: Path, tmp_path: Path) -> None:
    lake = tmp_path / "small"
    lake.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", lake], capture_output=True).returncode
    ):
        pytest.skip("needs root and mount, for a small disk")
    try:
        drop(inbox, "moe/2026-01-01")
        batch.nightly(inbox, lake, jobs=1)
        before = rows_of(lake)
        free = os.statvfs(lake)
        (lake / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_frsize - 8192))
        drop(inbox, "moe/2026-01-02", starts=tuple(range(10, 40_000, 10)))
        with pytest.raises(LakeError, match="the disk is full; the lake is as it was"):
            batch.nightly(inbox, lake, jobs=1)
        assert before == rows_of(lake)
        (lake / "ballast").unlink()
        assert batch.nightly(inbox, lake, jobs=1).read == ["moe.2026-01-02"]
    finally:
        subprocess.run(["umount", lake], check=True)


def test_events_go_by_the_time_of_reading_however_often_a_lake_is_compacted(inbox: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    folder = drop(inbox, "moe/2026-01-01")
    toy.write(folder / "rank1.toy", pid=2, starts=(50,))
    batch.nightly(inbox, lake, jobs=1)
    manifest = lake / "run=moe.2026-01-01" / "manifest.json"
    week_ago = time.time_ns() - 7 * 86_400 * 10**9
    os.utime(manifest, ns=(week_ago, week_ago))
    maintenance.compact(lake, "moe.2026-01-01")

    assert maintenance.drop_old_events(lake, 5) == ["moe.2026-01-01"]
    assert batch.nightly(inbox, lake, jobs=1).unchanged == ["moe.2026-01-01"]
