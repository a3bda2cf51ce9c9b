"""Records Hugging Face's attention functions: eager, flex, flash and registered ones.

Layers of transformers look up their attention function at each call (`AttentionInterface.get_interface`). While a record is open, they
get a wrapper that records q and k. The `sdpa` function is intercepted by core/intercepts.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from ..core.record import Seen
from ..core.record_foreign import LOCK, ForeignLook, record_call, recorded_calls
from ..core.recorder import listeners

open_records = 0


@contextmanager
def listen(model: nn.Module, seen: Seen, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Wraps the attention functions of transformers while any record is open."""
    interface: Any = getattr(
        sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None
    )
    # transformers is not loaded, or older than version 5.
    if not hasattr(interface, "get_interface"):
        yield
        return
    global open_records
    with LOCK:
        open_records += 1
        if open_records == 1:
            interface.get_interface = wrap_interface(interface.get_interface)
    try:
        yield
    finally:
        with LOCK:
            open_records -= 1
            if open_records == 0:
                interface.get_interface = interface.get_interface.__wrapped__


def wrap_interface(get_interface: Callable[..., Any]) -> Callable[..., Any]:
    """A lookup function that returns recording attention functions."""

    @wraps(get_interface)
    def get(*args: Any, **kwargs: Any) -> Any:
        function = get_interface(*args, **kwargs)

        @wraps(function)
        def run(
            module: nn.Module,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            mask: Any,
            *rest: Any,
            **options: Any,
        ) -> Any:
            before = recorded_calls()
            found = function(module, query, key, value, mask, *rest, **options)
            # A function inside, such as F.scaled_dot_product_attention, may have recorded it.
            if recorded_calls() == before:
                record_call(lambda: look_of(module, query, key, mask, found[1], **options))
            return found

        return function if torch.compiler.is_compiling() else run

    return get


def look_of(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, made: Any, **options: Any
) -> ForeignLook:
    """A call of an attention function. Weights `made` by an eager one are stored if they differ from the common formula."""
    # A BlockMask of flex attention has a `mask_mod`.
    added, visible = ([options.get("position_bias")], getattr(mask, "mask_mod", None))
    weights = (
        made
        if isinstance(made, Tensor) and made.shape == (*query.shape[:3], key.shape[2])
        else None
    )
    if isinstance(mask, Tensor):
        added.append(mask[:, None, None].bool() if mask.dim() == 2 else mask)
    # Flash attention hides later keys itself.
    if visible is None and weights is None and (mask is None or mask.dim() == 2):
        causal, window = options.get("is_causal"), options.get("sliding_window") or key.shape[2]
        causal = getattr(module, "is_causal", False) if causal is None else causal
        visible = kernel_mask(key.shape[2] - query.shape[2], causal, window)
    look = ForeignLook(
        query,
        key,
        added,
        visible,
        options.get("scaling"),
        options.get("softcap"),
        options.get("s_aux"),
    )
    if weights is not None and not (options.get("dropout") and module.training):
        ends = [0, query.shape[2] - 1]
        near = 1e-4 if weights.dtype in (torch.float32, torch.float64) else 1e-2
        same = torch.allclose(
            look.weights(rows=ends).to(weights.dtype),
            weights[:, :, ends].nan_to_num(),
            rtol=0.0,
            atol=near,
        )
        look.kept = None if same else weights.detach()
    return look


def kernel_mask(before: int, causal: bool, window: int) -> Callable[..., Tensor]:
    """The visibility rule of a causal or windowed kernel. Query 0 is at key `before`."""
    after = 0 if causal else 1 << 40
    return lambda b, h, i, j: (j <= i + before + after) & (j > i + before - window)


listeners.append(listen)
