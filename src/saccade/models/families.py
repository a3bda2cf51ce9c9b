"""The table of model families, and how a family says which numbers and which parts it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..core import Mechanism, masks, normalizers, positions, scores
from ..core.table import Table
from ..errors import SaccadeError
from ..layers.choices import Choice, constructor, takes
from .kinds import Encoder


@dataclass(frozen=True)
class Family:
    """`build(source_vocab, target_vocab, shape, parts)`; `shape` and `parts` are dataclasses with defaults for all.

    `body(vocab, shape, parts)`, where there is one, reads a text for labels.
    """

    build: Callable[[int, int, Any, Any], nn.Module]
    shape: type
    parts: type
    __doc__: str = ""
    body: Callable[[int, Any, Any], Encoder] | None = None
    kind: type[nn.Module] = Encoder  # of what `build` makes


table: Table[Family] = Table("models", "model")

# what the numbers of all shapes mean, for those who write recipes
MEANINGS = {
    "dim": "width of a token's vector",
    "hidden": "width inside: of an MLP's middle, or of a recurrent state",
    "depth": "layers",
    "heads": "heads of each attention; they must divide `dim`",
    "kv_heads": "heads of keys and values, where they are fewer",
    "dropout": "what is dropped between layers",
    "attention_dropout": "what is dropped of the weights",
    "embedding_dropout": "whole words that are dropped",
    "input_dropout": "what is dropped of the embedded words, the same at every place",
    "layer_dropout": "what is dropped between layers, the same at every place",
    "weight_dropout": "what is dropped of the weights from state to state",
    "size_penalty": "language models, in training: how much large outputs cost (α of Merity et al. 2017)",
    "change_penalty": "the same for outputs that change from place to place (β)",
    "max_len": "places that learned place embeddings know",
    "tied": "the output reads with the embedding's own vectors",
    "shared": "one embedding for source and target (an encoder–decoder with `vocabulary.joint`)",
}


@dataclass(frozen=True)
class MechanismPlan:
    """Makes a fresh mechanism for one layer: four choices."""

    score: Choice = field(default=Choice(scores.ScaledDot), metadata={"table": scores.table})
    normalize: Choice = field(default=Choice(normalizers.Softmax), metadata={"table": normalizers.table})
    mask: Choice = field(default=Choice(masks.full), metadata={"table": masks.table})
    position: Choice = field(default=Choice(positions.NoPosition), metadata={"table": positions.table})

    def __call__(self, *, dim_q: int, dim_k: int, heads: int, first: bool = True, cross: bool = False) -> Mechanism:
        """`first`: in the first block of a stack. `cross`: a memory is read, where places of queries and keys have nothing to do
        with each other, so that the position and the mask between them stay out."""
        facts = {"dim_q": dim_q, "dim_k": dim_k, "dim": dim_k, "heads": heads}
        position = self.position(**facts)
        if cross or (position.first_layer_only and not first):
            position = positions.NoPosition()
        return Mechanism(self.score(**facts), self.normalize(**facts), masks.full() if cross else self.mask(), position)


def part(slot: Table[Any], default: Any) -> Any:
    """A field of a `Parts` class: which table its names come from, and the default, a member of that table."""
    return field(default=default, metadata={"table": slot})


def check_prompts(source: Tensor, lengths: Tensor) -> None:
    """Raises when the prompts of a batch (B N) are not all equally long."""
    if len(lengths) and int(lengths.min()) != source.shape[1]:
        raise SaccadeError(
            f"prompts of {int(lengths.min())} to {source.shape[1]} tokens in one batch; give prompts of one length"
        )


__all__ = ["MEANINGS", "Choice", "Family", "MechanismPlan", "check_prompts", "constructor", "part", "table", "takes"]
