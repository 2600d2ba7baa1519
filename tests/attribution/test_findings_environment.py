"""Lint of the environment, the paths to NICs and the counters that were captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.attribution.findings import make_findings
from pipeline.model import environment
from tests.attribution.plain import plain


def found(code: str, **tables: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    connection = plain(**tables)
    connection.execute("CREATE TABLE _counted_steps (rank BIGINT, step BIGINT, wall_ns BIGINT, source VARCHAR)")
    connection.execute("ALTER TABLE run_config ADD COLUMN beta_bytes_per_s DOUBLE")
    connection.execute("CREATE TABLE categories (category VARCHAR, comm BOOLEAN)")
    make_findings(connection, [code])
    return connection.execute(
        "SELECT severity, text, next FROM findings WHERE code = $1 ORDER BY text", [code]
    ).fetchall()


def env(*variables: str, version: str | None = None) -> list[dict[str, Any]]:
    rows = [{"node": "n", "rank": 0, "source": "env", "code": v.split("=")[0], "text": v} for v in variables]
    if version:
        rows.append({"node": "n", "source": "nccl", "code": "nccl_version", "text": f"NCCL version {version}+cuda12.4"})
    return rows


def test_a_misspelt_name_is_a_warning_with_the_nearest_known_name() -> None:
    ((severity, text, _),) = found("environment_unknown", log_events=env("NCCL_IB_GID_INDX=3"))
    assert (severity, "NCCL_IB_GID_INDEX is the nearest" in text) == ("warning", True)


def test_a_name_far_from_all_known_ones_is_information_only() -> None:
    ((severity, _, _),) = found("environment_unknown", log_events=env("NCCL_OUR_CLUSTER_SETTING_FILE=x"))
    assert severity == "info"


@pytest.mark.parametrize(
    "variable",
    [
        "NCCL_NVLS_ENABLE=0",
        "NVSHMEM_DISABLE_NVLS=1",
        "NCCL_INSPECTOR_ANYTHING=1",
        "NCCL_WORK_FIFO_DEPTH=4194304",
        "TORCH_X=1",
    ],
)
def test_known_names_families_of_plugins_and_other_programs_are_silent(variable: str) -> None:
    assert found("environment_unknown", log_events=env(variable)) == []


def test_nothing_is_unknown_to_a_library_newer_than_the_table() -> None:
    assert found("environment_unknown", log_events=env("NCCL_FUTURE=1", version="2.33.1")) == []


def test_a_name_that_came_later_than_the_version_is_said() -> None:
    ((_, text, _),) = found("environment_unknown", log_events=env("NCCL_GIN_ENABLE=1", version="2.21.5"))
    assert "NCCL 2.21 does not yet read it" in text


def test_a_name_that_a_later_version_dropped_is_said() -> None:
    ((_, text, _),) = found("environment_unknown", log_events=env("NCCL_WORK_FIFO_DEPTH=1", version="2.27.3"))
    assert "NCCL 2.27 does no more read it" in text


def test_a_name_of_the_version_itself_is_silent() -> None:
    assert found("environment_unknown", log_events=env("NCCL_GIN_ENABLE=1", version="2.32.3")) == []


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("NCCL_IB_GDA_ENABLE=1", "does not exist"),
        ("NCCL_NET_GDR_LEVEL=5", "means SYS"),
        ("NCCL_CROSS_NIC=1", "about rails"),
        ("NCCL_IB_QPS_PER_CONNECTION=32", "number of queue pairs"),
    ],
)
def test_a_misread_variable_is_explained_once(variable: str, says: str) -> None:
    ((_, text, _),) = found("environment_misread", log_events=env(variable))
    assert says in text
    assert found("environment_unknown", log_events=env(variable)) == []


@pytest.mark.parametrize(
    "variable", ["NCCL_NET_GDR_LEVEL=PXB", "NCCL_NET_GDR_LEVEL=4", "NCCL_CROSS_NIC=2", "NCCL_IB_QPS_PER_CONNECTION=31"]
)
def test_other_values_are_silent(variable: str) -> None:
    assert found("environment_misread", log_events=env(variable)) == []


DEVICES = [{"node": "n", "a": "GPU0", "b": name, "path": "PIX"} for name in ("mlx5_1", "mlx5_10", "mlx5_11")]


def test_a_prefix_that_selects_more_devices_names_them() -> None:
    ((_, text, fix),) = found("environment_misread", log_events=env("NCCL_IB_HCA=mlx5_1:1"), topology=DEVICES)
    assert ("mlx5_10, mlx5_11" in text, "NCCL_IB_HCA==mlx5_1:1" in fix) == (True, True)


def test_a_prefix_that_excludes_more_devices_is_advised_in_its_own_form() -> None:
    ((_, text, fix),) = found("environment_misread", log_events=env("NCCL_IB_HCA=^mlx5_1"), topology=DEVICES)
    assert "also excludes mlx5_10, mlx5_11" in text
    assert fix.endswith("NCCL_IB_HCA=^=mlx5_1")


@pytest.mark.parametrize("value", ["=mlx5_1", "^=mlx5_1", "mlx5", "mlx5_1,mlx5_10,mlx5_11"])
def test_exact_names_whole_families_and_full_lists_are_silent(value: str) -> None:
    assert found("environment_misread", log_events=env(f"NCCL_IB_HCA={value}"), topology=DEVICES) == []


def test_a_prefix_is_silent_where_no_such_device_was_seen() -> None:
    assert found("environment_misread", log_events=env("NCCL_IB_HCA=mlx5_1"), topology=DEVICES[:1]) == []


RANK = [{"rank": 0, "node": "n", "pid": 1, "gpu_index": 0, "nic": "mlx5_1"}]


def test_a_rank_with_a_far_nic_learns_of_the_near_one() -> None:
    paths = [
        {"node": "n", "a": "GPU0", "b": "mlx5_0", "path": "PIX"},
        {"node": "n", "a": "mlx5_1", "b": "GPU0", "path": "SYS"},
    ]
    ((severity, text, _),) = found("far_nic", topology=paths, ranks=RANK)
    assert (severity, "mlx5_1 is SYS, while mlx5_0 is PIX" in text) == ("warning", True)


@pytest.mark.parametrize("path", ["PIX", "PXB"])
def test_a_nic_behind_the_gpus_own_switches_is_silent(path: str) -> None:
    assert found("far_nic", topology=[{"node": "n", "a": "GPU0", "b": "mlx5_1", "path": path}], ranks=RANK) == []


def test_paths_between_gpus_are_no_nics() -> None:
    assert found("far_nic", topology=[{"node": "n", "a": "GPU0", "b": "GPU1", "path": "SYS"}], ranks=RANK) == []


@pytest.mark.parametrize(
    ("link_layer", "counter", "value", "hits"),
    [
        ("InfiniBand", "np_cnp_sent", 5, 1),
        ("InfiniBand", "np_cnp_sent", 0, 0),
        ("InfiniBand", "port_xmit_wait", 5, 0),
        ("Ethernet", "port_xmit_wait", 5, 1),
        ("Ethernet", "np_cnp_sent", 5, 0),
        (None, "np_cnp_sent", 5, 0),
    ],
)
def test_counters_are_judged_by_the_link_layer(link_layer: str | None, counter: str, value: int, hits: int) -> None:
    sample = {
        "node": "n",
        "device": "mlx5_0",
        "port": 1,
        "link_layer": link_layer,
        "counter": counter,
        "at_ns": 1,
        "value": value,
    }
    assert len(found("counters_of_other_link", counters=[sample])) == hits


def test_no_name_is_listed_twice() -> None:
    names = [name for _, name, _, _ in environment.rows()]
    assert sorted({name for name in names if names.count(name) > 1}) == []
