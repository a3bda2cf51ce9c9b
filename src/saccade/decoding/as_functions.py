"""Parts of a Transformer block as plain functions of rows of vectors. R rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..layers.embeddings import Tokens
from ..layers.fast.int8 import Int8Head
from ..layers.feedforward import MLP, Relu
from ..layers.norms import LayerNorm, RMSNorm
from ..layers.output_heads import LinearHead
from ..layers.residuals import DeepNorm, PostNorm, PreNorm, Residual, ReZero
from .fast_support import LINEAR, is_unmodified
from .weight_layouts import Product, WeightCopies, of_weights, product

Join = Callable[[Tensor, Tensor], Tensor]
# Width of a vector that one program normalizes.
MAX_NORM_WIDTH = 8192


def norm_of(norm: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """A norm as one function call. Other parts are called as modules."""
    if type(norm) is nn.Identity:
        return None
    if is_unmodified(norm, LayerNorm):
        assert isinstance(norm, LayerNorm)
        shape, weight, bias = norm.weight.shape, norm.weight.detach(), norm.bias.detach()
        eps = norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if is_unmodified(norm, RMSNorm):
        assert isinstance(norm, RMSNorm)
        shape, weight, eps = norm.weight.shape, norm.weight.detach(), norm.eps
        return lambda x: torch.rms_norm(x, shape, weight, eps)
    return by_position(norm)


def by_position(part: nn.Module) -> Callable[[Tensor], Tensor]:
    """A part that takes rows as positions of a batch: R dim → R …"""
    return lambda x: part(x.unsqueeze(1)).squeeze(1)


def residual_of(around: Residual) -> tuple[Callable[[Tensor], Tensor] | None, Join]:
    """A residual as two functions: before its part (or None) and joining its output."""
    norm = norm_of(around.norm)
    if isinstance(around, PreNorm):
        return norm, torch.add
    if isinstance(around, ReZero):
        alpha = around.alpha.detach()
        return norm, lambda x, y: x + alpha * y
    if isinstance(around, DeepNorm):
        factor = around.alpha
        join: Join = lambda x, y: torch.add(y, x, alpha=factor)
    else:
        assert isinstance(around, PostNorm)
        join = torch.add
    return None, join if norm is None else (lambda x, y: norm(join(x, y)))


def fused_join_of(around: Residual) -> Join | None:
    """Sum and norm in one kernel, if the norm directly follows the sum."""
    norm = around.norm
    if not isinstance(around, PostNorm) or not is_unmodified(norm, LayerNorm):
        return None
    assert isinstance(norm, LayerNorm)
    if norm.weight.shape[0] > MAX_NORM_WIDTH:
        return None
    weight, bias, eps = norm.weight.detach(), norm.bias.detach(), norm.eps

    def join(x: Tensor, y: Tensor) -> Tensor:
        from ..core.kernels.decode_step import add_norm

        return add_norm(x, y, weight, bias, eps)

    return join


def feedforward_of(part: nn.Module, layout: str, copies: WeightCopies) -> Product:
    """An MLP as two products. Other feed-forward parts are called as modules."""
    if not is_unmodified(part, MLP) or not (
        is_unmodified(part.inner, *LINEAR) and is_unmodified(part.outer, *LINEAR)
    ):
        return by_position(part)
    relu = is_unmodified(part.activation, Relu)
    inner = product([part.inner], layout, copies, "relu" if relu else "none")  # type: ignore[list-item]
    outer = product([part.outer], layout, copies)  # type: ignore[list-item]
    activation = part.activation
    assert isinstance(activation, nn.Module)
    return (lambda x: outer(inner(x))) if relu else (lambda x: outer(activation(inner(x))))


def head_of(head: nn.Module, layout: str, copies: WeightCopies) -> Product:
    """The head as a function from vectors to logits."""
    if is_unmodified(head, Int8Head) or not is_unmodified(head, LinearHead):
        return by_position(head)
    assert isinstance(head, LinearHead)
    [tied] = head._tied
    if tied is not None and not is_unmodified(tied, Tokens):
        return by_position(head)
    made = of_weights([head.weight if tied is None else tied.weight], [head.bias], layout, copies)  # type: ignore[list-item]
    return made if head.scale == 1.0 else (lambda x: made(x * head.scale))
