"""Real recordings: the counts that the driver's own log gives, and times that agree with its clock."""

from __future__ import annotations

import csv
from collections import Counter
from itertools import pairwise
from statistics import median

import pytest

from pipeline.model.capture import Account, Capture
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources import ebpf_csv


def truth_of(folder):
    with (folder / "truth.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("run", ["run_collect017", "run_collect023"])
def test_every_message_of_the_driver_is_a_post_and_a_completion(data, read_file, run):
    read = read_file(data / "ebpf" / run / "ebpf.out")
    truth = truth_of(data / "ebpf" / run)
    expected = Counter((int(t["tid"]), int(t["qp"]), int(t["bytes"])) for t in truth)
    assert Counter(read.brief("rdma_posts", "tid", "qp", "bytes")) == expected
    assert Counter(read.column("rdma_completions", "qp")) == Counter(int(t["qp"]) for t in truth)
    assert (read.account.bad_line_count, read.account.lost_events, read.account.status) == (0, 0, None)
    assert (read.capture.tool, read.capture.clock) == ("bpftrace", "boottime")


def test_posts_lie_where_the_driver_made_them(data, read_file):
    """Uprobe stamps: entry 1.3 to 1.8 µs before the truth, return 0.4 to 0.6 µs after (median)."""
    read = read_file(data / "ebpf" / "run_collect023" / "ebpf.out")
    truth = sorted(
        (int(t["qp"]), int(t["enter_ns"]), int(t["exit_ns"])) for t in truth_of(data / "ebpf/run_collect023")
    )
    seen = sorted(read.brief("rdma_posts", "qp", "enter_ns", "exit_ns"))
    assert 500 < median(t[1] - s[1] for s, t in zip(seen, truth, strict=True)) < 3_000
    assert 0 < median(s[2] - t[2] for s, t in zip(seen, truth, strict=True)) < 3_000


@pytest.mark.parametrize(
    ("run", "states"),
    [
        ("run_collect017", {"running": 181, "runnable": 181, "blocked": 75}),
        ("run_collect023", {"running": 216, "runnable": 216, "blocked": 74}),
    ],
)
def test_threads_have_one_state_at_a_time(data, read_file, run, states):
    read = read_file(data / "ebpf" / run / "ebpf.out")
    assert Counter(read.column("thread_states", "state")) == states
    slices = sorted(read.brief("thread_states", "tid", "start_ns", "end_ns"))
    assert [a for a, b in pairwise(slices) if a[0] == b[0] and a[2] > b[1]] == []
    assert set(read.column("thread_states", "pid")) == set(read.column("rdma_posts", "pid"))


def test_json_with_entry_doorbell_and_return_apart_gives_whole_posts(data, read_file):
    read = read_file(data / "ebpf" / "run_json023" / "ebpf.out")
    posts = read.brief("rdma_posts", "enter_ns", "doorbell_ns", "exit_ns", "wr_id", "n_wr")
    assert posts[0] == (4392876838265, 4392876864153, 4392876872375, 0, 1)
    assert all(enter < bell < leave for enter, bell, leave, _, _ in posts[:-1])
    assert read.account.bad_line_count == 1  # it is cut
    assert read.account.reason == "the last line is cut short"


def test_libbpf_has_the_monotonic_clock_and_no_completions(data, read_file):
    read = read_file(data / "ebpf" / "run_libbpf" / "ebpf.out")
    assert (read.capture.tool, read.capture.clock) == ("libbpf", "monotonic")
    assert len(read.tables["rdma_posts"]) == 1000
    assert set(read.column("rdma_posts", "source")) == {"libbpf"}
    assert read.capture.missing == ("completions", "sched")


def test_losses_cover_from_the_record_before_to_the_record_after(data, read_file):
    read = read_file(data / "ebpf" / "run_lost023" / "ebpf.trimmed.jsonl")
    assert read.account.lost_events == 74259 + 7767 + 7767
    assert read.brief("losses", "start_ns", "end_ns", "lost_events")[:2] == [
        (4417525586949, 4417788538562, 74259),
        (4417525586949, 4417788538562, 7767),
    ]
    assert (read.account.status, read.account.reason) == ("partial", "the recorder lost 89793 events")


def test_a_killed_recorder_leaves_what_it_wrote(data, read_file):
    read = read_file(data / "ebpf" / "sample_sigkill_truncated_o.csv")
    assert (len(read.tables["rdma_posts"]), len(read.tables["rdma_completions"])) == (186, 182)
    assert "end" in read.capture.missing


def test_lost_event_lines_are_found_between_records_of_an_unknown_layout(data, read_file):
    """A rate test's own records are bad lines here, but they date the losses beside them."""
    path = data / "ebpf" / "sample_lost_text_023.out"
    with pytest.raises(UnusableInput, match="no record of rdma-ebpf-csv-1"):
        read_file(path)
    capture = Capture(path=path, kind=ebpf_csv.KIND, tool="bpftrace")
    account = Account()
    rows = [row for _, batch in ebpf_csv.read(capture, {}, "n0", RunConfig(), account) for row in batch.to_pylist()]
    assert [row["lost_events"] for row in rows] == [2978, 3220, 1052]
    assert all(row["start_ns"] < row["end_ns"] for row in rows)
    assert account.bad_line_count > 1000
