"""Counter samples: the link layer is named beside each, absent counters are absent."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pipeline.collect.counters import HEADER, record
from pipeline.model.errors import MfulossError


def test_a_sample_has_every_counter_once(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    for name, value in (
        ("link_layer", "InfiniBand\n"),
        ("counters/port_xmit_wait", "3599\n"),
        ("hw_counters/out_of_buffer", "0\n"),
        ("counters/VL15_dropped", "N/A (no PMA)\n"),
    ):
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(value)
    stream = io.StringIO()
    assert record(stream, interval_s=1, seconds=0, sysfs=tmp_path) == 2
    lines = stream.getvalue().splitlines()
    assert lines[0] == HEADER
    fields = [line.split(",") for line in lines[1:]]
    assert [[*f[1:5], f[6]] for f in fields] == [
        ["mlx5_0", "1", "InfiniBand", "port_xmit_wait", "3599"],
        ["mlx5_0", "1", "InfiniBand", "out_of_buffer", "0"],
    ]
    assert all(int(f[5]) > 1_700_000_000 * 10**9 for f in fields)


def test_a_node_without_rdma_devices_says_so(tmp_path: Path) -> None:
    with pytest.raises(MfulossError, match="no RDMA device"):
        record(io.StringIO(), interval_s=1, seconds=0, sysfs=tmp_path)
