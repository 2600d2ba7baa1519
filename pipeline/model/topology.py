"""Rails: which way a message between two GPUs takes in a rail-optimised cluster. Pure functions.

GPU k of every node has its NIC on rail (leaf switch) k. Two GPUs of a node talk over NVLink; two of one rail through
one leaf switch; all others cross rails, through a spine switch. With PXN the sender first hands the message over NVLink
to the GPU of its own node that is on the receiver's rail, so that nothing crosses rails.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class PeerClass(StrEnum):
    """How two GPUs reach each other."""

    SAME_NODE = "same_node"
    """NVLink inside a node."""
    SAME_RAIL = "same_rail"
    CROSS_RAIL = "cross_rail"
    PXN = "nvlink_then_same_rail"
    """Cross rail in place, but relayed by NCCL's PXN or DeepEP's two hops."""


def peer_class(node_a: str, rail_a: int, node_b: str, rail_b: int, *, pxn: bool = False) -> PeerClass:
    """The way from a GPU on (node, rail) to another, as the SQL macro peer_class where pxn is False."""
    if node_a == node_b:
        return PeerClass.SAME_NODE
    if rail_a == rail_b:
        return PeerClass.SAME_RAIL
    return PeerClass.PXN if pxn else PeerClass.CROSS_RAIL


def all_to_all_pairs(nodes: int, gpus_per_node: int, *, pxn: bool = False) -> Counter[PeerClass]:
    """How many of an all-to-all's ordered pairs of GPUs take which way. Raises ValueError for sizes below 1."""
    if nodes < 1 or gpus_per_node < 1:
        raise ValueError(f"{nodes} nodes of {gpus_per_node} GPUs: both must be at least 1")
    gpus = [(str(node), rail) for node in range(nodes) for rail in range(gpus_per_node)]
    return Counter(peer_class(*a, *b, pxn=pxn) for a in gpus for b in gpus if a != b)
