"""The engine `exact`: each speaker's weight gradients, computed beside the model's own, which stay as they are to the bit."""

from __future__ import annotations

from gradwatch.quantities.engines.tapped import Tapped


class Exact(Tapped):
    """An extra weight gradient per module, W_k = Y_kᵀX_k, by an identity on the module's output.

    Costs about a quarter of a step. Exact to rounding where one backward pass of one process uses each weight once; small weights
    always; what else there is goes through a `ParameterSketch`.
    """

    name = "exact"
