"""Faults that tools like ours really had, each with the smallest Nsight Systems export that shows it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pipeline.model.capture import Account, Clock, Status
from pipeline.model.errors import ConfigError, UnusableInput
from pipeline.model.run import RunConfig, parse
from tests.sources import nsys
from tests.sources.nsys import call, kernel, nvtx, process, string, thread, write

KERNEL, RUNTIME, NVTX, MEMCPY = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_MEMCPY",
)  # fmt: skip
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def codes(rows: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {row["code"] for row in rows.get("log_events", [])}


def columns(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_f03_a_stream_is_known_by_process_device_context_and_stream(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10, deviceId=0, streamId=17), kernel(0, 10, deviceId=1, streamId=17)]})  # fmt: skip
    found = nsys.rows(path)
    assert columns(found["gpu_ops"], "rank", "device", "context", "stream") == [(0, 0, 1, 17), (0, 1, 1, 17)]
    assert "same_stream_overlap" not in codes(found)


def test_f07_a_newer_nccl_kernel_is_communication_by_name_and_its_operation_unknown(tmp_path: Path) -> None:
    found = nsys.rows(write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10, short=NCCL)]}))
    assert columns(found["gpu_ops"], "op_class", "name", "comm_op") == [("comm", NCCL, "unknown")]


def test_f08_the_operation_comes_from_the_nccl_call_around_the_launch_not_from_the_kernels_name(tmp_path: Path) -> None:
    strings = [{"id": 1, "value": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"}, {"id": 2, "value": "cudaLaunchKernel_v7000"}]  # fmt: skip
    path = write(
        tmp_path / "a.sqlite",
        {
            "StringIds": strings,
            KERNEL: [kernel(100, 900, correlationId=5) | {"shortName": 1, "demangledName": 1}],
            RUNTIME: [call(20, 30, 5) | {"nameId": 2}],
            NVTX: [nvtx(10, 40, "ncclAllReduce", domainId=1)],
        },
        epoch_ns=0,
    )
    found = nsys.rows(path)
    assert columns(found["gpu_ops"], "op_class", "comm_op") == [("comm", "AllReduce")]
    assert columns(found["comm_ops"], "op", "start_ns", "end_ns", "arrival_ns", "source") == [
        ("AllReduce", 10, 900, 100, "nvtx")
    ]


def test_f09_communication_is_not_only_nccl(tmp_path: Path) -> None:
    names = [
        "void deep_ep::internode_ll::dispatch<true, 3, 7168>(void*, float*)",
        "void dpsk::ep::internode::combine<4>(int4*)",
        "nvshmemi_proxy_barrier(int)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half>(int)",
        "void at::native::elementwise_kernel<128, ncclFunctor>(int)",
        "void my_allreduce_kernel<float>(int)",
    ]
    path = write(
        tmp_path / "a.sqlite",
        {
            "StringIds": [{"id": i, "value": name} for i, name in enumerate(names)],
            KERNEL: [kernel(10 * i, 10 * i + 5) | {"shortName": None, "demangledName": i} for i in range(len(names))],
        },
    )
    config = parse({"comm": {"patterns": {"mine": "my_allreduce"}}})
    assert columns(nsys.rows(path)["gpu_ops"], "name", "op_class") == [
        ("deep_ep::internode_ll::dispatch", "comm"),
        ("dpsk::ep::internode::combine", "comm"),
        ("nvshmemi_proxy_barrier", "comm"),
        ("vllm::cross_device_reduce_1stage", "comm"),
        ("tensorrt_llm::kernels::oneShotAllReduceKernel", "comm"),
        ("at::native::elementwise_kernel", "compute"),
        ("my_allreduce_kernel", "compute"),
    ]
    assert nsys.rows(path, config=config)["gpu_ops"][-1]["op_class"] == "comm"


def test_a_pattern_that_can_not_be_searched_for_is_an_error_of_run_toml(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)]})
    with pytest.raises(ConfigError, match=r"comm\.patterns"):
        nsys.rows(path, config=parse({"comm": {"patterns": {"mine": "(?<!x)nccl"}}}))


def test_f12_operations_of_one_stream_that_overlap_are_flagged(tmp_path: Path) -> None:
    found = nsys.rows(write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 1_000_000), kernel(10, 20)]}))
    assert "same_stream_overlap" in codes(found)


def test_f36_a_kernel_without_length_overlaps_nothing(tmp_path: Path) -> None:
    found = nsys.rows(write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 100), kernel(50, 50), kernel(100, 200)]}))
    assert "same_stream_overlap" not in codes(found)


def test_f14_the_kernels_of_a_graph_share_one_launch_and_keep_graph_and_node(tmp_path: Path) -> None:
    nodes = [(2 << 32) | n for n in (1, 2, 3)]
    path = write(
        tmp_path / "a.sqlite",
        {
            KERNEL: [kernel(10 * n, 10 * n + 9, correlationId=5, graphNodeId=node) for n, node in enumerate(nodes, 1)],
            RUNTIME: [call(0, 5, 5, name="cudaGraphLaunch_v10000")],
        },
        epoch_ns=0,
    )
    found = nsys.rows(path)
    assert columns(found["gpu_ops"], "graph_id", "graph_node_id", "launch_start_ns") == [(2, n, 0) for n in nodes]
    assert columns(found["cuda_api"], "name") == [("cudaGraphLaunch",)]


def test_f15_a_graph_kernel_without_a_launch_row_is_kept_with_launch_null(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        {KERNEL: [kernel(0, 9, correlationId=77, graphNodeId=1 << 63 - 1)], RUNTIME: [call(0, 5, 5)]},
    )
    found = nsys.rows(path)
    assert columns(found["gpu_ops"], "correlation_id", "launch_start_ns", "launch_tid") == [(77, None, None)]
    assert "launch_not_captured" in codes(found)


def test_a_graph_that_was_traced_as_a_whole_is_opaque_and_said_to_be(tmp_path: Path) -> None:
    graph = {"start": 10, "end": 90, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 5,
             "globalPid": process(), "graphId": 3, "graphExecId": 4}  # fmt: skip
    path = write(
        tmp_path / "a.sqlite",
        {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [graph], RUNTIME: [call(0, 5, 5, name="cudaGraphLaunch_v10000")]},
        epoch_ns=0,
    )
    found = nsys.rows(path)
    assert nsys.inspect(path).status is Status.OK
    assert columns(found["gpu_ops"], "name", "graph_id", "graph_node_id", "launch_start_ns") == [
        ("CUDA graph 4", 4, None, 0)
    ]
    assert "graph_opaque" in codes(found)


def test_f16_equal_correlation_ids_of_two_processes_are_two_launches(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        {
            KERNEL: [
                kernel(100, 200, correlationId=143),
                kernel(300, 400, correlationId=143, pid=nsys.OTHER_PID, deviceId=1),
            ],
            RUNTIME: [call(10, 20, 143, tid=11), call(30, 40, 143, tid=22, pid=nsys.OTHER_PID)],
        },
        epoch_ns=0,
    )
    assert columns(nsys.rows(path)["gpu_ops"], "rank", "start_ns", "launch_start_ns", "launch_tid") == [
        (0, 100, 10, 11), (1, 300, 30, 22),
    ]  # fmt: skip


def test_a_runtime_call_and_the_driver_call_inside_it_are_one_launch(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        {KERNEL: [kernel(100, 200, correlationId=5)], RUNTIME: [call(10, 40, 5), call(15, 30, 5)]},
        epoch_ns=0,
    )
    assert columns(nsys.rows(path)["gpu_ops"], "launch_start_ns", "launch_end_ns") == [(10, 40)]


def test_f18_a_table_with_a_version_suffix_is_found_and_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)], "NVTX_EVENTS_V2": [nvtx(0, 9, "step_1")]})
    capture = nsys.inspect(path)
    assert "NVTX_EVENTS" in capture.present
    assert "NVTX_EVENTS is NVTX_EVENTS_V2 here" in capture.notes
    assert columns(nsys.rows(path)["nvtx"], "text") == [("step_1",)]


def test_f19_a_capture_without_nvtx_is_read_and_says_what_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)]})
    assert "NVTX_EVENTS" in nsys.inspect(path).missing
    assert "nvtx" not in nsys.rows(path)


@pytest.mark.parametrize(
    "row",
    [
        {k: v for k, v in nvtx(0, 9, "ncclAllReduce").items() if k != "textId"},
        {k: v for k, v in nvtx(0, 9).items() if k != "text"} | {"textId": string("ncclAllReduce")},
        nvtx(0, 9, None, textId=string("ncclAllReduce")),
    ],
    ids=["text only", "textId only", "text all NULL"],
)
def test_f20_nvtx_text_is_read_from_whichever_columns_there_are(tmp_path: Path, row: dict[str, Any]) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)], NVTX: [row]})
    assert columns(nsys.rows(path)["nvtx"], "text") == [("ncclAllReduce",)]


def test_f22_launches_without_a_kernel_table_are_unusable_never_idle(tmp_path: Path) -> None:
    capture = nsys.inspect(write(tmp_path / "a.sqlite", {RUNTIME: [call(0, 5, 1)]}))
    assert capture.status is Status.UNUSABLE
    assert capture.reason is not None and "launch calls but no kernels" in capture.reason


def test_a_report_without_any_gpu_work_is_unusable(tmp_path: Path) -> None:
    capture = nsys.inspect(write(tmp_path / "a.sqlite", {NVTX: [nvtx(0, 9, "step_1")], KERNEL: []}))
    assert (capture.status, capture.reason) == (Status.UNUSABLE, "no GPU work in this report (NVTX_EVENTS)")


def test_f27_start_end_ranges_that_end_on_another_thread_are_kept_as_such(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        {KERNEL: [kernel(0, 10)], NVTX: [nvtx(0, 9, "step_1", kind=60, tid=1, endGlobalTid=thread(2))]},
        epoch_ns=0,
    )
    assert columns(nsys.rows(path)["nvtx"], "kind", "tid", "start_ns", "end_ns") == [("start_end", 1, 0, 9)]


def test_f29_a_mark_is_an_instant_and_an_unclosed_range_has_no_end(tmp_path: Path) -> None:
    rows = [nvtx(5, None, "checkpoint", kind=34), nvtx(7, None, "step_9")]
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)], NVTX: rows}, epoch_ns=0)
    assert columns(nsys.rows(path)["nvtx"], "kind", "start_ns", "end_ns") == [("mark", 5, 5), ("push_pop", 7, None)]


def test_domain_rows_name_domains_and_are_no_events(tmp_path: Path) -> None:
    rows = [nvtx(-9_000, None, "NCCL", kind=75, domainId=1), nvtx(1, 2, "a", domainId=1), nvtx(3, 4, "b", domainId=2), nvtx(5, 6, "c")]  # fmt: skip
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)], NVTX: rows})
    assert columns(nsys.rows(path)["nvtx"], "text", "domain") == [("a", "NCCL"), ("b", "domain 2"), ("c", None)]


def test_f30_a_range_that_ends_before_it_starts_is_kept_and_flagged(tmp_path: Path) -> None:
    found = nsys.rows(write(tmp_path / "a.sqlite", {KERNEL: [kernel(100, 95)]}, epoch_ns=0))
    assert columns(found["gpu_ops"], "start_ns", "end_ns") == [(100, 95)]
    assert "inverted_range" in codes(found)


def test_f38_a_kernel_keeps_its_own_start_beside_its_launchs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(100, 200, correlationId=1)], RUNTIME: [call(20, 25, 1)]}, epoch_ns=0)  # fmt: skip
    assert columns(nsys.rows(path)["gpu_ops"], "start_ns", "launch_start_ns", "launch_end_ns") == [(100, 20, 25)]


def test_f40_without_a_start_time_the_clock_is_none_and_times_stay_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(100, 200)]}, epoch_ns=None)
    capture = nsys.inspect(path)
    assert capture.clock is Clock.NONE
    assert any("no session start time" in note for note in capture.notes)
    assert columns(nsys.rows(path)["gpu_ops"], "start_ns") == [(100,)]


def test_with_a_start_time_times_are_utc_to_the_nanosecond(tmp_path: Path) -> None:
    epoch = 1_795_963_712_411_231_743
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(-5, 7)]}, epoch_ns=epoch)
    assert nsys.inspect(path).clock is Clock.REALTIME
    assert columns(nsys.rows(path)["gpu_ops"], "start_ns", "end_ns") == [(epoch - 5, epoch + 7)]


def test_f65_a_truncated_file_is_refused_with_how_much_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(i, i + 1) for i in range(2000)]})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnusableInput, match=f"cut short: {len(whole) // 2} of {len(whole)} bytes"):
        nsys.inspect(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file"),
        (b"start,end\n1,2\n", "not an SQLite file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS pointer"),
    ],
)
def test_a_file_that_only_says_that_it_is_sqlite_is_refused_for_what_it_is(
    tmp_path: Path, content: bytes, what: str
) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(content)
    with pytest.raises(UnusableInput, match=what):
        nsys.inspect(path)


def test_a_damaged_page_is_an_unusable_input_not_a_bug(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(i, i + 1) for i in range(5000)]})
    raw = bytearray(path.read_bytes())
    raw[-3 * 4096 :] = b"\xff" * (3 * 4096)
    path.write_bytes(bytes(raw))
    with pytest.raises(UnusableInput):
        nsys.rows(path)


@pytest.mark.parametrize("bad_row", [0, 70_000])
def test_f66_a_value_of_another_type_is_null_and_counted_wherever_it_comes(tmp_path: Path, bad_row: int) -> None:
    rows = [kernel(i * 10, i * 10 + 5) | {"streamId": "seven" if i == bad_row else 7} for i in range(70_001)]
    path = write(tmp_path / "a.sqlite", {KERNEL: rows}, epoch_ns=0)
    found = nsys.rows(path)
    streams = [op["stream"] for op in found["gpu_ops"]]
    assert (len(streams), streams.count(None), streams[bad_row]) == (70_001, 1, None)
    assert [op["start_ns"] for op in found["gpu_ops"]] == [i * 10 for i in range(70_001)]
    assert "mistyped_value" in codes(found)


def test_text_that_is_no_utf8_or_holds_nul_is_mended(tmp_path: Path) -> None:
    rows = [nvtx(0, 9, b"caf\xe9"), nvtx(1, 9, b"a\0b"), nvtx(2, 9, '{\n "step": 3\n}')]
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)], NVTX: rows})
    assert columns(nsys.rows(path)["nvtx"], "text") == [("caf�",), ("a�b",), ('{\n "step": 3\n}',)]


def test_ids_above_two_to_the_63_keep_their_bits(tmp_path: Path) -> None:
    high = (1 << 64) - (5 << 48) | (nsys.PID << 24)
    signed = high - (1 << 64)
    row = kernel(100, 200, correlationId=1, graphNodeId=-1) | {"globalPid": signed}
    path = write(
        tmp_path / "a.sqlite", {KERNEL: [row], RUNTIME: [call(5, 6, 1) | {"globalTid": signed | 42}]}, epoch_ns=0
    )
    assert [(p.key, p.pid) for p in nsys.inspect(path).processes] == [(signed, nsys.PID)]
    assert columns(nsys.rows(path)["gpu_ops"], "launch_tid", "graph_node_id") == [(42, (1 << 64) - 1)]


def test_unified_memory_copies_have_no_launch_and_no_stream_of_their_own(tmp_path: Path) -> None:
    copy = {"start": 0, "end": 50, "deviceId": 0, "contextId": 0, "streamId": 0, "correlationId": 0,
            "globalPid": process(), "bytes": 4096, "copyKind": 11}  # fmt: skip
    path = write(
        tmp_path / "a.sqlite",
        {
            MEMCPY: [copy, copy | {"start": 20, "end": 60, "copyKind": 10}],
            RUNTIME: [call(0, 5, 0, name="cudaStreamSynchronize_v3020")],
        },
        epoch_ns=0,
    )
    found = nsys.rows(path)
    assert columns(found["gpu_ops"], "op_class", "copy_kind", "bytes", "correlation_id", "launch_start_ns") == [
        ("copy", "Unified Host-to-Device", 4096, None, None), ("copy", "Peer-to-Peer", 4096, None, None),
    ]  # fmt: skip
    assert "same_stream_overlap" not in codes(found)


def test_lost_events_that_the_report_declares_are_a_loss_and_make_the_capture_partial(tmp_path: Path) -> None:
    text = "CUPTI buffers overflowed: 1234 events were lost."
    row = {"timestamp": 50, "timestampType": 1, "source": 1, "severity": 2, "text": text, "globalPid": process()}
    path = write(
        tmp_path / "a.sqlite",
        {
            KERNEL: [kernel(0, 10)],
            "DIAGNOSTIC_EVENT": [row],
            "ANALYSIS_DETAILS": [{"duration": 900, "startTime": 0, "stopTime": 900}],
        },
    )
    account = Account()
    found = nsys.rows(path, account=account)
    assert columns(found["losses"], "source", "start_ns", "end_ns", "lost_events") == [("nsys", 1_000, 1_900, 1234)]
    assert (account.status, account.lost_events) == (Status.PARTIAL, 1234)


def test_a_diagnostic_with_an_absurd_time_is_kept_without_it(tmp_path: Path) -> None:
    row = {
        "timestamp": -(10**18),
        "timestampType": 1,
        "source": 1,
        "severity": 2,
        "text": "clocks differ",
        "globalPid": process(),
    }
    found = nsys.rows(write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)], "DIAGNOSTIC_EVENT": [row]}))
    assert columns(found["log_events"], "code", "at_ns", "severity", "text") == [
        ("diagnostic", None, "warning", "clocks differ"),
        ("launch_not_captured", None, "info", "1 of 1 GPU operations have no launch call in the capture"),
    ]


# ---------------------------------------------------------------------------------------- environment


def test_of_an_environment_only_the_allow_list_is_read_from_all_three_places(tmp_path: Path) -> None:
    secret = "AWS_SECRET_ACCESS_KEY=hush"
    path = write(
        tmp_path / "a.sqlite",
        {
            "StringIds": [{"id": 1, "value": f"HOME=/root\0{secret}\0RANK=3\0WORLD_SIZE=8\0"}, {"id": 2, "value": "k"}],
            KERNEL: [kernel(0, 10) | {"shortName": 2, "demangledName": 2}],
            "META_DATA_CAPTURE": [
                {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'NCCL_DEBUG="INFO"'},
                {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": secret},
            ],
            "TARGET_INFO_SYSTEM_ENV": [
                {"name": "DeviceEnvironment", "nameEnum": 610, "value": f"PATH=/bin;NVSHMEM_DEBUG=1;{secret}"}
            ],
            NVTX: [nvtx(0, 9, None, textId=1), nvtx(1, 9, f"A=1\0{secret}"), nvtx(2, 9, None, jsonTextId=1)],
        },
    )
    assert [dict(p.env) for p in nsys.inspect(path).processes] == [
        {"RANK": "3", "WORLD_SIZE": "8", "NCCL_DEBUG": "INFO", "NVSHMEM_DEBUG": "1"}
    ]
    assert "hush" not in str(nsys.rows(path)) + str(nsys.inspect(path))


def test_of_several_processes_each_gets_the_rank_that_its_device_tells_and_none_a_launchers(tmp_path: Path) -> None:
    blocks = ["RANK=5\0LOCAL_RANK=1\0NCCL_DEBUG=WARN", "RANK=4\0LOCAL_RANK=0\0NCCL_DEBUG=WARN", "SLURM_PROCID=2\0A=1"]
    kernels = [kernel(0, 10), kernel(0, 10, pid=nsys.OTHER_PID, deviceId=1)]
    tables = {"StringIds": [{"id": i, "value": b} for i, b in enumerate(blocks)], KERNEL: kernels}
    env = [dict(p.env) for p in nsys.inspect(write(tmp_path / "a.sqlite", tables)).processes]
    assert [(e["RANK"], e["NCCL_DEBUG"], e.get("SLURM_PROCID")) for e in env] == [
        ("4", "WARN", None),
        ("5", "WARN", None),
    ]


# ------------------------------------------------------------------------------------ NCCL operations


def _payload(schema: int, body: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body


def test_nccl_payloads_give_communicator_bytes_reduction_ranks_and_sequence(tmp_path: Path) -> None:
    comm = 12464174370433239723
    entries = [
        ("NCCL communicator ID", 18, None, 100), ("No. of ranks", 5, 8, 100), ("Rank", 5, 12, 100),
        ("NCCL communicator ID", 18, None, 200), ("Message size [bytes]", 22, 8, 200), ("Reduction operation", 16777236, 16, 200),
    ]  # fmt: skip
    schema = [
        {"domainId": 1, "schemaId": s, "idx": i % 3, "type": t, "offset": o, "name": n}
        for i, (n, t, o, s) in enumerate(entries)
    ]
    labels = [
        {"domainId": 1, "schemaId": 16777236, "value": None, "name": "Sum"},
        {"domainId": 1, "schemaId": 16777236, "value": 2, "name": "Max"},
    ]
    init = _payload(100, struct.pack("<QIIQ", comm, 8, 3, 0))
    reduce_ = [_payload(200, struct.pack("<QQiI", comm, size, op, 0)) for size, op in ((1 << 20, 0), (4096, 2))]
    rows = [
        nvtx(0, 9, "ncclCommInitRankConfig", domainId=1, binaryData=init),
        nvtx(10, 19, "ncclAllReduce", domainId=1, binaryData=reduce_[0]),
        nvtx(20, 29, "ncclAllReduce", domainId=1, binaryData=reduce_[1]),
    ]
    path = write(
        tmp_path / "a.sqlite",
        {
            KERNEL: [kernel(100, 200, short=NCCL, correlationId=1), kernel(200, 300, short=NCCL, correlationId=2)],
            RUNTIME: [call(12, 14, 1), call(22, 24, 2)],
            NVTX: rows,
            "NVTX_PAYLOAD_SCHEMA_ENTRIES": schema,
            "NVTX_PAYLOAD_ENUM_ENTRIES": labels,
        },
        epoch_ns=0,
    )
    found = nsys.rows(path)
    assert columns(found["comm_ops"], "comm_id", "seq", "op", "bytes", "n_ranks", "start_ns", "end_ns", "arrival_ns") == [
        (str(comm), 0, "AllReduce", 1 << 20, 8, 10, 200, 100), (str(comm), 1, "AllReduce", 4096, 8, 20, 300, 200),
    ]  # fmt: skip
    assert columns(found["gpu_ops"], "comm_op", "bytes") == [("AllReduce", 1 << 20), ("AllReduce", 4096)]
    assert [row["payload"] for row in found["nvtx"]][2] == (
        f'{{"NCCL communicator ID": {comm}, "Message size [bytes]": 4096, "Reduction operation": "Max"}}'
    )


def test_sends_and_receives_of_a_group_are_one_operation_launched_by_its_outermost_end(tmp_path: Path) -> None:
    rows = [
        nvtx(0, 1, "ncclGroupStart", domainId=1), nvtx(2, 3, "ncclGroupStart", domainId=1),
        nvtx(4, 5, "ncclSend", domainId=1), nvtx(6, 7, "ncclRecv", domainId=1),
        nvtx(8, 9, "ncclGroupEnd", domainId=1), nvtx(10, 30, "ncclGroupEnd", domainId=1),
        nvtx(40, 50, "ncclAllReduce", domainId=1),
    ]  # fmt: skip
    path = write(
        tmp_path / "a.sqlite",
        {
            KERNEL: [
                kernel(100, 200, short=NCCL, correlationId=1),
                kernel(300, 400, short=NCCL, correlationId=2),
                kernel(500, 600, short=NCCL, correlationId=3),
            ],
            RUNTIME: [call(20, 22, 1), call(45, 46, 2), call(60, 61, 3)],
            NVTX: rows,
        },
        epoch_ns=0,
    )
    found = nsys.rows(path)
    assert columns(found["gpu_ops"], "comm_op") == [("SendRecv",), ("AllReduce",), ("unknown",)]
    assert columns(found["comm_ops"], "op", "start_ns", "arrival_ns", "comm_id", "seq") == [
        ("SendRecv", 0, 100, None, None), ("AllReduce", 40, 300, None, None),
    ]  # fmt: skip


# --------------------------------------------------------------------------- os calls, threads, counters


def test_os_calls_thread_states_and_metrics_are_read(tmp_path: Path) -> None:
    sched = [(0, 3, 1, 0), (40, 3, 0, 7), (60, 5, 1, 0), (90, 5, 0, 0)]
    path = write(
        tmp_path / "a.sqlite",
        {
            KERNEL: [kernel(0, 10)],
            "OSRT_API": [{"start": 5, "end": 8, "globalTid": thread(9), "nameId": string("read")}],
            "SCHED_EVENTS": [
                {"start": s, "cpu": c, "isSchedIn": i, "globalTid": thread(9), "threadState": t} for s, c, i, t in sched
            ],
            "ENUM_SAMPLING_THREAD_STATE": [{"id": 7, "label": "Waiting"}],
            "ThreadNames": [{"nameId": string("read"), "priority": 1, "globalTid": thread(9)}],
            "GPU_METRICS": [{"timestamp": 7, "typeId": 0x1000002, "metricId": 4, "value": 88}],
            "TARGET_INFO_GPU_METRICS": [{"typeId": 0x1000002, "metricId": 4, "metricName": "SMs Active [Throughput %]"}],
            "NET_NIC_METRIC": [{"start": 1, "end": 6, "globalId": 77, "metricsListId": 1, "metricsIdx": 0, "value": 5}],
            "TARGET_INFO_NETWORK_METRICS": [{"metricsListId": 1, "metricsIdx": 0, "name": "Bytes sent"}],
            "NIC_ID_MAP": [{"nicId": 2, "globalId": 77}],
            "TARGET_INFO_NIC_INFO": [{"GUID": -1, "nicId": 2, "name": "mlx5_0", "linkLayer": 1}],
            "ENUM_NET_LINK_TYPE": [{"id": 1, "label": "InfiniBand"}],
            "NET_IB_SWITCH_METRIC": [{"start": 1, "end": 8, "globalId": 78, "metricsListId": 1, "metricsIdx": 0, "value": 6}],
        },
        epoch_ns=0,
    )  # fmt: skip
    found = nsys.rows(path)
    assert columns(found["os_calls"], "rank", "tid", "start_ns", "end_ns", "name") == [(0, 9, 5, 8, "read")]
    assert columns(found["thread_states"], "node", "tid", "name", "cpu", "start_ns", "end_ns", "state") == [
        ("node0", 9, "read", 3, 0, 40, "running"),
        ("node0", 9, "read", None, 40, 60, "blocked"),
        ("node0", 9, "read", 5, 60, 90, "running"),
    ]
    assert columns(found["counters"], "device", "link_layer", "counter", "at_ns", "value") == [
        ("mlx5_0", "InfiniBand", "Bytes sent", 6, 5.0),
        ("GPU2", None, "SMs Active [Throughput %]", 7, 88.0),
        ("switch 78", "InfiniBand", "Bytes sent", 8, 6.0),
    ]


def test_off_its_core_a_thread_has_no_state_where_the_export_does_not_tell(tmp_path: Path) -> None:
    rows = [{"start": s, "cpu": 0, "isSchedIn": i, "globalTid": thread(9)} for s, i in ((0, 1), (5, 0), (9, 1))]
    found = nsys.rows(write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)], "SCHED_EVENTS": rows}, epoch_ns=0))
    assert columns(found["thread_states"], "start_ns", "end_ns", "state") == [(0, 5, "running"), (5, 9, None)]


# -------------------------------------------------------------------------------------------- contract


def test_every_batch_is_in_the_lakes_schema_and_the_captures_size_is_the_files(tmp_path: Path) -> None:
    from pipeline.model.schema import TABLES
    from pipeline.sources import nsys_sqlite

    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(0, 10)], RUNTIME: [call(0, 5, 1)], NVTX: [nvtx(0, 9, "x")]})
    capture, account = nsys.inspect(path), Account()
    batches = list(nsys_sqlite.read(capture, {}, "n", RunConfig(), account))
    plain = [
        (t, [getattr(f.type, "value_type", f.type) for f in batch.schema]) for t, batch in batches
    ]  # text: the words
    assert [t for t, types in plain if types != TABLES[t].arrow_schema().types] == []
    assert [t for t, batch in batches if batch.schema.names != TABLES[t].arrow_schema().names] == []
    assert capture.bytes == path.stat().st_size
    assert {batch["rank"].to_pylist()[0] for t, batch in batches if t == "gpu_ops"} == {None}


def test_kernels_copies_and_memsets_of_a_process_come_out_in_time_order(tmp_path: Path) -> None:
    copies = [
        {"start": 10 * i + 5, "end": 10 * i + 6, "deviceId": 0, "contextId": 1, "streamId": 8, "correlationId": None,
         "globalPid": process(), "bytes": 1, "copyKind": 1}
        for i in range(300)
    ]  # fmt: skip
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(10 * i, 10 * i + 4) for i in range(300)], MEMCPY: copies})
    from pipeline.sources import nsys_sqlite

    starts = [
        start
        for table, batch in nsys_sqlite.read(nsys.inspect(path), {}, "n", RunConfig(), Account())
        if table == "gpu_ops"
        for start in batch["start_ns"].to_pylist()
    ]
    assert (len(starts), starts) == (600, sorted(starts))


FAR = [2**63 - 1, -(2**63), 2**62, 2**55 + 1]


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("column", ["start", "end"])
def test_a_row_with_an_impossible_time_is_left_out_and_counted_and_the_others_go_on(
    tmp_path: Path, column: str, far: int
) -> None:
    bad = kernel(20, 30, correlationId=2) | {column: far}
    tables = {
        KERNEL: [kernel(0, 10, correlationId=1), bad, kernel(40, 50, correlationId=3)],
        RUNTIME: [call(0, 5, 1), call(6, 7, 2) | {column: far}],
        NVTX: [nvtx(0, 60, "step_0"), nvtx(1, 2, "step_1") | {column: far}],
    }
    account = Account()
    found = nsys.rows(write(tmp_path / "a.sqlite", tables), account=account)
    assert columns(found["gpu_ops"], "start_ns", "end_ns") == [(1_000, 1_010), (1_040, 1_050)]
    assert (len(found["cuda_api"]), len(found["nvtx"])) == (1, 1)
    texts = [row["text"] for row in found["log_events"] if row["code"] == "impossible_time"]
    assert texts == [
        f"1 rows of {table} are more than a year from the session: left out" for table in (KERNEL, RUNTIME, NVTX)
    ]
    assert (account.status, account.reason) == (
        Status.PARTIAL,
        "3 rows have impossible times and are left out (log_events says of which tables)",
    )


def test_an_impossible_size_is_unknown_and_an_impossible_start_of_the_session_too(tmp_path: Path) -> None:
    copies = [{**kernel(0, 10), "bytes": size, "copyKind": 1} for size in (2**63 - 1, -1, 4_096)]
    path = write(tmp_path / "a.sqlite", {MEMCPY: copies}, epoch_ns=2**63 - 1)
    found = nsys.rows(path)
    assert columns(found["gpu_ops"], "start_ns", "bytes") == [(0, 4_096), (0, None), (0, None)]
    assert "impossible_size" in codes(found)
    assert nsys.inspect(path).clock == Clock.NONE
