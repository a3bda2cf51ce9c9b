"""Transformer-XL (Dai et al. 2019): a text read in segments, each layer attending to what it read in earlier ones. B batch, N tokens, M memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core import Positions, State, masks
from ..errors import SaccadeError
from ..layers.block import Block, BlockCache
from ..layers.convolution import LastInputs
from ..layers.multihead_attention import MultiHeadAttention
from ..layers.stack import Stack
from ..layers.token_inputs import NoPositionEmbedding
from ..settings import Choice, number
from .assembly import Config, fitting, make_head, make_input, without_relation
from .families import Builds, add_family, check_prompts
from .protocols import CarryingLM

MAX_MEMORY = 16_384


@dataclass(frozen=True)
class XLConfig(Config):
    """The settings of a Transformer-XL: those of a Transformer, and how far back it remembers. The paper has `residual: post-norm`."""

    memory: int = number(
        128,
        0,
        MAX_MEMORY,
        "positions before a segment that each layer still attends to; 0 for none",
    )

    @staticmethod
    def complete(values: Mapping[str, Any]) -> dict[str, Any]:
        return {"position": "xl", **values}


class FixedSettings:
    """Settings with values that the model fixes. A recipe that sets them is refused."""

    def __init__(self, settings: Any, **fixed: Any) -> None:
        self._settings, self._fixed = settings, fixed

    def __getattr__(self, name: str) -> Any:
        return self._fixed[name] if name in self._fixed else getattr(self._settings, name)


class SegmentAttention(MultiHeadAttention):
    """Self-attention with keys and values of earlier inputs. They are projected again, without gradients of the inputs."""

    def start(self, x: Tensor) -> LastInputs:  # type: ignore[override]
        return LastInputs(x.new_zeros(len(x), 0, self.k.in_features))

    def step(  # type: ignore[override]
        self, x: Tensor, cache: LastInputs, mask: masks.Mask | None, positions: Positions
    ) -> tuple[Tensor, LastInputs]:
        every = torch.cat([cache.inputs.to(x.dtype), x], 1)
        return self.read(x, self.prepare(every, positions), mask, positions), LastInputs(every)


class TransformerXL(CarryingLM):
    """A language model that carries the last `memory` inputs of each layer, without gradient, and whether each is there."""

    attends = False

    def __init__(self, vocab: int, config: Any) -> None:
        super().__init__()
        fixed = {
            "mixer": Choice(SegmentAttention, {"bias": False}),
            # Blocks are counted from the first token of a text, so they would shift with every segment.
            "mask": Choice(masks.Full),
            "position_embedding": Choice(NoPositionEmbedding),
            "block": Choice(Block),
            "stack": Choice(Stack),
        }
        c: Any = FixedSettings(config, **fixed)
        if getattr(c.position.make, "absolute", False):
            wrong = "model.position counts from a text's first token, and a segment does not know where that was"
            raise SaccadeError(
                f"{wrong}; choose one of distances, such as xl or rotary",
                code="position-not-supported",
            )
        self.dim, self.heads, self.memory = c.dim, c.heads, c.memory
        self.embedding = make_input(vocab, c)
        self.decoder = without_relation(fitting(c, "causal"))
        self.head = make_head(vocab, self.embedding.tokens, c)

    def forward(
        self, tokens: Tensor, mask: masks.Mask | None = None, positions: Tensor | None = None
    ) -> Tensor:
        if positions is not None or (mask is not None and type(mask) is not masks.Full):
            got = f"got {'positions' if positions is not None else repr(mask)}"
            raise SaccadeError(
                f"a Transformer-XL reads one text after another, {got}; give one document per row",
                code="mask-not-supported",
            )
        return self.head(self.features(tokens))

    def features(self, tokens: Tensor) -> Tensor:
        """The head's input without a memory, B N dim."""
        batch, size = tokens.shape[:2]
        at = Positions.line(size, size, tokens.device)
        causal = masks.causal().prepare(batch, self.heads, size, size, tokens.device)
        return self.decoder(self.embedding(tokens, at.i), causal, positions=at)

    def read(
        self, tokens: Tensor, carried: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Reads tokens after the memory. Returns vectors, B N dim, and the new memory of the same size."""
        (batch, size), (there, *inputs) = tokens.shape[:2], (part.detach() for part in carried)
        every = torch.cat([there, there.new_ones(batch, size, 1)], 1)
        keys = every.shape[1]
        at = Positions.line(size, keys, tokens.device)
        seen = masks.causal() & masks.matrix((every > 0).view(batch, 1, 1, keys))
        ready = seen.prepare(batch, self.heads, size, keys, tokens.device)
        caches = [BlockCache(LastInputs(one), None) for one in inputs]
        x, after = self.decoder.step(self.embedding(tokens, at.i), caches, ready, None, at)
        read = [cache.mixer.inputs.detach() for cache in after]  # type: ignore[attr-defined]
        return x, tuple(part[:, keys - self.memory :] for part in (every, *read))

    def forward_from(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        features, carried = self.read(tokens, state.carried[0])
        return self.head(features), state.next(
            carried=[carried], length=state.length + tokens.shape[1]
        )

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """After reading prompts `source` (B N), all equally long; N may be 0."""
        check_prompts(source, lengths)
        widths = [1] + [self.dim] * len(self.decoder)
        like = next(self.parameters())
        carried = tuple(like.new_zeros(len(source), self.memory, width) for width in widths)
        if source.shape[1]:
            carried = self.read(source, carried)[1]
        return State(carried=[carried], length=source.shape[1])

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        logits, after = self.forward_from(tokens.unsqueeze(1), state)
        return logits.squeeze(1), after


kinds: Builds = {CarryingLM: TransformerXL}
add_family(
    "transformer-xl",
    "Dai et al. 2019",
    XLConfig,
    kinds,
    "Decoder that reads a text in segments and remembers earlier ones.",
)
