"""Cluster simulator: real file formats out, ground truth beside them. Imports nothing of the pipeline but the model."""

from pipeline.simulate.run import node_sizes, simulate
from pipeline.simulate.scenarios import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Scenario", "node_sizes", "simulate"]
