"""Operations (FLOPs), counted as they run: PyTorch's counter, with formulas for the kernels that it counts as zero or in another way.

A multiplication and its addition are 2 operations. Papers count in other ways (docs/operations.md has the numbers):

- Vaswani et al. 2017, 3.3e18 for the base model: 12 hours of 8 GPUs at their 9.5e12 operations per second. What is computed is less.
- Narang et al. 2021, 11.1e12 for the vanilla T5: the forward pass of 128 × (512 + 114) tokens, a multiplication and its addition being
  1 operation, and the lookup of a token's vector the product of the table with a one-hot vector: half of `counter(lookups=True)`.
"""

import inspect
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch

# Imported where it is used, since it loads Triton.
if TYPE_CHECKING:
    from torch.utils.flop_counter import FlopCounterMode

aten = torch.ops.aten
Shape = Sequence[int]


def counter(lookups: bool = False) -> "FlopCounterMode":
    """Counts while it is open; the same numbers on every device and with every kernel, on the `meta` device without any memory.

    With `lookups`, a token's vector counts as the product of a one-hot vector and the table, as it is computed on TPUs."""
    from torch.utils import flop_counter

    # PyTorch wraps this method for its compiler and thereby loads the compiler, which takes seconds.
    mode = flop_counter._FlopCounterMode
    mode.__torch_dispatch__ = inspect.unwrap(mode.__torch_dispatch__)  # type: ignore[method-assign]
    return flop_counter.FlopCounterMode(
        display=False, custom_mapping=FORMULAS | LOOKUPS if lookups else FORMULAS
    )


def attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """q kᵀ and the weighted sum. Masked scores count, as in plain matrix products."""
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def attention_backward(_: Any, query: Shape, key: Shape, value: Shape, *__: Any, **___: Any) -> int:
    """Twice the forward pass. Recomputation in fused kernels is not counted."""
    return 2 * attention(query, key, value)


def convolution_backward(grad: Shape, x: Shape, weight: Shape, *rest: Any, **_: Any) -> int:
    """One forward pass for each gradient (input, weights). PyTorch's formula ignores groups."""
    transposed, wanted = rest[4], rest[7]
    return 2 * x[0] * prod((x if transposed else grad)[2:]) * prod(weight) * int(sum(wanted[:2]))


def matrix_and_vector(matrix: Shape, *_: Any, **__: Any) -> int:
    """One more product for the vector's gradient. The matrix gradient is an outer product, which is not counted."""
    return 2 * prod(matrix)


def one_layer(x: Shape, weight_in: Shape, weight_hidden: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(x[:-1]) * (prod(weight_in) + prod(weight_hidden))


def every_layer(x: Shape, weights: Sequence[Shape], *_: Any, **__: Any) -> int:
    """All layers and directions of an RNN: one product per matrix and token."""
    return 2 * prod(x[:-1]) * sum(prod(weight) for weight in weights if len(weight) == 2)


def one_hot(table: Shape, tokens: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(tokens) * prod(table)


def one_hot_bag(table: Shape, tokens: Shape, *_: Any, **__: Any) -> int:
    return one_hot(table, tokens)


LOOKUPS = {
    aten.embedding: one_hot,
    aten._embedding_bag: one_hot_bag,
    aten._embedding_bag_forward_only: one_hot_bag,
}
FORMULAS = {
    aten.mv: matrix_and_vector,
    aten.convolution_backward: convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    aten._scaled_dot_product_flash_attention_backward: attention_backward,
    aten._scaled_dot_product_efficient_attention_backward: attention_backward,
    aten._scaled_dot_product_cudnn_attention_backward: attention_backward,
    aten.mkldnn_rnn_layer: one_layer,
    aten.mkldnn_rnn_layer_backward: lambda *shapes, **more: 2 * one_layer(*shapes, **more),
    aten._cudnn_rnn: every_layer,
    aten._cudnn_rnn_backward: lambda *shapes, **more: 2 * every_layer(*shapes, **more),
}
