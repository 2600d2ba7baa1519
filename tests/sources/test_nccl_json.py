"""NCCL's profiler plugins and Inspector: exact times, sizes and numbers, out of JSON that often is none."""

from __future__ import annotations

import json

CHROME = """\
[
{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 100.250000, "args": {"SeqNum": 4, "CommHash": 12464174370433239723, "Rank": 1, "Count": 1024, "Datatype": ncclFloat32, "Algorithm": "RING", "Protocol": "SIMPLE", "nChannels": 2}},
{"name": "KernelLaunch", "cat": "KERNEL_LAUNCH", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 0.000000, "args": {"groupId": 0, "Stream": 0x262ca50}},
{"name": "ProgressSend", "cat": "PROXY", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 101.0, "args": {"Channel": 3, "Peer": 2, "Steps": 4, "ChunkSize": 512, "transSize": 4096}},
{"name": "SendGpuWait", "cat": "NET", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 101.001, "args": {"Step": 0}},
{"name": "SendGpuWait", "cat": "NET", "ph": "e", "id": 0, "pid": 70, "tid": 1, "ts": 101.501},
{"name": "SendWait", "cat": "NET", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 101.501, "args": {"Step": 0}},
{"name": "SendWait", "cat": "NET", "ph": "e", "id": 0, "pid": 70, "tid": 1, "ts": 0.000000},
{"name": "Qp", "cat": "NET_IB", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 101.6, "args": {"device": 0, "qp_num": 417, "opcode": 0, "wr_id": 9, "size": 1024}},
{"name": "Qp", "cat": "NET_IB", "ph": "e", "id": 0, "pid": 70, "tid": 1, "ts": 103.6},
{"name": "ProgressSend", "cat": "PROXY", "ph": "e", "id": 0, "pid": 70, "tid": 1, "ts": 104.0},
{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 0, "pid": 70, "tid": 1, "ts": 150.750000},
{"name": "Send", "cat": "P2P", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 0.000000, "args": {"CommHash": 5, "Rank": 1, "Peer": 7, "Count": 8, "Datatype": "ncclInt8", "nChannels": 1}},
{}]
"""


def test_the_example_plugin_gives_operations_with_their_communicator_as_text(read_text):
    """F50: ids above 2^63, bare hexadecimal and enumerators; a time of 0.000000 is none."""
    read = read_text(CHROME, "trace.json", ranks={70: 9})
    names = ("rank", "comm_id", "seq", "op", "bytes", "start_ns", "end_ns", "peer_rank")
    assert read.brief("comm_ops", *names) == [
        (9, "12464174370433239723", 4, "AllReduce", 4096, 100_250, 150_750, None),
        (9, "5", None, "Send", 8, None, None, 7),
    ]
    assert (read.account.bad_line_count, read.capture.clock) == (0, "none")


def test_phases_know_operation_channel_peer_and_bytes(read_text):
    read = read_text(CHROME, "trace.json", ranks={70: 9})
    names = ("rank", "comm_id", "seq", "channel", "peer_rank", "phase", "start_ns", "end_ns", "bytes")
    assert read.brief("comm_phases", *names) == [
        (9, "12464174370433239723", 4, 3, 2, "SendGPUWait", 101_001, 101_501, 1024)
    ]


def test_a_queue_pair_serves_the_peer_of_its_proxy_operation(read_text):
    read = read_text(CHROME, "trace.json")
    assert read.brief("rdma_qps", "node", "pid", "qp", "peer_rank", "at_ns") == [("n0", 70, 417, 2, 101_600)]


def test_objects_over_several_lines_are_read_and_rubbish_is_kept(read_text):
    """F37: one bad record costs itself only."""
    good = json.dumps(
        {"name": "Send", "cat": "P2P", "ph": "b", "id": 0, "pid": 1, "ts": 1.5, "args": {"Peer": 2}}, indent=1
    )
    read = read_text(good + '\n{"name": "x", "cat": "COLL", "device": "{"a": 1}"(12): run"}\n' + good, "trace.json")
    assert read.column("comm_ops", "start_ns") == [1_500, 1_500]
    assert read.account.bad_lines == [b'{"name": "x", "cat": "COLL", "device": "{"a": 1}"(12): run"}']


def test_a_real_trace_of_one_process_with_four_gpus_has_four_ranks(data, read_file):
    """F35: 8 993 954 367 023.721 µs needs more digits than a double has."""
    read = read_file(data / "nccl-profiler" / "allreduce.jsonl")
    names = ("rank", "comm_id", "seq", "op", "bytes", "n_ranks", "start_ns")
    assert sorted(read.brief("comm_ops", *names)) == [
        (0, "8612235153520363772", 0, "AllReduce", 134217728, 4, 8993954367023721),
        (1, "8612235153520363772", 0, "AllReduce", 134217728, 4, 8993954362477727),
        (2, "8612235153520363772", 0, "AllReduce", 134217728, 4, 8993954358035291),
        (3, "8612235153520363772", 0, "AllReduce", 134217728, 4, 8993954353478418),
    ]


def inspector(**perf):
    return {
        "header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h1", "pid": 1639453},
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": 1407,
            "coll_msg_size_bytes": 17179869184,
            "coll_exec_time_us": 61974,
            **perf,
        },
    }


def test_the_inspector_says_when_only_where_it_traced_events(read_text):
    channels = [{"kernel_start_ts": 1752867229235181, "kernel_stop_ts": 1752867229275811}]
    channels.append({"kernel_start_ts": 1752867229235180, "kernel_stop_ts": 1752867229275899})
    lines = [inspector(), inspector(event_trace_ts={"kernel_events": channels})]
    read = read_text("\n".join(map(json.dumps, lines)), "inspector.log", ranks={1639453: 34})
    names = ("rank", "comm_id", "seq", "op", "bytes", "n_ranks", "start_ns", "end_ns")
    same = (34, "0x7f8c496ae9f661", 1407, "AllReduce", 17179869184, 8)
    assert read.brief("comm_ops", *names) == [
        (*same, None, None),
        (*same, 1752867229235180000, 1752867229275899000),
    ]
    assert (read.capture.host, read.capture.missing) == ("h1", ("event_trace",))
