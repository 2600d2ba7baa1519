"""Flight-recorder dumps: what is known of each operation, and nothing but plain values out of a pickle (F44)."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from pipeline.model.errors import UnusableInput


def dump(*entries, **more):
    group = {"7": {"name": "7", "desc": "dp", "ranks": "[2, 5, 8]"}}
    return {"version": "2.9", "pg_config": group, "nccl_version": "2.27.3", "entries": list(entries), **more}


def entry(name, **more):
    return {
        "process_group": ["7", "dp"],
        "collective_seq_id": 27,
        "p2p_seq_id": 12224,
        "profiling_name": name,
        "input_sizes": [[4096, 2]],
        "input_dtypes": ["BFloat16"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        **more,
    }


def test_operations_have_communicator_number_size_and_times(read_text):
    read = read_text(
        json.dumps(
            dump(
                entry("nccl:all_reduce", time_discovered_started_ns=1758609938261281101),
                entry("nccl:_all_gather_base", state="scheduled", input_dtypes=["Unheard"]),
                rank=5,
            )
        ),
        "dump.json",
    )
    names = ("rank", "comm_id", "seq", "op", "bytes", "n_ranks", "start_ns", "end_ns")
    assert read.brief("comm_ops", *names) == [
        (5, "7", 27, "AllReduce", 16384, 3, 1758609938261281101, None),
        (5, "7", 27, "AllGather", None, 3, None, None),
    ]
    assert read.column("log_events", "text") == [
        "1 of 2 recorded operations had not completed; the first is AllGather number 27 of communicator 7"
    ]


def test_the_peer_of_a_send_is_a_rank_of_the_job_not_of_the_group(read_text):
    read = read_text(
        pickle.dumps(dump(entry("nccl:send 0->2", is_p2p=True), entry("nccl:recv 0<-1", is_p2p=True))), "x_rank_2"
    )
    assert read.brief("comm_ops", "rank", "op", "seq", "peer_rank") == [(2, "Send", 12224, 8), (2, "Recv", 12224, 5)]


def test_the_rank_comes_from_the_name_where_the_dump_does_not_say(read_text):
    read = read_text(pickle.dumps(dump(entry("nccl:broadcast"))), "nccl_trace_rank_container-node02_5")
    assert read.column("comm_ops", "rank") == [5]


def test_a_pickle_that_names_a_class_is_refused(tmp_path, read_file):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"pg_config": {}, "nccl_version": "2", "entries": [Path("x")]}))
    with pytest.raises(UnusableInput, match="plain values only"):
        read_file(path)


def test_a_cut_pickle_is_unusable(tmp_path, read_file):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(dump(entry("nccl:barrier")))[:-40])
    with pytest.raises(UnusableInput, match="not a flight-recorder dump"):
        read_file(path)


def test_real_dumps_start_at_different_numbers_and_may_be_empty(data, read_file):
    counts = {}
    for name in ("_dump_0", "_dump_11", "_dump_15"):
        read = read_file(data / "flight-recorder" / name)
        counts[read.capture.processes[0].env["RANK"]] = len(read.tables["comm_ops"])
        assert set(read.column("comm_ops", "start_ns")) <= {None}
    assert counts == {"0": 10, "11": 23, "15": 0}
