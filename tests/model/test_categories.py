"""The category tree hangs together."""

from __future__ import annotations

from pipeline.model.categories import BY_NAME, CATEGORIES, CTL_CPU_LEAVES, SWEPT, Headline


def test_priorities_rise_and_only_leaves_share_one() -> None:
    assert sorted(c.priority for c in CATEGORIES) == [c.priority for c in CATEGORIES]
    swept = [BY_NAME[name].priority for name in SWEPT]
    assert sorted(set(swept)) == swept


def test_a_parent_comes_later_or_is_the_whole_of_its_leaves() -> None:
    for category in CATEGORIES:
        if category.parent:
            parent = BY_NAME[category.parent]
            assert parent.priority >= category.priority or category.leaf_of is not None


def test_the_headline_classes_hold_what_the_contract_says() -> None:
    classes = {h: sorted(c.name for c in CATEGORIES if c.headline is h) for h in Headline}
    assert classes == {
        Headline.CPU_DOORBELL: ["ctl_doorbell", "ctl_post"],
        Headline.CONTROL_PLANE_ALPHA: ["ctl_fetch", "ctl_loop", "ctl_notify", "ctl_schedule", "ctl_wqe"],
        Headline.RDMA_TRANSFER: ["rdma_transfer"],
        Headline.BLOCKING_RTT: ["blocking_rtt"],
    }
    assert set(CTL_CPU_LEAVES) == {"ctl_schedule", "ctl_loop", "ctl_post", "ctl_wqe", "ctl_doorbell"}
