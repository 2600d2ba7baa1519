"""Detectors on real captures: what was injected is found, and nothing is said about networks that were not there."""

from __future__ import annotations

from tests.real.conftest import Query

NETWORK = "('blocking_rtt', 'control_plane_bound', 'proxy_starved', 'incast', 'qp_thrash', 'nic_imbalance', 'gpu_initiated', 'gpu_initiated_fallback', 'retransmission', 'unseen_traffic')"


def test_the_injected_stalls_are_found_in_their_steps(train_new: Query) -> None:
    found = train_new("SELECT code, step FROM findings WHERE severity <> 'info' ORDER BY place")
    assert found == [("data_bound", 4), ("host_stall", 9), ("tiny_sync_copies", 7)]


def test_a_single_gpu_has_no_network_findings(train_new: Query) -> None:
    assert train_new(f"SELECT code FROM findings WHERE code IN {NETWORK}") == []


def test_two_ranks_without_an_rdma_network_have_no_network_findings(two_ranks: Query) -> None:
    assert two_ranks(f"SELECT code FROM findings WHERE code IN {NETWORK}") == []


def test_every_finding_has_its_evidence_and_what_to_do(train_new: Query, two_ranks: Query) -> None:
    for ask in (train_new, two_ranks):
        assert (
            ask(
                """SELECT code FROM findings WHERE evidence IS NULL OR confounders IS NULL OR next IS NULL OR measure IS NULL
               OR value IS NULL OR threshold IS NULL OR value < threshold"""
            )
            == []
        )
