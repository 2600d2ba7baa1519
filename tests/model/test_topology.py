"""Rails: GOLDEN G14."""

from __future__ import annotations

import pytest

from pipeline.model.topology import PeerClass, all_to_all_pairs, peer_class


def test_g14_an_all_to_all_of_4_nodes_of_8_gpus() -> None:
    assert all_to_all_pairs(4, 8) == {
        PeerClass.SAME_NODE: 224,
        PeerClass.SAME_RAIL: 96,
        PeerClass.CROSS_RAIL: 672,
    }


def test_g14_with_pxn_nothing_crosses_rails() -> None:
    assert all_to_all_pairs(4, 8, pxn=True) == {
        PeerClass.SAME_NODE: 224,
        PeerClass.SAME_RAIL: 96,
        PeerClass.PXN: 672,
    }


def test_one_gpu_has_no_peer() -> None:
    assert all_to_all_pairs(1, 1) == {}


def test_the_node_decides_before_the_rail() -> None:
    assert peer_class("a", 0, "a", 1) is PeerClass.SAME_NODE
    assert peer_class("a", 1, "b", 1) is PeerClass.SAME_RAIL
    assert peer_class("a", 0, "b", 1) is PeerClass.CROSS_RAIL


def test_a_cluster_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="0 nodes"):
        all_to_all_pairs(0, 8)
