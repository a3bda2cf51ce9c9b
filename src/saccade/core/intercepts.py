"""Attention functions that a record intercepts in foreign models. B batch, N positions, E width.

They are `saccade.attend`, `F.scaled_dot_product_attention` and the internal functions of `torch.nn`. Each is replaced by a wrapper that
calls it and records q and k. A TorchFunctionMode would miss calls inside `torch.nn` and disable its fast path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import attention
from .backends.call import Call
from .masks import Mask
from .mechanism import Mechanism
from .record import Look, Seen
from .record_foreign import LOCK, ForeignLook, Watch, open_watches, record_call, recorded_calls
from .recorder import listeners

SIGNATURE = signature(F.multi_head_attention_forward)
CAUSAL: Callable[..., Tensor] = lambda b, h, i, j: j <= i


def sdpa_look(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> Look | None:
    """A call of `F.scaled_dot_product_attention`; three dimensions are one head, more than four a longer batch."""
    if query.is_nested:
        return None
    if attn_mask is not None and attn_mask.dim() > 2 and query.dim() != 4:
        attn_mask = as_heads(attn_mask.expand(*query.shape[:-2], *attn_mask.shape[-2:]))
    visible, cross = (CAUSAL, False) if is_causal else (None, None)
    return ForeignLook(
        as_heads(query), as_heads(key), [attn_mask], visible, more.get("scale"), cross=cross
    )


def as_heads(x: Tensor) -> Tensor:
    """… N D → B H N D"""
    return (
        x if x.dim() == 4 else x.flatten(0, -4) if x.dim() > 4 else x.reshape(-1, 1, *x.shape[-2:])
    )


def module_look(*args: Any, **kwargs: Any) -> Look:
    """A call of `F.multi_head_attention_forward`, all of nn.MultiheadAttention but its fast path; inputs are N B E, or N E."""
    given = SIGNATURE.bind(*args, **kwargs)
    given.apply_defaults()
    at = given.arguments
    cross, flat, heads = at["key"] is not at["query"], at["query"].dim() == 2, at["num_heads"]
    query, key = (x.unsqueeze(0) if flat else x.transpose(0, 1) for x in (at["query"], at["key"]))
    size = query.shape[-1]
    by = (
        (at["q_proj_weight"], at["k_proj_weight"])
        if at["use_separate_proj_weight"]
        else at["in_proj_weight"].split(size)
    )
    bias = (None, None) if at["in_proj_bias"] is None else at["in_proj_bias"].split(size)
    q, k = F.linear(query, by[0], bias[0]), F.linear(key, by[1], bias[1])
    if at["bias_k"] is not None:
        k = torch.cat((k, at["bias_k"].expand(len(k), 1, -1)), 1)
    if at["add_zero_attn"]:
        k = torch.cat((k, k.new_zeros(len(k), 1, size)), 1)
    q, k = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k))
    mask, padding, visible = at["attn_mask"], at["key_padding_mask"], None
    # torch ignores the mask in this case.
    if at["is_causal"] and padding is None and not at["need_weights"]:
        mask, visible = None, CAUSAL
    masks = [] if mask is None else [mask if mask.dim() == 2 else mask.unflatten(0, (-1, heads))]
    masks += [] if padding is None else [padding.reshape(-1, 1, 1, padding.shape[-1])]
    # True hides in torch.nn's masks. The keys that torch.nn appends stay visible.
    masks = [~mask if mask.dtype == torch.bool else mask for mask in masks]
    masks = [
        F.pad(mask, (0, k.shape[2] - mask.shape[-1]), value=mask.dtype == torch.bool)
        for mask in masks
    ]
    return ForeignLook(q, k, masks, visible, cross=cross)


def fast_look(
    x: Tensor, heads: int, weight: Tensor, bias: Tensor, mask: Tensor | None, kind: int | None
) -> Look:
    """Self-attention on the fast path of torch.nn. x: B N E or nested. A nonzero mask hides; a mask of `kind` 1 is B N."""
    seen = None if mask is None else ~mask.bool()
    if x.is_nested:
        lengths = torch.tensor([len(one) for one in x.unbind()], device=x.device)
        x = torch.nested.to_padded_tensor(x, 0.0)
        seen, kind = torch.arange(x.shape[1], device=x.device) < lengths[:, None], 1
    if seen is not None and kind == 1:
        seen = seen[:, None, None]
    both = F.linear(x, weight[: 2 * x.shape[-1]], bias[: 2 * x.shape[-1]])
    q, k = (one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in both.chunk(2, -1))
    return ForeignLook(q, k, [seen], cross=False)


def fast_module_look(*args: Any) -> Look:
    """A call of `torch._native_multi_head_attention` (self-attention only)."""
    return fast_look(args[0], args[4], args[5], args[6], mask=args[9], kind=args[12])


def fast_layer_look(*args: Any) -> Look:
    """A call of `torch._transformer_encoder_layer_fwd`: a whole encoder layer."""
    x, size, heads, weight, bias, _, _, _, norm_first, eps, norm_weight, norm_bias = args[:12]
    x = F.layer_norm(x, (size,), norm_weight, norm_bias, eps) if norm_first else x
    return fast_look(x, heads, weight, bias, *args[18:])


def make_listener(
    original: Callable[..., Any], look: Callable[..., Look | None]
) -> Callable[..., Any]:
    """Wraps a function to record its calls, except internal calls of saccade and torch.nn and calls already recorded inside."""

    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        before, caller = recorded_calls(), sys._getframe(1).f_globals.get("__name__", "")
        found = original(*args, **kwargs)
        if (
            recorded_calls() == before
            and caller != "torch.nn.functional"
            and not caller.startswith("saccade.core.")
        ):
            record_call(lambda: look(*args, **kwargs))
        return found

    return run


# Each function and its wrapper while a record is open.
LISTENERS = [
    (getattr(home, name), make_listener(getattr(home, name), look))
    for home, name, look in (
        (F, "scaled_dot_product_attention", sdpa_look),
        (F, "multi_head_attention_forward", module_look),
        (torch, "_native_multi_head_attention", fast_module_look),
        (torch, "_transformer_encoder_layer_fwd", fast_layer_look),
    )
]
LISTENER_OF = {id(plain): heard for plain, heard in LISTENERS}
ORIGINAL_OF = {id(heard): plain for plain, heard in LISTENERS}
# Namespaces of the recorded models, which may import the functions under other names.
model_namespaces: list[dict[str, Any]] = []


def replace(by: dict[int, Any]) -> None:
    """Swaps functions for wrappers or back, by name in all imported modules and by any name in the models' own."""
    imported = (getattr(module, "__dict__", None) for module in list(sys.modules.values()))
    names = [plain.__name__ for plain, _ in LISTENERS]
    spaces = [(space, names) for space in imported if type(space) is dict] + [
        (space, list(space)) for space in model_namespaces
    ]
    for space, keys in spaces:
        for key in keys:
            if id(space.get(key)) in by:
                space[key] = by[id(space[key])]


def record_attend(mechanism: Mechanism, call: Call, mask: Mask | None) -> None:
    """`saccade.attend` was called."""
    record_call(
        lambda: Look(mechanism, call.q.detach(), call.key.detach(), mask, call.positions, 0)
    )


@contextmanager
def watch(model: nn.Module, seen: Seen, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Records a foreign model. A compiled model runs uncompiled meanwhile, since calls inside a graph are invisible."""
    compiled = any(
        "_orig_mod" in one._modules or one._compiled_call_impl is not None for one in modules
    )
    mine, homes = Watch(model, seen), {type(one).__module__ for one in modules} & sys.modules.keys()
    with LOCK:
        open_watches.append(mine)
        model_namespaces.extend(
            [*map(vars, modules), *(vars(sys.modules[home]) for home in sorted(homes))]
        )
        replace(LISTENER_OF)
        attention.attend_listeners[:] = [record_attend]
    try:
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        with LOCK:
            open_watches.remove(mine)
            if not open_watches:
                replace(ORIGINAL_OF)
                model_namespaces.clear()
                attention.attend_listeners.clear()


listeners.append(watch)
