"""Quantities: what is measured of a training step. Pure torch, no I/O; importing this package needs torch."""

from gradwatch.quantities.budget import Budget, Decision
from gradwatch.quantities.calls import Call, measure_calls
from gradwatch.quantities.entropy import entropy_of_logits
from gradwatch.quantities.grad_norm import GradNormReading, GradNorms, measure_grad_norm
from gradwatch.quantities.inflation import Inflation, RewardPool
from gradwatch.quantities.located import Located, LocatorReading
from gradwatch.quantities.measured_inflation import measure_inflation_by_scores
from gradwatch.quantities.noise_scale import NoiseScale, NoiseScaleAverage, noise_scale, noise_scale_of_parts
from gradwatch.quantities.nonfinite_locator import NonfiniteLocator
from gradwatch.quantities.parameter_groups import Member, ParameterGroups, group_parameters
from gradwatch.quantities.parameter_sketch import ParameterSketch
from gradwatch.quantities.per_role import RoleReading, join_readings
from gradwatch.quantities.policy import PolicyBatch, measure_policy
from gradwatch.quantities.reward_groups import GroupStatistics, measure_groups
from gradwatch.quantities.rewards import measure_advantages, measure_reward_components, measure_rewards
from gradwatch.quantities.role_gradients import RoleGradients, RoleGradReading
from gradwatch.quantities.roles import BatchRoles, Speaker, assign_roles
from gradwatch.quantities.unavailable import Unavailable
from gradwatch.quantities.update_ratio import UpdateRatio, UpdateRatioReading

__all__ = [
    "BatchRoles",
    "Budget",
    "Call",
    "Decision",
    "GradNormReading",
    "GradNorms",
    "GroupStatistics",
    "Inflation",
    "Located",
    "LocatorReading",
    "Member",
    "NoiseScale",
    "NoiseScaleAverage",
    "NonfiniteLocator",
    "ParameterGroups",
    "ParameterSketch",
    "PolicyBatch",
    "RewardPool",
    "RoleGradReading",
    "RoleGradients",
    "RoleReading",
    "Speaker",
    "Unavailable",
    "UpdateRatio",
    "UpdateRatioReading",
    "assign_roles",
    "entropy_of_logits",
    "group_parameters",
    "join_readings",
    "measure_advantages",
    "measure_calls",
    "measure_grad_norm",
    "measure_groups",
    "measure_inflation_by_scores",
    "measure_policy",
    "measure_reward_components",
    "measure_rewards",
    "noise_scale",
    "noise_scale_of_parts",
]
