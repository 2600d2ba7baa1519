"""The sweeps stream: their windows run over the sorted rows as they come, in flat memory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipeline.model import library
from tests.attribution import timeline

_BLOCKING = r'"WINDOW'


@pytest.mark.parametrize(
    "name", ["_gpu_periods", "_mixed_frames", "_host_frames", "_comm_frames", "_pieces", "segments"]
)
def test_a_sweep_has_no_window_that_holds_all_rows(tmp_path: Path, name: str) -> None:
    connection = timeline.database(tmp_path)
    timeline.run(
        connection,
        timeline.Trace(
            ops=[{"start_ns": 0, "end_ns": 5, "op_class": "comm"}],
            steps=[{"start_ns": 0, "end_ns": 9, "text": "step_0"}],
            candidates=[{"start_ns": 1, "end_ns": 2, "category": "ctl_cpu", "evidence": "measured_ebpf"}],
        ),
    )

    def plan(query: str) -> str:
        return json.dumps(json.loads(connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()[0][1]))

    swept = plan(re.split(rf"CREATE OR REPLACE TEMP (?:TABLE|VIEW) {name} AS", library.sql(name))[1])
    assert "STREAMING_WINDOW" in swept
    assert not re.search(_BLOCKING, swept)
    assert re.search(_BLOCKING, plan("SELECT sum(start_ns) OVER (ORDER BY start_ns) FROM gpu_ops"))
