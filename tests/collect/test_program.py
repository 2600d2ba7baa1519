"""The bpftrace program: what a site reviews is what runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.collect.elf import Target
from pipeline.collect.node import Check, NodeReport, libraries_in_use
from pipeline.collect.program import program
from pipeline.model.errors import MfulossError


def _report() -> NodeReport:
    library = Path("/usr/lib/libmlx5.so.1")
    return NodeReport(
        post_send=[Target(library, "mlx5_post_send", "0x552e0", "operation table", 0xE9)],
        poll_cq=[Target(library, "mlx5_poll_cq_v1", "mlx5_poll_cq_v1", "symbol", 0x41)],
    )


def test_each_post_is_one_record() -> None:
    text = program(_report())
    assert text.count('printf("PO,') == 1
    assert "uprobe:/usr/lib/libmlx5.so.1:0x552e0 {" in text
    assert 'printf("META,%llu,schema,rdma-ebpf-csv-1\\n", nsecs);' in text


def test_completions_are_left_out_on_demand() -> None:
    assert 'printf("PC,' in program(_report())
    assert 'printf("PC,' not in program(_report(), poll=False)
    assert "@wc" not in program(_report(), poll=False)


def test_probes_can_be_restricted_to_processes() -> None:
    assert "uprobe:/usr/lib/libmlx5.so.1:0x552e0 /pid == 12 || pid == 13/ {" in program(_report(), pids=(12, 13))


def test_without_post_send_there_is_no_program() -> None:
    report = NodeReport(checks=[Check("libmlx5", False, "no running process uses libmlx5")])
    with pytest.raises(MfulossError, match="no running process uses libmlx5"):
        program(report)


def test_libraries_are_found_in_containers_through_the_process_root(tmp_path: Path) -> None:
    inside = tmp_path / "7" / "root" / "usr" / "lib"
    inside.mkdir(parents=True)
    (inside / "libmlx5.so.1").write_bytes(b"x")
    (tmp_path / "7" / "maps").write_text(
        "7f00-7f01 r-xp 00000000 08:01 99 /usr/lib/libmlx5.so.1\n7f00-7f01 r--p 00000000 08:01 99 /usr/lib/libfoo.so\n"
    )
    (tmp_path / "8").mkdir()  # a process that ended
    found = libraries_in_use(tmp_path)
    assert [("libmlx5.so.1", (7,), inside / "libmlx5.so.1")] == [(m.name, m.pids, m.path) for m in found]
