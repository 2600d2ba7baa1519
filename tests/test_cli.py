"""The command as a user meets it: exit codes, one line an error, stdout for results alone, interruptions."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli import main
from tests import toy
from tests.conftest import ROOT

Mfuloss = Callable[..., tuple[int, str, str]]


def start(*arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
    """`mfuloss` with the toy source, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", toy.MAIN, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


@pytest.fixture
def mfuloss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Mfuloss:
    """Runs the command in this process, in tmp_path, with the toy source; gives (exit code, stdout, stderr)."""
    toy.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "MFULOSS_DEBUG"):
        monkeypatch.setenv(name, "")  # main() sets them: undone at the end of the test
        monkeypatch.delenv(name)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mfuloss", *map(str, arguments)])
        handler = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as exit_:
                main()
        finally:
            signal.signal(signal.SIGTERM, handler)
        out, err = capfd.readouterr()
        return int(exit_.value.code or 0), out, err

    return run


def staged(lake: Path) -> list[Path]:
    return [path for path in lake.glob(".staging/*") if path.is_dir()]


def wait_until_it_reads(process: subprocess.Popen[str], lake: Path) -> None:
    deadline = time.monotonic() + 30
    while not list(lake.glob(".staging/*/_work/*")):
        assert process.poll() is None, "it ended before it read anything"
        assert time.monotonic() < deadline, "it did not read in time"
        time.sleep(0.02)


def test_ingest_prints_one_line_and_a_second_one_says_that_nothing_is_new(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    expected = (0, "run job: 1 read, 0 unchanged, 2 rows\n", "")
    assert expected == mfuloss("ingest", "job", "--lake", "lake")
    expected = (0, "run job: nothing new, unchanged\n", "")
    assert expected == mfuloss("ingest", "job", "--lake", "lake")


def test_a_partly_unusable_input_exits_with_3_and_a_line_a_file(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    (tmp_path / "job" / "rank1.toy").write_text("no JSON")
    code, out, err = mfuloss("ingest", "job", "--lake", "lake")
    assert (code, out) == (3, "run job: 1 read, 0 unchanged, 2 rows\n")
    assert err == "job/rank1.toy: unusable: not a toy\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ingest", "job/none.toy", "--lake", "lake"), "job/none.toy: no such file or folder; check the path"),
        (("ingest", "job/bad.toy", "--lake", "lake"), "not a toy"),
        (("ingest", "job/empty.toy", "--lake", "lake"), "an empty file"),
        (("ingest", "job/note.txt", "--lake", "lake"), "not a trace that any source can read"),
        (("ingest", "job/rank0.toy", "--lake", "file"), "file: is a file, not a lake"),
        (("ingest", "job/rank0.toy"), "Missing option '--lake'"),
        (("ingest", "job/rank0.toy", "--lake", "lake", "--run", "../x"), "can't name a folder"),
        (
            ("ingest", "job/rank0.toy", "--lake", "lake", "--config", "job/run.bad"),
            "unknown key run.idd; did you mean id?",
        ),
        (("report", "--lake", "nowhere"), "nowhere"),
        (("sql", "--lake", "nowhere", "SELECT 1"), "no such lake"),
        (("lake", "remove", "x", "--lake", "nowhere"), "no such lake"),
        (("ingets",), "Did you mean 'ingest'?"),
    ],
)
def test_bad_use_and_unusable_input_exit_with_2_and_one_line(
    mfuloss: Mfuloss, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    (tmp_path / "job" / "bad.toy").write_text("no JSON")
    (tmp_path / "job" / "empty.toy").touch()
    (tmp_path / "job" / "note.txt").write_text("hello")
    (tmp_path / "job" / "run.bad").write_text('[run]\nidd = "x"\n')
    (tmp_path / "file").touch()
    code, out, err = mfuloss(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err
    assert list((tmp_path / "lake").glob("run=*")) == []


def test_a_lake_that_is_not_writable_is_one_line(
    mfuloss: Mfuloss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "touch", refuse)  # root may write everywhere, and tests may run as root
    expected = "mfuloss: lake: can't write the lake: Permission denied; check its path and permissions\n"
    assert (2, "", expected) == mfuloss("ingest", "job", "--lake", "lake")


def test_a_lake_below_a_file_is_one_line(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    (tmp_path / "file").touch()
    code, _, err = mfuloss("ingest", "job", "--lake", "file/lake")
    assert (
        code,
        err,
    ) == (2, "mfuloss: file/lake: can't write the lake: Not a directory; check its path and permissions\n")


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_an_interrupted_ingest_leaves_no_run_nothing_staged_and_no_traceback(
    mfuloss: Mfuloss, tmp_path: Path, number: signal.Signals, expected: int
) -> None:
    toy.write(tmp_path / "job" / "rank0.toy", sleep_s=60)
    process = start("ingest", "job", "--lake", "lake", cwd=tmp_path)
    wait_until_it_reads(process, tmp_path / "lake")
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert (expected, "mfuloss: interrupted; nothing was changed\n") == (process.returncode, err)
    assert (list((tmp_path / "lake").glob("run=*")), staged(tmp_path / "lake")) == ([], [])


def _processor_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


ONE_TASK = "SELECT sum(sqrt(range)) FROM range(100000000000)"
MANY_TASKS = "SELECT count(*) FROM range(1000000) AS a, range(1000000) AS b WHERE hash(a.range, b.range) % 7 = 0"
"""Queries of minutes: in the first the main thread may have nothing to do but to wait for the thread that has it."""


@pytest.mark.parametrize(
    ("number", "query"), [(signal.SIGINT, ONE_TASK), (signal.SIGTERM, ONE_TASK), (signal.SIGINT, MANY_TASKS)]
)
def test_an_interrupted_query_is_an_interruption_too(
    mfuloss: Mfuloss, tmp_path: Path, number: signal.Signals, query: str
) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    mfuloss("ingest", "job", "--lake", "lake")
    process = start("sql", "--lake", "lake", query, cwd=tmp_path)
    try:
        # Starting takes less than half of this processor time.
        while process.poll() is None and _processor_s(process.pid) < 3:
            time.sleep(0.1)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "mfuloss: interrupted; nothing was changed\n")


def test_kill_9_leaves_the_lake_as_it_was_and_the_next_ingest_cleans_up(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy", pid=1)
    mfuloss("ingest", "job", "--lake", "lake")
    before = {p: p.read_bytes() for p in (tmp_path / "lake" / "run=job").rglob("*") if p.is_file()}
    toy.write(tmp_path / "job" / "rank1.toy", pid=2, sleep_s=60)
    process = start("ingest", "job", "--lake", "lake", "--jobs", "1", cwd=tmp_path)
    wait_until_it_reads(process, tmp_path / "lake")
    process.kill()
    process.communicate(timeout=30)
    assert before == {p: p.read_bytes() for p in (tmp_path / "lake" / "run=job").rglob("*") if p.is_file()}
    assert len(staged(tmp_path / "lake")) == 1
    toy.write(tmp_path / "job" / "rank1.toy", pid=2)
    assert mfuloss("ingest", "job", "--lake", "lake")[0] == 0
    assert staged(tmp_path / "lake") == []


def test_sql_answers_in_every_format_on_stdout(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    mfuloss("ingest", "job", "--lake", "lake")
    query = "SELECT name, start_ns FROM gpu_ops ORDER BY start_ns"
    answers = {
        "table": "name  start_ns\n----  --------\nk           10\nk           20\n",
        "csv": "name,start_ns\nk,10\nk,20\n",
        "json": '[{"name": "k", "start_ns": 10},\n {"name": "k", "start_ns": 20}]\n',
    }
    for name, expected in answers.items():
        assert (0, expected, "") == mfuloss("sql", "--lake", "lake", query, "--format", name)
    assert mfuloss("sql", "--lake", "lake", query, "--format", "parquet", "-o", "x.parquet")[0] == 0
    assert (tmp_path / "x.parquet").read_bytes()[:4] == b"PAR1"


def test_sql_without_a_query_reads_statements_from_stdin(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    mfuloss("ingest", "job", "--lake", "lake")
    done = subprocess.run(
        [sys.executable, "-c", toy.MAIN, "sql", "--lake", "lake"],
        input="SELECT count(*) AS n\nFROM gpu_ops;\nSELECT 1 AS one;\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stdout == "n\n-\n2\none\n---\n  1\n"


def test_an_sql_error_is_one_line_and_exit_code_2(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy")
    mfuloss("ingest", "job", "--lake", "lake")
    code, out, err = mfuloss("sql", "--lake", "lake", "SELECT nothing FROM gpu_ops")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert 'Referenced column "nothing" not found' in err


def test_doctor_says_what_a_file_holds_and_by_which_rule_it_has_its_rank(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "a.toy", processes=[toy.process(1, RANK="7")])
    (tmp_path / "job" / "b.toy").write_text("no JSON")
    code, out, _ = mfuloss("doctor", "job", "--format", "json")
    assert code == 3
    first, second = json.loads(out)["inputs"]
    assert (first["processes"][0]["rank"], first["processes"][0]["rank_by"]) == (7, "env")
    assert (second["usable"], second["reason"]) == (False, "not a toy")
    code, out, _ = mfuloss("doctor", "job")
    assert "rank 7 (by env)" in out


def test_lake_commands_list_describe_compact_and_remove_runs(mfuloss: Mfuloss, tmp_path: Path) -> None:
    toy.write(tmp_path / "job" / "rank0.toy", pid=1)
    toy.write(tmp_path / "job" / "rank1.toy", pid=2, starts=(1, 2, 3))
    mfuloss("ingest", "job", "--lake", "lake", "--jobs", "1")
    _, out, _ = mfuloss("lake", "list", "--lake", "lake", "--format", "json")
    [run] = json.loads(out)
    assert (run["run"], run["captures"], run["rows"], run["events"]) == ("job", 2, 5, True)
    _, out, _ = mfuloss("lake", "info", "--lake", "lake")
    assert "job/rank1.toy" in out
    assert mfuloss("lake", "compact", "--lake", "lake")[0] == 0
    assert len(list((tmp_path / "lake" / "run=job" / "gpu_ops").iterdir())) == 1
    assert mfuloss("lake", "remove", "job", "--lake", "lake")[0] == 0
    assert list((tmp_path / "lake").glob("run=*")) == []


def test_a_bug_is_one_line_with_exit_code_1_and_a_traceback_only_with_debug(mfuloss: Mfuloss, tmp_path: Path) -> None:
    code = (
        "import sys\nimport pipeline.ingest as module\nfrom pipeline.cli import main\n"
        "def broken(*_, **__):\n    raise ZeroDivisionError('two\\nlines')\n"
        "sys.modules['pipeline.ingest'].ingest = broken\nmain()\n"
    )
    for extra, lines in ((), 1), (("--debug",), 5):
        done = subprocess.run(
            [sys.executable, "-c", code, "ingest", "x", "--lake", "lake", *extra],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.count("\n") >= lines
        assert ("Traceback" in done.stderr) == bool(extra)


def test_simulate_passes_the_share_that_is_lost(mfuloss: Mfuloss) -> None:
    expected = (2, "", "mfuloss: a loss of 0.75 of a step is not in 0 to 0.5; change --lose\n")
    assert expected == mfuloss("simulate", "healthy", "--out", "out", "--lose", "0.75")
