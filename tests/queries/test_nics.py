"""Views of GPUs, NICs and rails."""

from __future__ import annotations

from pathlib import Path

from pipeline.model.topology import peer_class
from tests.queries.lake import lake

TOPOLOGY = [
    {"node": "n", "a": "GPU0", "b": "mlx5_0", "path": "PIX"},
    {"node": "n", "a": "GPU0", "b": "mlx5_1", "path": "SYS"},
    {"node": "n", "a": "mlx5_1", "b": "GPU1", "path": "PXB"},
    {"node": "n", "a": "GPU1", "b": "mlx5_0", "path": "NODE"},
    {"node": "n", "a": "GPU0", "b": "GPU1", "path": "NV18"},
]


def message(rank: int, nic: str, n_bytes: int) -> dict[str, object]:
    return {"node": "n", "rank": rank, "nic": nic, "bytes": n_bytes, "enter_ns": 0}


def test_each_gpu_has_its_nearest_nic(tmp_path: Path) -> None:
    found = lake(tmp_path, topology=TOPOLOGY).execute("SELECT gpu_index, nic, path, distance, nearest FROM gpu_nics")
    assert found.fetchall() == [
        (0, "mlx5_0", "PIX", 0, True),
        (0, "mlx5_1", "SYS", 4, False),
        (1, "mlx5_1", "PXB", 1, True),
        (1, "mlx5_0", "NODE", 3, False),
    ]


def test_all_traffic_through_one_nic_is_said_and_so_is_a_far_one(tmp_path: Path) -> None:
    found = lake(
        tmp_path,
        topology=TOPOLOGY,
        ranks=[{"rank": rank, "node": "n", "gpu_index": rank} for rank in (0, 1)],
        rdma_messages=[message(0, "mlx5_0", 10), message(1, "mlx5_0", 30)],
    ).execute("SELECT nic, bytes, share, ranks, imbalance, all_through_one, far_ranks FROM nic_balance")
    assert found.fetchall() == [("mlx5_0", 40, 1.0, 2, 1.0, True, 1)]


def test_imbalance_is_against_the_mean_of_the_nodes_nics(tmp_path: Path) -> None:
    found = lake(tmp_path, rdma_messages=[message(0, "mlx5_0", 10), message(1, "mlx5_1", 30)]).execute(
        "SELECT nic, share, imbalance, all_through_one, far_ranks FROM nic_balance"
    )
    assert found.fetchall() == [("mlx5_0", 0.25, 0.5, False, None), ("mlx5_1", 0.75, 1.5, False, None)]


def test_the_macro_and_the_function_of_peer_classes_agree(tmp_path: Path) -> None:
    connection = lake(tmp_path)
    for a in (("x", 0), ("x", 1)):
        for b in (("x", 0), ("x", 1), ("y", 0), ("y", 1)):
            ((said,),) = connection.execute(f"SELECT peer_class('{a[0]}', {a[1]}, '{b[0]}', {b[1]})").fetchall()
            assert said == peer_class(*a, *b).value
    assert connection.execute("SELECT peer_class('x', NULL, 'y', 1)").fetchall() == [(None,)]
