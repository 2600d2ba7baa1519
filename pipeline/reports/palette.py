"""Colours of categories, the same in every chart, and hatches of evidence. Mid-luminance: for light and dark pages.

Hue tells the kind (teal useful work, violet waits, blue the wire, orange the CPU's part, yellow copies, brown the
host, grey idle); neighbours of one hue differ in lightness, and every bar carries its name, so colour is never alone.
"""

from __future__ import annotations

COLORS: dict[str, str] = {
    "mfu": "#1c7c6e",
    "compute": "#1c7c6e",
    "compute_loss": "#74bfae",
    "wait_straggler": "#7a5ca8",
    "wait_pipeline": "#9b7fc9",
    "wait_sender": "#b59ddb",
    "wait_credit": "#c7b4e3",
    "rdma_transfer": "#2f6fb5",
    "net_latency": "#7fb0e0",
    "net_excess": "#5568c8",
    "nvlink_transfer": "#3fa7c4",
    "comm_unattributed": "#7f8fa6",
    "ctl_cpu": "#dd7a35",
    "ctl_schedule": "#dd7a35",
    "ctl_loop": "#efa55c",
    "ctl_post": "#bf5217",
    "ctl_wqe": "#d6935f",
    "ctl_doorbell": "#a5420f",
    "ctl_fetch": "#f0bd88",
    "ctl_notify": "#e8c49b",
    "blocking_rtt": "#c1315f",
    "trace_gap": "#8a8f98",
    "memcpy": "#c9a50f",
    "gpu_dependency": "#7d6358",
    "host_sync": "#9c7459",
    "host_data": "#6b4a3d",
    "host_other": "#b3917b",
    "host_launch": "#c6a993",
    "idle_other": "#a9b0ba",
}
_OTHER = "#a9b0ba"

LANES: dict[str, str] = {
    "compute": COLORS["compute"],
    "comm": "#7f8fa6",
    "copy": COLORS["memcpy"],
    "running": COLORS["ctl_loop"],
    "runnable": COLORS["ctl_schedule"],
    "blocked": COLORS["idle_other"],
    "post": COLORS["ctl_post"],
    "in_flight": COLORS["net_latency"],
    "on_wire": COLORS["rdma_transfer"],
}

HATCHES: dict[str, str] = {"inferred": "hatch-inferred", "modelled": "hatch-modelled", "assumed": "hatch-assumed"}
"""Pattern of each level of evidence; measured is solid."""


def color(category: str) -> str:
    return COLORS.get(category, _OTHER)
