"""docs/scenarios/: a page a scenario, whose figures are what the simulator plays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline.simulate import SCENARIOS
from pipeline.simulate.cluster import Cluster
from pipeline.simulate.truth import account

PAGES = Path(__file__).parents[2] / "docs" / "scenarios"


def measured(name: str) -> list[str]:
    """Lines of a page's table: the true step and its categories from half a per cent on, at 2 nodes of 4 GPUs."""
    scenario = SCENARIOS[name]
    played = Cluster(scenario.scaled(scenario.scale), nodes=2, gpus_per_node=4, steps=4, seed=1).play()
    truth = account(played)
    total: Counter[str] = Counter()
    for category, ns in zip(truth.category, truth.true_ns.tolist(), strict=True):
        total[category] += ns
    whole = sum(total.values())
    step_ms = float(np.diff(truth.edges, axis=1).mean()) / 1e6
    lines = [f"| step | {step_ms:.2f} ms | {step_ms / scenario.scale:.0f} ms |"]
    for category, ns in sorted(total.items(), key=lambda item: (-item[1], item[0])):
        if ns / whole >= 0.005:
            lines.append(f"| {category} | {step_ms * ns / whole:.2f} ms | {100 * ns / whole:.1f} % |")
    return lines


def test_every_scenario_has_a_page_and_no_page_is_left_over() -> None:
    assert sorted(SCENARIOS) == sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_figures_of_a_page_are_what_is_played(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| what")]

    assert measured(name) == table
    assert f"mfuloss simulate {name} --out" in page
    for code in SCENARIOS[name].expected_findings:
        assert f"`{code}`" in page
