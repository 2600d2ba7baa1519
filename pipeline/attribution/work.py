"""Tables that one stage of attribution makes for the next ones, or one query for the next query of its stage.

Each has one schema, declared here: a query whose optional producer made nothing reads an empty table of it.
"""

from __future__ import annotations

from pipeline.model.schema import TABLES

Columns = tuple[tuple[str, str], ...]

_CANDIDATES: Columns = (
    ("start_ns", "BIGINT"),
    ("end_ns", "BIGINT"),
    ("category", "VARCHAR"),
    ("evidence", "VARCHAR"),
)

_STEPS: Columns = (
    ("step", "BIGINT"),
    ("start_ns", "BIGINT"),
    ("end_ns", "BIGINT"),
    ("source", "VARCHAR"),
    ("confidence", "DOUBLE"),
    ("complete", "BOOLEAN"),
    ("n_operations", "BIGINT"),
)

WORK_TABLES: dict[str, Columns] = {
    # local → all later stages
    "_operations": (
        ("rank", "BIGINT"),
        ("op_id", "BIGINT"),
        ("comm_id", "VARCHAR"),
        ("seq", "BIGINT"),
        ("op", "VARCHAR"),
        ("bytes", "BIGINT"),
        ("n_ranks", "BIGINT"),
        ("peer_rank", "BIGINT"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
        ("device", "BIGINT"),
        ("stream", "BIGINT"),
        ("kernel", "VARCHAR"),
    ),
    "_op_windows": (
        ("rank", "BIGINT"),
        ("op_id", "BIGINT"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
    ),
    "_op_network": (
        ("rank", "BIGINT"),
        ("op_id", "BIGINT"),
        ("first_post_ns", "BIGINT"),
        ("last_post_ns", "BIGINT"),
        ("last_complete_ns", "BIGINT"),
        ("n_messages", "BIGINT"),
        ("n_lost", "BIGINT"),
        ("bytes", "BIGINT"),
    ),
    "_message_spans": (
        ("rank", "BIGINT"),
        ("op_id", "BIGINT"),
        ("peer_rank", "BIGINT"),
        ("messages", "BIGINT"),
        ("first_enter_ns", "BIGINT"),
        ("last_complete_ns", "BIGINT"),
    ),
    "_devices": (
        ("rank", "BIGINT"),
        ("node", "VARCHAR"),
        ("nic", "VARCHAR"),
        ("n", "BIGINT"),
        ("bytes", "BIGINT"),
    ),
    "_fit_samples": (
        ("node", "VARCHAR"),
        ("nic", "VARCHAR"),
        ("peer_class", "VARCHAR"),
        ("op", "VARCHAR"),
        ("initiator", "VARCHAR"),
        ("step", "BIGINT"),
        ("kind", "VARCHAR"),
        ("bytes", "DOUBLE"),
        ("duration_ns", "DOUBLE"),
        ("flight_ns", "BIGINT"),
        ("weight", "DOUBLE"),
    ),
    # inside local
    "_period": (("marker", "VARCHAR"), ("confidence", "DOUBLE"), ("n_periods", "BIGINT")),
    "_optimizer_edges": (("start_ns", "BIGINT"), ("confidence", "DOUBLE")),
    "_steps_inferred": _STEPS,
    "_steps_window": _STEPS,
    "_step_lacks": (("step", "BIGINT"), ("share", "DOUBLE")),
    # across → account, summary
    "_shared_nics": (("node", "VARCHAR"), ("nic", "VARCHAR")),
    "_links": (
        ("node", "VARCHAR"),
        ("nic", "VARCHAR"),
        ("beta_bytes_per_s", "BIGINT"),
        ("beta_source", "VARCHAR"),
        ("rtt0_ns", "BIGINT"),
        ("rtt0_lo_ns", "BIGINT"),
        ("rtt0_hi_ns", "BIGINT"),
        ("fetch_ns", "BIGINT"),
    ),
    "_participants": (
        ("rank", "BIGINT"),
        ("op_id", "BIGINT"),
        ("instance_id", "BIGINT"),
        ("basis", "VARCHAR"),
    ),
    "_wait_windows": (
        ("rank", "BIGINT"),
        ("op_id", "BIGINT"),
        ("comm_id", "VARCHAR"),
        ("seq", "BIGINT"),
        ("op", "VARCHAR"),
        ("culprit_rank", "BIGINT"),
        ("kind", "VARCHAR"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
        ("clock_error_ns", "BIGINT"),
        ("within_clock_error", "BOOLEAN"),
    ),
    # account → summary
    "_wait_pieces": (
        ("rank", "BIGINT"),
        ("step", "BIGINT"),
        ("op_id", "BIGINT"),
        ("comm_id", "VARCHAR"),
        ("seq", "BIGINT"),
        ("op", "VARCHAR"),
        ("kind", "VARCHAR"),
        ("culprit_rank", "BIGINT"),
        ("window_start_ns", "BIGINT"),
        ("clock_error_ns", "BIGINT"),
        ("within_clock_error", "BOOLEAN"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
    ),
    "_local_times": (
        ("rank", "BIGINT"),
        ("op_id", "BIGINT"),
        ("step", "BIGINT"),
        ("level", "BIGINT"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
        ("local_start_ns", "BIGINT"),
        ("local_end_ns", "BIGINT"),
    ),
    "_local_operations": (("rank", "BIGINT"), ("op_id", "BIGINT")),
    # inside summary
    "_arrivals": (
        ("place", "BIGINT"),
        ("rank", "BIGINT"),
        ("level", "BIGINT"),
        ("end_ns", "BIGINT"),
        ("local_start_ns", "BIGINT"),
        ("local_end_ns", "BIGINT"),
    ),
    "_culprit_timeline": (
        ("rank", "BIGINT"),
        ("n", "BIGINT"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
        ("category", "VARCHAR"),
        ("next_rank", "BIGINT"),
    ),
    # inside account
    "_bounds": (
        ("ordinal", "BIGINT"),
        ("category", "VARCHAR"),
        ("less_ns", "BIGINT"),
        ("more_ns", "BIGINT"),
        ("given_ns", "BIGINT"),
        ("taken_ns", "BIGINT"),
    ),
    "node_messages": (
        ("rank", "BIGINT"),
        ("node", "VARCHAR"),
        ("nic", "VARCHAR"),
        ("exit_ns", "BIGINT"),
        ("bytes", "BIGINT"),
        ("status", "BIGINT"),
    ),
    "_shared_messages": (
        ("node", "VARCHAR"),
        ("nic", "VARCHAR"),
        ("rank", "BIGINT"),
        ("exit_ns", "BIGINT"),
        ("bytes", "BIGINT"),
    ),
    "_ctl_windows": (
        ("window_id", "BIGINT"),
        ("op_ids", "BIGINT[]"),
        ("ordinal", "BIGINT"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
    ),
    "_ctl_shares": (
        ("ordinal", "BIGINT"),
        ("category", "VARCHAR"),
        ("evidence", "VARCHAR"),
        ("attributed_ns", "BIGINT"),
        ("inclusive_ns", "BIGINT"),
    ),
    "_mixed_frames": (("start_ns", "BIGINT"), ("end_ns", "BIGINT"), ("kinds", "UTINYINT")),
    "_touched_windows": (("tid", "BIGINT"), ("start_ns", "BIGINT"), ("cut_ns", "BIGINT")),
    "_host_frames": (
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
        ("sync", "BOOLEAN"),
        ("data", "BOOLEAN"),
        ("other", "BOOLEAN"),
    ),
    "_lost_idle": (
        ("idle_ns", "BIGINT"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
        ("launch_ns", "BIGINT"),
        ("launch_tid", "BIGINT"),
        ("lost", "BOOLEAN"),
    ),
    "_network_candidates": _CANDIDATES,
    "_wait_candidates": _CANDIDATES,
    "_ctl_occupancy": (
        ("op_id", "BIGINT"),
        ("leaf", "VARCHAR"),
        ("start_ns", "BIGINT"),
        ("end_ns", "BIGINT"),
    ),
}
"""Work tables by name. Those that a stage hands on lie in `_work/<name>/`."""


def columns_of(name: str) -> Columns:
    """Columns and DuckDB types of a work table or a lake table. Raises KeyError for other names."""
    if name in WORK_TABLES:
        return WORK_TABLES[name]
    return tuple((column.name, column.type) for column in TABLES[name].columns)
