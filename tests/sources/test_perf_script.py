"""`perf script` and ftrace text: both forms of sched_switch, probes as calls, and no clock that nobody named (F52)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

KEY_VALUE = """\
# tracer: nop
#
          driver-4125    [000] d..2.  4642.417549: sched_switch: prev_comm=driver prev_pid=4125 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
     my thing 2-3321    [001] d.s3.  4642.418366: sched_waking: comm=driver pid=4125 prio=120 target_cpu=000
          <idle>-0       [000] d..2.  4642.418408: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=driver next_pid=4125 next_prio=120
          driver-4125    [000] d..2.  4642.419000: sched_switch: prev_comm=driver prev_pid=4125 prev_prio=120 prev_state=Z ==> next_comm=x next_pid=9 next_prio=120
"""
ARROWS = """\
driver  4125 [000]  4642.417549: sched:sched_switch: driver:4125 [120] S ==> swapper/0:0 [120]
my thing 2  3321 [001]  4642.418366: sched:sched_waking: driver:4125 [120] CPU:000
swapper     0 [000]  4642.418408: sched:sched_switch: swapper/0:0 [120] R ==> driver:4125 [120]
driver  4125 [000]  4642.419000: sched:sched_switch: driver:4125 [120] Z ==> x:9 [120]
"""


@pytest.mark.parametrize("text", [KEY_VALUE, ARROWS])
def test_both_forms_of_a_switch_give_the_same_states(read_text, text):
    read = read_text(text, "trace.txt")
    driver = [
        row
        for row in read.brief("thread_states", "tid", "name", "start_ns", "end_ns", "state", "other_tid")
        if row[0] == 4125
    ]
    assert sorted(driver, key=lambda row: row[2]) == [
        (4125, "driver", 4642417549000, 4642418366000, "blocked", 3321),
        (4125, "driver", 4642418366000, 4642418408000, "runnable", 0),
        (4125, "driver", 4642418408000, 4642419000000, "running", None),
    ]
    assert (read.account.bad_line_count, read.capture.clock) == (0, "none")


def test_probes_with_arguments_are_posts(read_text):
    read = read_text(
        "# clockid: monotonic (1)\n"
        "proxy 10/11 [003] 7.000001250: probe_libmlx5:mlx5_post_send: (7f00) qp_num=417 wr_id=0x10 opcode=0 flags=0x2 bytes=4096\n"
        "\t    7f0012 main (/bin/x)\n"
        "proxy 10/11 [003] 7.000004500: probe_libmlx5:mlx5_post_send__return: (7f10 <- 7f00) arg1=0x0\n"
        "LOST 12 events\n"
        "proxy 10/11 [003] 7.000009000: probe_libmlx5:mlx5_post_send: (7f00) qp_num=417 wr_id=0x11 opcode=0 flags=0x0 bytes=8\n"
        "what is this\n",
        "perf.txt",
        ranks={10: 4},
    )
    names = (
        "rank",
        "pid",
        "tid",
        "cpu",
        "qp",
        "wr_id",
        "opcode",
        "bytes",
        "signaled",
        "enter_ns",
        "exit_ns",
        "ret",
        "source",
    )
    same = (4, 10, 11, 3, 417)
    assert sorted(read.brief("rdma_posts", *names)) == [
        (*same, 16, "RDMA_WRITE", 4096, True, 7000001250, 7000004500, 0, "perf"),
        (*same, 17, "RDMA_WRITE", 8, False, 7000009000, None, None, "perf"),
    ]
    assert read.brief("losses", "start_ns", "end_ns", "lost_events") == [(7000004500, 7000009000, 12)]
    assert (read.capture.clock, read.account.bad_lines) == ("monotonic", [b"what is this"])


def test_a_real_ftrace_capture_is_read_whole(data, read_file):
    read = read_file(data / "ebpf" / "run_ftrace" / "trace.txt")
    assert (read.account.bad_line_count, read.account.lost_events) == (0, 0)
    assert Counter(read.column("thread_states", "state")).keys() == {"running", "runnable", "blocked"}
    slices = sorted(read.brief("thread_states", "tid", "start_ns", "end_ns"))
    assert [a for a, b in pairwise(slices) if a[0] == b[0] and a[2] > b[1]] == []
    assert sum(1 for row in read.tables["thread_states"] if row["name"] == "driver" and row["state"] == "running") > 50
