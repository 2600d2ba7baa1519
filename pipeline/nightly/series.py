"""The nights that the lake knows, as series that can be compared, each judged against its own history."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.lake.catalog import table_views
from pipeline.lake.layout import RunDir, open_connection, run_of, runs_of
from pipeline.model.library import sql
from pipeline.model.run import RunConfig
from pipeline.nightly.settings import VerdictSection
from pipeline.reports import history
from pipeline.reports.compare import SAME_MODEL_TOLERANCE


def origins_of(lake: Path) -> dict[str, dict[str, Any]]:
    """Manifests of the runs that this batch ingested."""
    result = {}
    for path in runs_of(lake):
        manifest = RunDir(path).manifest
        if isinstance(manifest.get("origin"), dict) and manifest["origin"].get("kind") == "nightly":
            result[run_of(path)] = manifest
    return result


def judged(
    lake: Path, origins: Mapping[str, dict[str, Any]], verdict: VerdictSection, history_days: float
) -> list[history.Series]:
    """Every series of the runs in `origins`, by job and time, each night with its verdict."""
    rules = history.Rules(
        floor_points=verdict.floor_points,
        mad_factor=verdict.mad_factor,
        min_nights=verdict.min_nights,
        history_ns=round(history_days * history.DAY_NS),
    )
    measures = _measures(lake, origins)
    nights = [(_night(run, manifest, measures.get(run, {})), manifest) for run, manifest in origins.items()]
    nights.sort(key=lambda each: (str(each[1]["origin"]["job"]), each[0].at_ns, each[0].run))
    groups: list[tuple[str, dict[str, Any], list[history.Night]]] = []
    for night, manifest in nights:
        job, identity = str(manifest["origin"]["job"]), _identity(manifest, night)
        own = next((group for group in reversed(groups) if group[0] == job and _alike(group[1], identity)), None)
        if own is None:
            groups.append((job, identity, [night]))
        else:
            own[2].append(night)
    found: list[history.Series] = []
    for job, identity, members in groups:
        short = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:6]
        verdicts = tuple(history.judge(members, rules))
        before = _difference(found[-1].identity, identity) if found and found[-1].job == job else None
        found.append(history.Series(f"{job}@{short}", job, identity, tuple(members), verdicts, before))
    return found


def _alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two nights are of one series. FLOPs are often computed from rounded figures: as in comparisons, a
    difference within SAME_MODEL_TOLERANCE is none, lest a rounding hides a loss behind a new series."""
    flops = "model.flops_per_step"
    if flops in old and flops in new and abs(new[flops] / old[flops] - 1) <= SAME_MODEL_TOLERANCE:
        new = {**new, flops: old[flops]}
    return old == new


def _night(run: str, manifest: Mapping[str, Any], values: Mapping[str, float]) -> history.Night:
    config = RunConfig.model_validate(manifest.get("config", {}))
    firsts = [entry["first_ns"] for entry in manifest.get("captures", {}).values() if entry.get("first_ns")]
    at_ns = config.run.started_ns or min(firsts, default=0)
    findings = frozenset(name.removeprefix("finding:") for name in values if name.startswith("finding:"))
    return history.Night(run, at_ns, {n: v for n, v in values.items() if not n.startswith("finding:")}, findings)


def _identity(manifest: Mapping[str, Any], night: history.Night) -> dict[str, Any]:
    """What must be equal for two nights to be compared, by the key that says it. A lost rank is no other size."""
    config = manifest.get("config", {})
    identity = {f"model.{key}": value for key, value in config.get("model", {}).items()}
    identity |= {f"hardware.{key}": value for key, value in config.get("hardware", {}).items()}
    identity["steps.kind"] = config.get("steps", {}).get("kind", "training")
    identity["ranks"] = config.get("ranks", {}).get("expected") or int(night.measures.get("ranks", 0))
    return dict(sorted(identity.items()))


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key, 'unset')} → {new.get(key, 'unset')}" for key in changed)


def _measures(lake: Path, runs: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    result: dict[str, dict[str, float]] = {}
    connection = open_connection(threads=2)
    try:
        for table, statement in table_views(Path(os.path.abspath(lake))):  # noqa: PTH100 - keeps symbolic links
            if table in ("mfu", "steps", "findings"):
                connection.execute(statement)
        connection.execute(sql("nightly_measures"))
        for run, measure, value in connection.execute(
            "SELECT run, measure, value FROM nightly_measures ORDER BY run, measure"
        ).fetchall():
            if run in runs:
                result.setdefault(run, {})[measure] = float(value)
    finally:
        connection.close()
    return result
