"""Bandwidths of collectives: GOLDEN G15."""

from __future__ import annotations

from pathlib import Path

from tests.queries.lake import lake


def test_g15_deepep_at_low_latency_in_logical_bytes(tmp_path: Path) -> None:
    """EP 64, 128 tokens to 8 experts each: 1 024 messages, of 7 408 B in dispatch and of 14 336 B in combine."""
    operations = [
        {"rank": 0, "op": op, "n_ranks": 64, "bytes": 128 * 8 * size, "start_ns": 0, "end_ns": ns}
        for op, size, ns in (("dispatch", 7_408, 173_000), ("combine", 14_336, 314_000))
    ]
    with lake(tmp_path, comm_ops=operations) as connection:
        found = connection.execute(
            "SELECT op, p50_ns, round(alg_bytes_per_s / 1e9, 2) FROM collectives() ORDER BY op DESC"
        ).fetchall()
    assert found == [("dispatch", 173_000, 43.85), ("combine", 314_000, 46.75)]
