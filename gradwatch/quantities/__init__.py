"""Quantities: what is measured of a training step. Pure torch, no I/O; importing this package needs torch."""

from gradwatch.quantities.budget import Budget, Decision
from gradwatch.quantities.grad_norm import GradNormReading, GradNorms, measure_grad_norm
from gradwatch.quantities.parameter_groups import Member, ParameterGroups, group_parameters
from gradwatch.quantities.stopwatch import Stopwatch
from gradwatch.quantities.unavailable import Unavailable

__all__ = [
    "Budget",
    "Decision",
    "GradNormReading",
    "GradNorms",
    "Member",
    "ParameterGroups",
    "Stopwatch",
    "Unavailable",
    "group_parameters",
    "measure_grad_norm",
]
