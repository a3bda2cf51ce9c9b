"""Which models the fast decoder supports: all their parts must be known and unmodified."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..core import auxiliary_losses
from ..core.masks import Full
from ..core.normalizers import Softmax
from ..core.positions import Alibi, NoPosition, Rotary, T5Buckets
from ..core.record import Site
from ..core.scores import Dot, ScaledDot
from ..layers.block import Block
from ..layers.fast.int8 import Int8Linear
from ..layers.multihead_attention import MultiHeadAttention
from ..layers.residuals import DeepNorm, PostNorm, PreNorm, ReZero
from ..layers.stack import SharedStack, Stack, TransparentStack
from ..models.transformer import LanguageModel, ReadingDecoder
from ..settings import overrides

SCORES, POSITIONS = (Dot, ScaledDot), (NoPosition, Rotary, Alibi, T5Buckets)
RESIDUALS, STACKS = (PreNorm, PostNorm, DeepNorm, ReZero), (Stack, SharedStack, TransparentStack)
LINEAR = (nn.Linear, Int8Linear)


def is_unmodified(part: Any, *kinds: type) -> bool:
    """Whether a part is exactly one of these classes, without methods replaced on the instance and without hooks."""
    if type(part) not in kinds or any(map(callable, vars(part).values())):
        return False
    return not (isinstance(part, nn.Module) and (part._forward_hooks or part._forward_pre_hooks))


def why_plain(model: nn.Module) -> str | None:
    """The reason why a model decodes by its own `step`, or None if the fast decoder supports it.

    >>> from saccade.models.builder import Builder
    >>> from saccade.models import CausalLM
    >>> from saccade.decoding import why_plain
    >>> sizes = {"dim": 8, "hidden": 16, "depth": 1, "heads": 2}
    >>> model = Builder({"family": "transformer-decoder", **sizes}).make(CausalLM, 11)
    >>> why_plain(model.eval()) is None
    True
    """
    own = (ReadingDecoder, LanguageModel)
    base = next((kind for kind in own if isinstance(model, kind)), None)
    if base is None:
        return f"{type(model).__name__} is not a Transformer with a decoder"
    methods = ("start", "step") if base is ReadingDecoder else ("start", "step", "read")
    changed = next((name for name in methods if overrides(model, name, base)), None)
    if changed is not None:
        return f"{type(model).__name__} has a `{changed}` of its own"
    decoder: Any = model.decoder
    if not is_unmodified(decoder, *STACKS):
        return f"the stack {type(decoder).__name__} is not a plain one"
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return "autocast is on"
    if any(part.training for part in model.modules()):
        return "the model is in training mode"
    if auxiliary_losses.weights_requested() or any(
        part.tape is not None for part in model.modules() if isinstance(part, Site)
    ):
        return "a record of the weights is open"
    reasons = (reason for block in decoder for reason in reasons_of(block))
    return next(reasons, None) or differing_caches(list(decoder))


def reasons_of(block: Block) -> Iterator[str]:
    """Unsupported parts of a block."""
    if not is_unmodified(block, Block):
        yield f"the block {type(block).__name__} is not the standard one"
        return
    for around in (block.around_mixer, block.around_cross, block.around_feedforward):
        if around is not None and not is_unmodified(around, *RESIDUALS):
            yield f"the residual {type(around).__name__} is not one of those known"
    for attention in (block.mixer, block.cross):
        if attention is not None:
            yield from reasons_of_attention(attention, attention is block.cross)


def reasons_of_attention(attention: Any, cross: bool) -> Iterator[str]:
    """Unsupported parts of an attention layer."""
    if not is_unmodified(attention, MultiHeadAttention):
        yield f"the mixer {type(attention).__name__} is not attention as it is"
        return
    parts = attention.mechanism
    if not all(
        is_unmodified(layer, *LINEAR)
        for layer in (attention.q, attention.k, attention.v, attention.out)
    ):
        yield "a projection of the attention is not a plain linear layer"
    elif len({type(layer) for layer in (attention.q, attention.k, attention.v)}) > 1:
        yield "the projections of the attention are of different kinds"
    if not is_unmodified(parts.score, *SCORES):
        yield f"the score {type(parts.score).__name__} is not a dot product"
    if not is_unmodified(parts.normalize, Softmax):
        yield f"the normalizer {type(parts.normalize).__name__} is not softmax"
    if type(parts.mask) is not Full:
        yield f"the mask {type(parts.mask).__name__} hides more than the future"
    if not is_unmodified(parts.position, *((NoPosition,) if cross else POSITIONS)):
        yield f"the position {type(parts.position).__name__} needs more than one row of biases per step"


def differing_caches(blocks: list[Block]) -> str | None:
    """The reason if caches differ between blocks: all caches are one tensor."""
    sizes = {
        (block.mixer.kv_heads, block.mixer.width)
        for block in blocks
        if isinstance(block.mixer, MultiHeadAttention)
    }
    return "its blocks differ in heads" if len(sizes) > 1 else None
