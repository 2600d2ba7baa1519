"""Which process is which rank: run.toml, else environment, else file name, else node order and device index."""

from __future__ import annotations

import pytest

from pipeline.model.capture import Gpu, Process
from pipeline.model.errors import UsageError
from pipeline.model.ranks import GpuProcess, assign_ranks, rank_in_name
from pipeline.model.run import RanksSection, parse


def seen(capture: str, pid: int, gpu: int = 0, node: str = "n0", **env: str) -> GpuProcess:
    return GpuProcess(capture, node, Process(pid, pid, None, env, (Gpu(gpu),)))


def ranks(processes: list[GpuProcess], **rules: object) -> dict[tuple[str, int], int]:
    return dict(assign_ranks(processes, parse({"ranks": rules}).ranks if rules else RanksSection()).ranks)


def test_the_environment_decides_before_the_name() -> None:
    assert ranks([seen("rank0.sqlite", 1, RANK="5", SLURM_PROCID="6")]) == {("rank0.sqlite", 1): 5}
    assert ranks([seen("x", 1, SLURM_PROCID="6")]) == {("x", 1): 6}
    assert ranks([seen("x", 1, OMPI_COMM_WORLD_RANK="7")]) == {("x", 1): 7}


def test_a_launchers_one_number_for_all_its_processes_is_no_rank() -> None:
    processes = [seen("all.sqlite", 10 + gpu, gpu, SLURM_PROCID="3") for gpu in range(2)]
    assert ranks(processes) == {("all.sqlite", 10): 0, ("all.sqlite", 11): 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rank0.sqlite", 0),
        ("job/rank_3_new.sqlite", 3),
        ("trace-RANK-012.nsys-rep", 12),
        ("rank7/report.sqlite", None),
        ("frank3.sqlite", None),
        ("train.sqlite", None),
    ],
)
def test_a_number_after_rank_in_the_files_own_name_is_its_rank(name: str, expected: int | None) -> None:
    assert expected == rank_in_name(name)


def test_names_that_differ_in_one_number_alone_give_it_unless_it_looks_like_a_pid() -> None:
    assert ranks([seen("r.4.sqlite", 1), seen("r.2.sqlite", 2, 1)]) == {("r.4.sqlite", 1): 4, ("r.2.sqlite", 2): 2}
    processes = [seen("r.91234.sqlite", 1, 1), seen("r.81234.sqlite", 2, 0)]
    assert ranks(processes) == {("r.81234.sqlite", 2): 0, ("r.91234.sqlite", 1): 1}


def test_else_node_order_times_devices_counts_nodes_as_people_do() -> None:
    processes = [seen(f"{node}.x", gpu, gpu, node) for node in ("n10", "n9") for gpu in (0, 1)]
    assert ranks(processes) == {("n9.x", 0): 0, ("n9.x", 1): 1, ("n10.x", 0): 2, ("n10.x", 1): 3}
    expected = {("n9.x", 0): 0, ("n9.x", 1): 1, ("n10.x", 0): 8, ("n10.x", 1): 9}
    assert expected == ranks(processes, gpus_per_node=8)


def test_processes_that_each_see_their_gpu_as_0_are_counted_in_order() -> None:
    assert ranks([seen("b.x", 6), seen("a.x", 5)]) == {("a.x", 5): 0, ("b.x", 6): 1}


def test_the_rule_that_run_toml_names_holds_alone() -> None:
    one = [seen("rank4.x", 1, RANK="9")]
    assert ranks(one, **{"from": "filename"}) == {("rank4.x", 1): 4}
    assert ranks(one, **{"from": "device"}) == {("rank4.x", 1): 0}
    assert ranks([seen("job/w04.x", 1)], pattern=r"w(?P<rank>\d+)") == {("job/w04.x", 1): 4}
    with pytest.raises(UsageError, match="gives process 1 no rank"):
        ranks([seen("x", 1)], **{"from": "env"})


def test_two_claims_of_one_rank_name_both_captures() -> None:
    with pytest.raises(UsageError, match=r"a/rank0\.x \(process 1 on n0\) and b/rank0\.x \(process 2 on n0\) both"):
        ranks([seen("a/rank0.x", 1), seen("b/rank0.x", 2)])


def test_a_process_that_no_rule_reaches_stays_without_rank_and_is_told() -> None:
    ranking = assign_ranks([seen("rank0.x", 1), seen("monitor.x", 2)], RanksSection())
    assert (dict(ranking.ranks), len(ranking.notes)) == ({("rank0.x", 1): 0}, 1)


def test_a_process_seen_elsewhere_is_the_rank_of_its_pid_on_its_node() -> None:
    ranking = assign_ranks([seen("rank3.x", 70)], RanksSection())
    assert ranking.rank_of(Process(1, 70), "n0", "ebpf.out") == 3
    assert None is ranking.rank_of(Process(1, 70), "n1", "ebpf.out")
    assert ranking.rank_of(Process(1, 71, None, {"RANK": "3"}), "n0", "profiler.json") == 3
    assert None is ranking.rank_of(Process(1, 71, None, {"RANK": "4"}), "n0", "profiler.json")
