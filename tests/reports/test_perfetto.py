"""A step as a timeline: read back through Perfetto's own protobuf schema, and as Chrome JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from pipeline.lake.catalog import find_run
from pipeline.model.errors import UsageError
from pipeline.reports.perfetto import Exported, export
from tests.reports.lakes import MS, T0, new_run, put


class Read:
    """A trace as a viewer reads it: tracks by uuid, slices by track in the order of time, flows."""

    def __init__(self, path: Path) -> None:
        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        self.tracks: dict[int, Any] = {}
        names: dict[int, str] = {}
        self.slices: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        self.counters: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.flows: dict[int, list[str]] = defaultdict(list)
        self.notes: dict[str, dict[str, Any]] = {}
        open_slices: dict[int, list[tuple[str, int]]] = defaultdict(list)
        assert trace.packet[0].sequence_flags & 1
        for packet in trace.packet:
            names.update({entry.iid: entry.name for entry in packet.interned_data.event_names})
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        events = [packet for packet in trace.packet if packet.HasField("track_event")]
        for packet in sorted(events, key=lambda packet: packet.timestamp):  # stable, as trace processors sort
            event = packet.track_event
            track = self.tracks[event.track_uuid].name
            if event.type == TrackEvent.TYPE_SLICE_END:
                name, start = open_slices[event.track_uuid].pop()
                self.slices[track].append((name, start, packet.timestamp))
                continue
            if event.type == TrackEvent.TYPE_COUNTER:
                self.counters[track].append((packet.timestamp, event.counter_value))
                continue
            name = names[event.name_iid]
            self.notes[name] = {n.name: n.string_value or n.int_value for n in event.debug_annotations}
            for flow in (*event.flow_ids, *event.terminating_flow_ids):
                self.flows[flow].append(name)
            if event.type == TrackEvent.TYPE_INSTANT:
                self.slices[track].append((name, packet.timestamp, packet.timestamp))
            else:
                open_slices[event.track_uuid].append((name, packet.timestamp))
        assert not any(open_slices.values())


@pytest.fixture
def written(small_lake: Path, tmp_path: Path) -> tuple[Read, Exported]:
    done = export(small_lake, None, 1, "perfetto", tmp_path / "trace.pftrace")
    return Read(tmp_path / "trace.pftrace"), done


def test_every_rank_is_a_process_with_its_tracks_below_it(written: tuple[Read, Exported]) -> None:
    read, done = written
    processes = [t.process.process_name for t in read.tracks.values() if t.HasField("process")]
    assert processes == ["rank 0, node0, NVIDIA H100 80GB HBM3, step 1", "rank 1, node1, NVIDIA H100 80GB HBM3, step 1"]
    tracks = [t for t in read.tracks.values() if not t.HasField("process")]
    assert all(t.parent_uuid in read.tracks for t in tracks)
    assert [t.name for t in sorted(tracks, key=lambda t: (t.parent_uuid, t.sibling_order_rank))] == [
        "attribution", "GPU 0 stream 7", "GPU 0 stream 8", "state of thread 77", "posts of thread 77", "completions of mlx5_0",
        "mlx5_0 in flight, messages", "mlx5_0 in flight, bytes", "attribution",
    ]  # fmt: skip
    assert (done.ranks, done.flows) == (2, 9)


def test_categories_tile_the_step_as_the_segments_do(written: tuple[Read, Exported]) -> None:
    read, _ = written
    tiles = read.slices["attribution"]
    assert tiles[0] == ("compute", T0 + 100 * MS, T0 + 155 * MS)
    assert sum(end - start for _, start, end in tiles) == 2 * 100 * MS


def test_kernels_keep_their_names_times_and_class(written: tuple[Read, Exported]) -> None:
    read, _ = written
    assert read.slices["GPU 0 stream 7"] == [("gemm_bf16", T0 + 100 * MS, T0 + 155 * MS)]
    assert read.notes["gemm_bf16"] == {"class": "compute", "correlation_id": 9, "context": 1}


def test_a_message_flows_from_its_post_to_its_completion(written: tuple[Read, Exported]) -> None:
    read, _ = written
    messages = [names for names in read.flows.values() if "post_send RDMA_WRITE" in names]
    assert messages == [["post_send RDMA_WRITE", "completion RDMA_WRITE"]] * 8
    post = read.slices["posts of thread 77"][0]
    assert post == ("post_send RDMA_WRITE", T0 + 160 * MS, T0 + 160 * MS + 1_200)
    assert read.slices["completions of mlx5_0"][0][1] == T0 + 160 * MS + 1_200 + 6_000 + 4096 // 45


def test_messages_in_flight_rise_and_fall_to_zero(written: tuple[Read, Exported]) -> None:
    read, _ = written
    values = [value for _, value in read.counters["mlx5_0 in flight, messages"]]
    assert values == [1, 0] * 8
    assert read.counters["mlx5_0 in flight, bytes"][0][1] == 4096


def test_proxy_states_are_a_track(written: tuple[Read, Exported]) -> None:
    read, _ = written
    assert [name for name, _, _ in read.slices["state of thread 77"]] == ["running", "runnable"]


def test_chosen_ranks_alone_are_written(small_lake: Path, tmp_path: Path) -> None:
    done = export(small_lake, None, 1, "perfetto", tmp_path / "x", ranks=[1])
    assert done.ranks == 1
    assert [t.process.pid for t in Read(tmp_path / "x").tracks.values() if t.HasField("process")] == [2]


def test_slices_that_cross_go_to_a_second_track_so_that_each_track_nests(tmp_path: Path) -> None:
    run = new_run(tmp_path, "crossing")
    put(run, "steps", [{"rank": 0, "step": 0, "start_ns": 0, "end_ns": 100, "source": "nvtx", "complete": True}])
    spans = {"a": (0, 50), "b": (10, 20), "c": (40, 60), "d": (60, 70)}
    put(
        run,
        "gpu_ops",
        [
            {"rank": 0, "device": 0, "stream": 7, "start_ns": s, "end_ns": e, "op_class": "compute", "name": n}
            for n, (s, e) in spans.items()
        ],
    )
    export(tmp_path, None, 0, "perfetto", tmp_path / "x")
    read = Read(tmp_path / "x")
    assert sorted(read.slices["GPU 0 stream 7"]) == [("a", 0, 50), ("b", 10, 20), ("d", 60, 70)]
    assert read.slices["GPU 0 stream 7 (overlap)"] == [("c", 40, 60)]


def test_a_graph_launch_flows_to_each_of_its_kernels(tmp_path: Path) -> None:
    run = new_run(tmp_path, "graph")
    put(run, "steps", [{"rank": 0, "step": 0, "start_ns": 0, "end_ns": 100, "source": "nvtx", "complete": True}])
    kernels = [{"rank": 0, "device": 0, "stream": 7, "start_ns": s, "end_ns": s + 10, "op_class": "compute", "name": f"k{s}", "correlation_id": 5,
                "launch_start_ns": 1, "launch_end_ns": 3, "launch_tid": 1} for s in (10, 30)]  # fmt: skip
    put(run, "gpu_ops", kernels)
    put(
        run,
        "cuda_api",
        [{"rank": 0, "tid": 1, "start_ns": 1, "end_ns": 3, "name": "cudaGraphLaunch", "correlation_id": 5}],
    )
    export(tmp_path, None, 0, "perfetto", tmp_path / "x")
    assert list(Read(tmp_path / "x").flows.values()) == [["cudaGraphLaunch", "k10", "k30"]]


def test_chrome_json_holds_the_same_slices_and_flows(small_lake: Path, tmp_path: Path) -> None:
    done = export(small_lake, None, 1, "chrome", tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    by_phase: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        by_phase[event["ph"]].append(event)
    assert len(by_phase["X"]) + len(by_phase["i"]) == done.slices
    assert len(by_phase["f"]) == done.flows
    kernel = next(event for event in by_phase["X"] if event["name"] == "gemm_bf16")
    assert (kernel["pid"], kernel["ts"], kernel["dur"], trace["otherData"]["start_unix_ns"]) == (
        0,
        0.0,
        55_000.0,
        str(T0 + 100 * MS),
    )
    post = next(event for event in by_phase["X"] if event["cat"] == "post")
    assert (post["ts"], post["dur"]) == (60_000.0, 1.2)


def test_an_unknown_step_rank_or_format_is_an_error_and_leaves_no_file(small_lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "x"
    with pytest.raises(UsageError, match="has no step 9"):
        export(small_lake, None, 9, "perfetto", target)
    with pytest.raises(UsageError, match="has no rank 5"):
        export(small_lake, None, 1, "perfetto", target, ranks=[5])
    with pytest.raises(UsageError, match="choose one of perfetto, chrome"):
        export(small_lake, None, 1, "svg", target)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_an_error_of_one_line(small_lake: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't write it: No such file or directory"):
        export(small_lake, None, 1, "chrome", tmp_path / "none" / "x")
    assert find_run(small_lake).path.name == "run=small"
