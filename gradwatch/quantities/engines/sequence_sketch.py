"""What the modules of a forward pass add to the sketch of each of its pieces, seen by hooks on their outputs' gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradwatch.quantities.engines.clock import CLOCK
from gradwatch.quantities.engines.output_gradient import on_output_gradient
from gradwatch.quantities.engines.pieces import Pieces
from gradwatch.quantities.engines.scratch import scratch
from gradwatch.quantities.engines.token_sketch import TokenSketch
from gradwatch.quantities.engines.weight_uses import WeightUse, inverse_rms, norm_eps
from gradwatch.quantities.own_hook import REFUSALS
from gradwatch.quantities.sharding import is_dtensor

FINE = 1e-6  # the relative error of float32 sums, with a margin


class SequenceSketch:
    """The sketches of one forward pass, float32 (G, R), one for each of its pieces.

    What a hook needs of the input is projected in the forward pass, r numbers a token; a norm's input is held as it is, which
    its own backward does too. `seen` are the uses whose gradient came by, `missed` those of which a part could not be told;
    `coarseness` is the relative step of the coarsest dtype that came by.
    """

    def __init__(self, pieces: Pieces, sketch: TokenSketch) -> None:
        self.pieces = pieces
        self.seen: set[WeightUse] = set()
        self.missed: set[WeightUse] = set()
        self.coarseness = FINE
        self._sketch = sketch
        self._held_GR: Tensor | None = None

    def value(self, device: torch.device) -> Tensor:
        """(G, R), zeros where no gradient came by."""
        if self._held_GR is None:
            self._held_GR = torch.zeros(len(self.pieces), self._sketch.width, device=device)
        return self._held_GR

    @torch.no_grad()
    def attach(self, use: WeightUse, x: Tensor, y: Tensor) -> None:
        """Watch the gradient of a module's output y that was computed from x."""
        if is_dtensor(x) or is_dtensor(y) or not use.is_whole(x, y) or not self._lines_up(use, x):
            on_output_gradient(y, lambda _: self.missed.add(use))
            return
        try:
            with CLOCK:
                self.pieces = self.pieces.to(x.device)
                see = self._norm(use, x) if use.is_norm else self._matrix(use, x)
        except REFUSALS:
            on_output_gradient(y, lambda _: self.missed.add(use))
            return

        def clocked(gradient: Tensor) -> None:
            self.seen.add(use)
            try:
                with CLOCK, torch.no_grad():
                    self.coarseness = max(self.coarseness, torch.finfo(gradient.dtype).eps)
                    see(gradient)
            except REFUSALS:
                self.missed.add(use)

        on_output_gradient(y, clocked)

    def _lines_up(self, use: WeightUse, x: Tensor) -> bool:
        if use.kind != "embedding":
            return self.pieces.fit(x.shape[:-1])
        # A vector of numbers may be the positions 0 to T - 1, which all rows share.
        return self.pieces.fit(x.shape) and (x.dim() > 1 or len(self.pieces) == 1)

    def _matrix(self, use: WeightUse, x: Tensor) -> Callable[[Tensor], None]:
        weight = use.weight
        if weight is None:
            return lambda gradient: self._add_bias(use, gradient)
        if use.kind == "embedding":
            projected = self._tokens(use, weight, x)
        else:
            inputs = x.reshape(-1, x.shape[-1])
            projected = inputs @ (self._sketch.rows if use.kind == "transposed" else self._sketch.columns)(weight, inputs)

        def see(gradient: Tensor) -> None:
            outputs = gradient.reshape(len(projected), -1)
            if use.kind == "linear":
                products = self.pieces.products(outputs @ self._sketch.rows(weight, outputs), projected)
            else:
                products = self.pieces.products(projected, outputs @ self._sketch.columns(weight, outputs))
            self._sketch.add_matrix_(self.value(gradient.device), weight, products)
            self._add_bias(use, gradient)

        return see

    def _tokens(self, use: WeightUse, weight: int, tokens: Tensor) -> Tensor:
        tokens_M = tokens.reshape(-1)
        projected = self._sketch.rows(weight, tokens.new_empty(0, dtype=torch.float32))[tokens_M]
        padding = use.module.padding_idx
        return projected.masked_fill_((tokens_M == padding)[:, None], 0) if isinstance(padding, int) else projected

    def _norm(self, use: WeightUse, x: Tensor) -> Callable[[Tensor], None]:
        version = x._version

        def see(gradient: Tensor) -> None:
            # Autograd raises where what it saved was changed in place; what is only held here has to be checked.
            if x._version != version:
                self.missed.add(use)
                return
            if use.weight is not None:
                self._sketch.add_vector_(self.value(x.device), use.weight, self._of_norm(use, x, gradient))
            self._add_bias(use, gradient)

        return see

    def _of_norm(self, use: WeightUse, x: Tensor, gradient: Tensor) -> Tensor:
        """Σ_t gy_t∘x̂_t of each piece, (G, D)."""
        x_MD = x.reshape(-1, x.shape[-1]).float()
        gy_MD = gradient.reshape(x_MD.shape).float()
        eps = norm_eps(use.module, x.dtype)
        if use.kind == "rms_norm":
            product_MD = torch.mul(gy_MD, x_MD, out=scratch(x_MD, x_MD.numel()).view(x_MD.shape))
            return self.pieces.totals(product_MD, inverse_rms(x_MD, eps))
        centred_MD = x_MD - x_MD.mean(-1, keepdim=True)
        return self.pieces.totals(centred_MD.mul(gy_MD), inverse_rms(centred_MD, eps))

    def _add_bias(self, use: WeightUse, gradient: Tensor) -> None:
        if use.bias is not None:
            totals_GD = self.pieces.totals(gradient.reshape(-1, gradient.shape[-1]))
            self._sketch.add_vector_(self.value(gradient.device), use.bias, totals_GD)
