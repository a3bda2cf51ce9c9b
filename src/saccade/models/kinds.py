"""Kinds of models: what a task may ask of one, and a family can build. B batch, N source tokens, T target tokens, V vocabulary."""

from typing import Any

from torch import Tensor, nn

from ..core import State
from ..core.masks import Mask


class Encoder(nn.Module):
    """Reads one sequence: one vector per token, B N dim, in which padding is invisible.

    The input is what its embedding takes: token ids (B N), ids with bytes (B N 1+C). Its parameters are named `embedding.…` and
    `encoder.…` or `decoder.…`, whatever is built on it.
    """

    title = "an encoder"
    dim: int  # of what comes out
    sees_ahead = True  # a token's vector depends on what follows it
    needs_relation = False  # its positions ask for what the tokens are to each other, such as a parse tree
    embedding: Any

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        raise NotImplementedError


class AttendingEncoder(Encoder):
    """An encoder that takes a mask, positions and a pairwise relation of its tokens."""

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        relation: Tensor | None = None,
        depth: Tensor | None = None,
    ) -> Tensor:
        """`mask` is added to the padding's; `positions` (N or B N) are 0, 1, 2 … by default; `relation` (B N N): of each pair of tokens;
        `depth` (B N): of each token in its tree."""
        raise NotImplementedError


class Decodable(nn.Module):
    """Generates one token after another. `step` never changes the state it was given."""

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """The state after reading sources (or prompts), B N."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One token per row (B) → logits (B V) and the state after it."""
        raise NotImplementedError


class Seq2Seq(Decodable):
    """Reads one sequence and generates another."""

    title = "an encoder–decoder"
    shares_embedding = False  # one embedding for source and target

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits for the token after each of `target`: B T V."""
        raise NotImplementedError


class CausalLM(Decodable):
    """Continues a sequence."""

    title = "a causal language model"
    attends = True  # takes a mask and positions

    def forward(self, tokens: Tensor, mask: Mask | None = None, positions: Tensor | None = None) -> Tensor:
        """Logits for the token after each: B N V. `mask` (packed documents, say) and `positions` are for models that attend."""
        raise NotImplementedError


class CarryingLM(CausalLM):
    """A language model with a state of fixed size, which reads a long text in pieces."""

    title = "a recurrent language model"

    def forward_from(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (B N V) for tokens that follow those the state has read, and the state after them. Gradients stop at the given state."""
        raise NotImplementedError
