"""Builds the parts of a Transformer from its settings: inputs, stacks of blocks, heads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from torch import nn

from ..core import Mechanism, masks, normalizers, positions, scores, sites
from ..errors import SaccadeError
from ..layers import (
    embeddings,
    feedforward,
    image_inputs,
    mixers,
    norms,
    pooling,
    residuals,
    stack,
    token_inputs,
)
from ..layers.block import Block
from ..layers.block import table as block_table
from ..layers.multihead_attention import MultiHeadAttention
from ..layers.output_heads import LinearHead
from ..layers.output_heads import table as head_table
from ..settings import Choice, Later, number, parameters, part, setting
from .families import Sizes, named_sizes


@dataclass(frozen=True)
class Config:
    """The settings of a Transformer; the default sizes are those of the base model of Vaswani et al. 2017.

    That model itself differs in two, norms after each part and one embedding: the family `transformer-base`.
    """

    sizes: ClassVar[Sizes] = named_sizes(  # base and big are the paper's
        dim=(64, 128, 256, 512, 1024),
        hidden=(256, 512, 1024, 2048, 4096),
        depth=(2, 2, 4, 6, 6),
        heads=(2, 4, 4, 8, 16),
        dropout=(0.1, 0.2, 0.3, 0.1, 0.3),
    )

    dim: int = number(512, 1, 65_536, "width of a token's vector")
    hidden: int = number(2048, 1, 65_536, "width inside the feed-forward part")
    depth: int = number(6, 1, 1000, "blocks")
    heads: int = number(
        8, 1, 65_536, "heads of each mixer; they must divide `dim` unless `head_width` is given"
    )
    kv_heads: int | None = number(None, 1, 65_536, "heads of keys and values, where they are fewer")
    head_width: int | None = number(None, 1, 65_536, "width of a head; by default `dim` / `heads`")
    cross_heads: int | None = number(
        None, 1, 65_536, "heads of the attention that reads a memory, where they differ"
    )
    cross_width: int | None = number(
        None, 1, 65_536, "width of these heads; by default that of the others"
    )
    dropout: float = number(0.1, 0.0, 0.99, "dropout between layers")
    attention_dropout: float = number(0.0, 0.0, 0.99, "dropout of attention weights")
    tied: bool = setting(True, "tie the output projection to the embedding")
    shared: bool = setting(False, "one embedding for source and target (needs `vocabulary.joint`)")
    score: Choice = part(scores.table, scores.ScaledDot)
    normalize: Choice = part(normalizers.table, normalizers.Softmax)
    mask: Choice = part(
        masks.table, masks.Full, "of self-attention, added to the causal and padding masks"
    )
    position: Choice = part(
        positions.table, positions.NoPosition, "positions inside self-attention"
    )
    position_embedding: Choice = part(
        token_inputs.table,
        token_inputs.Sinusoidal,
        "positions at the input; by default `sinusoidal`, or `none` where `position` knows the order",
    )
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    mixer: Choice = part(
        mixers.table, MultiHeadAttention, "how positions exchange information in each block"
    )
    feedforward: Choice = part(feedforward.table, feedforward.MLP)
    residual: Choice = part(residuals.table, residuals.PreNorm)
    norm: Choice = part(norms.table, norms.LayerNorm)
    block: Choice = part(block_table, Block, "what a block consists of")
    stack: Choice = part(stack.table, stack.Stack, "how blocks follow one another")
    head: Choice = part(head_table, LinearHead)
    pool: Choice = part(
        pooling.pools, pooling.Attention, "how a text's vectors become one, for a label"
    )
    grid_embedding: Choice = part(
        image_inputs.table,
        image_inputs.SinusoidalGrid,
        "rows and columns of an image that is attended to",
    )

    @staticmethod
    def complete(values: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults that depend on other settings: a mechanism that knows the tokens' order needs no sinusoids at the input."""
        chosen = values.get("position", "none")
        name = chosen.get("name") if isinstance(chosen, dict) else chosen
        # to the order
        blind = ("none", *(entry.name for entry in positions.table if entry.make.needs_relation))
        known = {} if name in blind else {"position_embedding": "none"}
        return {**known, **values}


def make_input(vocab: int, c: Config) -> token_inputs.PositionedInput:
    tokens = c.embedding(vocab=vocab, dim=c.dim)
    return token_inputs.PositionedInput(tokens, c.position_embedding(dim=c.dim), c.dim, c.dropout)


def make_bridge(before: int, c: Config) -> image_inputs.Bridge:
    """From an image encoder's vectors, `before` wide, to a memory; a learned grid has 8 × 8 vectors, between which others lie."""
    grid = c.grid_embedding(dim=c.dim, rows=8, columns=8)
    return image_inputs.Bridge(before, c.dim, c.norm(dim=c.dim), grid, c.dropout)


def check_mixer(c: Config, causal: bool) -> None:
    """Checks that heads divide the width and that the mixer supports causal models."""
    if causal and not c.mixer.make.causal:  # type: ignore[attr-defined]
        wrong = f"model.mixer={mixers.table.name_of(c.mixer.make)} sees a text as a whole, and this model hides the future"
        raise SaccadeError(
            f"{wrong}; choose another mixer such as attention, or model.family=transformer-encoder",
            code="mixer-not-supported",
        )
    if c.head_width is not None and "head_width" not in parameters(c.mixer.make):
        raise SaccadeError(
            f"model.head_width has no effect on model.mixer={mixers.table.name_of(c.mixer.make)}; leave it out",
            code="setting-without-effect",
        )
    if c.dim % c.heads and c.head_width is None:
        wrong = f"model.dim={c.dim} is not a multiple of model.heads={c.heads}"
        raise SaccadeError(
            f"{wrong}; choose heads that divide it, or set model.head_width",
            code="heads-do-not-divide",
        )


def facts_of(heads: int, width: int) -> dict[str, int]:
    """Facts that parts of a mechanism may take."""
    return {"dim": width, "dim_q": width, "dim_k": width, "heads": heads}


def late_facts(c: Config, mechanism: Callable[[], Mechanism]) -> dict[str, Later]:
    """Optional facts of mixers."""
    return {
        "kv_heads": Later(lambda: c.kv_heads),
        "dropout": Later(lambda: c.attention_dropout),
        "mechanism": Later(mechanism),
    }


def each_mask(c: Config) -> Callable[[int, int], masks.Mask]:
    """Block n's mask by number of heads. A mask that needs neither is shared, so a pass prepares it once."""
    made: dict[tuple[int, int] | None, masks.Mask] = {}

    def mask(n: int, heads: int) -> masks.Mask:
        differs = not {"heads", "n"}.isdisjoint(parameters(c.mask.make))
        return made.setdefault((n, heads) if differs else None, c.mask(n=n, heads=heads))

    return mask


def make_stack(c: Config, role: str = "alone", causal: bool = False) -> stack.Stack:
    """`depth` blocks by the stack's plan; `role` is "encoder" or "decoder" of a pair, whose blocks attend to a memory, or "alone"."""
    check_mixer(c, causal)
    visible = each_mask(c)
    shared: dict[int, positions.Position] = {}  # positions that all blocks share, by their heads

    def self_attention(n: int, heads: int, score: scores.Score | None = None) -> Mechanism:
        """Block n's mechanism, with the score of the settings unless another is given."""
        facts = facts_of(heads, c.head_width or c.dim // heads)
        position = shared.get(heads) or c.position(causal=causal, **facts)
        if position.shared:
            shared[heads] = position
        if position.first_layer_only and n:
            position = positions.NoPosition()
        return Mechanism(
            c.score(**facts) if score is None else score,
            c.normalize(**facts),
            visible(n, heads),
            position,
        )

    def attention(
        make: Choice, n: int, mechanism: Callable[[], Mechanism], heads: int, head_width: int | None
    ) -> Any:
        own = partial(self_attention, n, heads)
        return make(
            dim=c.dim,
            heads=heads,
            head_width=head_width,
            n=n,
            make_mechanism=own,
            **late_facts(c, mechanism),
        )

    def mixer(n: int, times: int = 1) -> mixers.Mixer:
        heads = times * c.heads
        made: mixers.Mixer = attention(
            c.mixer, n, lambda: self_attention(n, heads), heads, c.head_width
        )
        return made

    def reader(n: int) -> MultiHeadAttention | None:
        """Cross-attention without position and mask: positions of queries and memory are unrelated."""
        if role != "decoder":
            return None
        make = Choice(
            MultiHeadAttention,
            {name: value for name, value in c.mixer.options.items() if name == "bias"},
        )
        heads, width = c.cross_heads or c.heads, c.cross_width or c.head_width
        facts = facts_of(heads, width or c.dim // c.heads)
        plain = lambda: Mechanism(c.score(**facts), c.normalize(**facts))
        made: MultiHeadAttention = attention(make, n, plain, heads, facts["dim"])
        return made

    def block(n: int) -> Block:
        at = {"n": n, "depth": c.depth, "role": role}
        made: Block = c.block(
            mixer=Later(lambda: mixer(n)),
            make_mixer=partial(mixer, n),
            make_cross=partial(reader, n),
            feedforward=Later(
                lambda: c.feedforward(dim=c.dim, hidden=c.hidden, dropout=c.dropout, **at)
            ),
            cross=Later(lambda: reader(n)),
            residual=partial(c.residual, norm=norm, dropout=c.dropout, dim=c.dim, **at),
            norm=norm,
            dim=c.dim,
            hidden=Later(lambda: c.hidden),
            heads=c.heads,
            dropout=c.dropout,
            **at,
        )
        return made

    def norm() -> nn.Module:
        made: nn.Module = c.norm(dim=c.dim)
        return made

    made: stack.Stack = c.stack(block=block, depth=c.depth, norm=norm, dim=c.dim, role=role)
    return in_order(owning(made, list(shared.values())), causal)


def owning(made: stack.Stack, shared: list[positions.Position]) -> stack.Stack:
    """Moves shared positions to the stack, so each parameter has one name and is gathered with the stack."""
    if not shared:
        return made
    for module in list(made.modules()):
        for name, inner in list(module.named_children()):
            if inner in shared:
                delattr(module, name)
                vars(module)[name] = inner  # accessible, but not a submodule
    made.positions = nn.ModuleList(shared)
    return made


def in_order(made: stack.Stack, causal: bool) -> stack.Stack:
    """Sets `in_order` of the stack's attention layers."""
    for site in sites(made).values():
        site.in_order = causal
    return made


def fitting(c: Config, use: str) -> stack.Stack:
    """The only stack of a model, checked for its use as "encoder" or "causal"."""
    stack.check_use(c.stack.make, use)
    return make_stack(c, causal=use == "causal")


def reading_images(c: Config, causal: bool = False) -> stack.Stack:
    """The stack of a model that attends to an image."""
    stack.check_use(c.stack.make, "images")
    return make_stack(c, "decoder", causal)


def extra_tokens(made: stack.Stack) -> int:
    """The number of global tokens that a stack's masks need in front of a text."""
    return max((site.mechanism.mask.extra for site in sites(made).values()), default=0)


P = TypeVar("P", token_inputs.PositionedInput, stack.Stack)


def without_relation(made: P) -> P:
    """Checks that an input or a stack needs no parse trees and no global tokens, and returns it."""
    if isinstance(made, stack.Stack) and extra_tokens(made):
        wrong = "model.mask.extra is for an encoder alone, whose global tokens see the whole text"
        raise SaccadeError(
            f"{wrong}; leave it out, or choose model.family=transformer-encoder",
            code="setting-not-supported",
        )
    if made.needs_relation:
        wanted = (
            "model.position=syntax"
            if isinstance(made, stack.Stack)
            else "model.position_embedding=depth"
        )
        raise SaccadeError(
            f"{wanted} needs the parse trees of tagging data; choose another position",
            code="relation-missing",
        )
    return made


def make_head(vocab: int, tokens: embeddings.Embedding, c: Config) -> LinearHead:
    made: LinearHead = c.head(dim=c.dim, vocab=vocab, tied=tokens if c.tied else None, bias=False)
    return made
