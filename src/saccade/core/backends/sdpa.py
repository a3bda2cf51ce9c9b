"""PyTorch's scaled_dot_product_attention: the fused kernels of CPU and GPU for dot products with a softmax."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..masks import Causal, Full
from .call import Backend, Call, not_dot_softmax, table

KERNELS_WITHOUT_CUDNN = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
# Tile size of cuDNN's kernels.
CUDNN_TILE_KEYS = 128


def kernels(
    device: str, needs_grad: bool, queries: int, keys: int
) -> AbstractContextManager[object]:
    """Selects PyTorch's kernels: no cuDNN for gradients of lengths that do not fill its tiles.

    Gradients of queries and keys can be NaN there (github.com/pytorch/pytorch/issues/196678; it broke a Vision Transformer with 64
    patches).
    """
    if (
        device != "cuda"
        or not needs_grad
        or not (queries % CUDNN_TILE_KEYS or keys % CUDNN_TILE_KEYS)
    ):
        return nullcontext()
    return sdpa_kernel(KERNELS_WITHOUT_CUDNN)


class Sdpa(Backend):
    """Dot-product scores, softmax, any mask, positions that encode or add a bias."""

    def refuses(self, call: Call) -> str | None:
        return not_dot_softmax(call)

    def rank(self, call: Call) -> int:
        return 20

    def run(self, call: Call) -> Tensor:
        query, key, v, kind = call.query, call.key, call.value, type(call.mask.mask)
        position = call.position
        if (
            query.dtype is torch.float16
            and call.positions is not None
            and position.biases
            and not position.bias_of_pairs
        ):
            # a bias that is scored against q may be larger than 65,504
            with torch.autocast(query.device.type, enabled=False):
                return self.run(
                    replace(call, query=query.float(), key=key.float(), value=v.float())
                ).to(v.dtype)
        (_, heads, queries, width), (_, kv_heads, keys, _) = query.shape, key.shape
        bias, mask, empty = None if call.positions is None else call.bias(), None, None
        # is_causal counts queries from the first key: right only when there are as many queries as keys (never with a cache).
        causal = True if bias is None and kind is Causal and queries == keys > 1 else False  # noqa: SIM210  # sizes may be symbols
        if not (causal or kind is Full or (kind is Causal and queries == 1)):
            mask, empty = call.mask.added(query.dtype)
        added = bias if mask is None else mask if bias is None else bias + mask
        scale = call.score.scale(width)
        grouped = True if heads != kv_heads or heads != v.shape[1] else False  # noqa: SIM210  # while tracing, sizes are tensors
        grad = torch.is_grad_enabled() and (
            query.requires_grad or key.requires_grad or v.requires_grad
        )
        with kernels(query.device.type, grad, queries, keys):
            output = F.scaled_dot_product_attention(
                query, key, v, added, call.dropout, causal, scale=scale, enable_gqa=grouped
            )
        # Rows that may attend nowhere ran as if they were full.
        return output if empty is None or kind is Causal else torch.where(empty, 0.0, output)


backend: Backend = table.add("sdpa")(Sdpa())
