"""A Transformer decoder as a sequence of tensor operations without modules.

R rows of the batch (W beams of each of S sentences), H' heads of keys and values, G heads of queries on each, D width of a head, T positions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.kernels import why_unavailable
from ..core.positions import Positions, Rotary, check_within
from ..layers.block import Block
from ..layers.embeddings import Tokens
from ..layers.multihead_attention import MultiHeadAttention
from ..layers.residuals import Residual
from ..layers.token_inputs import Add, Learned, NoPositionEmbedding, PositionedInput, Sinusoidal
from .as_functions import Join, feedforward_of, fused_join_of, head_of, norm_of, residual_of
from .fast_support import is_unmodified
from .weight_layouts import PackedLinears, WeightCopies, layout_for, product

Own = Callable[[int, Tensor, int, float], Tensor]
MAX_HEAD_WIDTH = 256
# Source tokens. Shorter products take less time than the check for changed weights.
MIN_PACKED_TOKENS = 96
KERNEL_TYPES = (torch.float32, torch.bfloat16, torch.float16)


class StepPosition(Protocol):
    """The position of one step: where its keys go and what it may attend to."""

    beams: int  # rows with the same keys
    # block n's projected R (H + 2 H') D, heads of queries on each key and the scale → `keep` and attention to all keys so far in one kernel,
    # R (H D); None where the kernels of a step are not used
    read_own: Own | None

    def pick(self, table: Tensor) -> Tensor:
        """The row of this position in a table, 1 × …"""

    def keep(self, n: int, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Stores block n's new key and value (R 2 H' D). Returns all so far, S H' T D each, S = R / beams."""

    def bias(self, table: Tensor | None) -> Tensor | None:
        """The bias of the scores from a table H × distances that ends at distance 0.

        H T or 1 T; R H' G T if rows are at different positions; S H W T or S 1 W T with beams.
        """


class Memory:
    """Keys and values of each block's memory, S H' M D, and the padding mask. W rows share each. Keys may be transposed: S H' D M."""

    def __init__(
        self,
        pairs: list[tuple[Tensor, Tensor]],
        mask: Tensor | None,
        width: int,
        turned: bool = False,
    ) -> None:
        self.pairs, self.mask, self.width, self.turned = pairs, mask, width, turned
        self.kernels = False

    def __len__(self) -> int:
        """The number of sentences."""
        return len(self.pairs[0][0])

    def reorder(self, sentences: Tensor) -> None:
        self.pairs = [
            (key.index_select(0, sentences), value.index_select(0, sentences))
            for key, value in self.pairs
        ]
        self.mask = None if self.mask is None else self.mask.index_select(0, sentences)


class Attention:
    """Self-attention with one query per row, or cross-attention."""

    def __init__(
        self, layer: MultiHeadAttention, layout: str, cross: bool, copies: WeightCopies
    ) -> None:
        self.heads, self.groups = layer.kv_heads, layer.heads // layer.kv_heads
        self.width = layer.width
        self.scale = layer.mechanism.score.scale(layer.width)
        self.project = product([layer.q] if cross else [layer.q, layer.k, layer.v], layout, copies)
        self.out = product([layer.out], layout, copies)
        self.position = layer.mechanism.position
        self.biases: Tensor | None = None  # H × distances, the last one 0
        self.angles: tuple[Tensor, Tensor] | None = None

    def prepare(self, size: int, like: Tensor) -> None:
        """Precomputes position-dependent data for up to `size` tokens."""
        if isinstance(self.position, Rotary):
            if self.angles is None or len(self.angles[0]) < size:
                self.angles = self.position.angles(
                    torch.arange(size, device=like.device), self.width // 2, like.dtype
                )
        elif self.position.biases:
            self.biases = self.biases_for(size, like)

    @property
    def reads_in_one(self) -> bool:
        """Whether one kernel can append to the cache and attend: no position encodes keys or adds a bias."""
        return not (isinstance(self.position, Rotary) or self.position.biases)

    def biases_for(self, size: int, like: Tensor) -> Tensor:
        """The bias of the last of `size` positions for all keys."""
        query = like.new_zeros(1, self.heads * self.groups, 1, self.width)
        found: Tensor = self.position.bias(query, Positions.line(1, size, like.device), self.scale)
        return found.reshape(self.heads * self.groups, size).to(like.dtype)

    def own(self, x: Tensor, n: int, at: StepPosition) -> Tensor:
        rows, heads, groups, width = x.shape[0], self.heads, self.groups, self.width
        qkv = self.project(x)
        if at.read_own is not None and self.reads_in_one:
            return self.out(at.read_own(n, qkv, groups, self.scale))
        cut = heads * groups * width
        query, pair = qkv[:, :cut], qkv[:, cut:].view(rows, 2, heads, width)
        if self.angles is not None:
            both = self.rotate(qkv[:, : cut + heads * width].view(rows, -1, width), at)
            query = both[:, : heads * groups]
            pair = torch.stack([both[:, heads * groups :], pair[:, 1]], 1)
        keys, values = at.keep(n, pair)
        bias = at.bias(self.biases)
        if bias is not None and at.beams == 1:
            bias = bias.view(heads, groups, -1) if bias.dim() == 2 and bias.shape[0] != 1 else bias
        elif bias is not None and groups > 1:  # S H W T or S 1 W T → S H' WG T
            apart = bias.expand(-1, heads * groups, -1, -1).unflatten(1, (heads, groups))
            bias = apart.transpose(2, 3).flatten(2, 3)
        return self.attend(query, keys, values, bias, at.beams)

    def rotate(self, x: Tensor, at: StepPosition) -> Tensor:
        assert self.angles is not None
        cos, sin = (at.pick(table) for table in self.angles)
        left, right = x.chunk(2, -1)
        return torch.cat(
            [
                torch.addcmul(left * cos, right, sin, value=-1),
                torch.addcmul(left * sin, right, cos),
            ],
            -1,
        )

    def read(self, x: Tensor, n: int, memory: Memory) -> Tensor:
        key, value = memory.pairs[n]
        if memory.kernels and memory.mask is not None:
            from ..core.kernels.decode_step import read_memory

            return self.out(
                read_memory(
                    self.project(x), key, value, memory.mask, memory.width, self.groups, self.scale
                )
            )
        return self.attend(self.project(x), key, value, memory.mask, memory.width, memory.turned)

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        bias: Tensor | None,
        beams: int,
        turned: bool = False,
    ) -> Tensor:
        """Beams of a sentence are further queries of the same keys and values."""
        rows, heads, groups, width = query.shape[0], self.heads, self.groups, self.width
        if beams == 1:
            query = query.reshape(rows, heads, groups, width)
        elif groups == 1:
            query = query.reshape(rows // beams, beams, heads, width).transpose(1, 2)
        else:
            apart = query.reshape(rows // beams, beams, heads, groups, width)
            query = apart.transpose(1, 2).reshape(rows // beams, heads, beams * groups, width)
        if turned:
            scores = torch.matmul(query * self.scale, keys)
            found = torch.matmul(
                (scores if bias is None else scores.add_(bias)).softmax(-1), values
            )
        else:
            found = F.scaled_dot_product_attention(query, keys, values, bias, scale=self.scale)
        if beams > 1 and groups == 1:
            found = found.transpose(1, 2)
        elif beams > 1:
            found = found.reshape(rows // beams, heads, beams, groups * width).transpose(1, 2)
        return self.out(found.reshape(rows, heads * groups * width))


NOTHING_FUSED: list[Join | None] = [None, None, None]


def residuals(block: Block) -> tuple[Residual | None, Residual | None, Residual | None]:
    return block.around_mixer, block.around_cross, block.around_feedforward


class Layer:
    """One block as a function."""

    def __init__(self, block: Block, layout: str, copies: WeightCopies) -> None:
        assert isinstance(block.mixer, MultiHeadAttention)
        self.mixer = Attention(block.mixer, layout, False, copies)
        self.before_mixer, self.join_mixer = residual_of(block.around_mixer)
        self.fused = [None if one is None else fused_join_of(one) for one in residuals(block)]
        self.cross = None if block.cross is None else Attention(block.cross, layout, True, copies)
        if block.around_cross is not None:
            self.before_cross, self.join_cross = residual_of(block.around_cross)
        self.feedforward = (
            None if block.feedforward is None else feedforward_of(block.feedforward, layout, copies)
        )
        if block.around_feedforward is not None:
            self.before_feedforward, self.join_feedforward = residual_of(block.around_feedforward)

    def __call__(self, x: Tensor, n: int, at: StepPosition, memory: Memory | None) -> Tensor:
        fused = NOTHING_FUSED if at.read_own is None else self.fused
        before = self.before_mixer
        x = (fused[0] or self.join_mixer)(
            x, self.mixer.own(x if before is None else before(x), n, at)
        )
        if self.cross is not None and memory is not None:
            before = self.before_cross
            x = (fused[1] or self.join_cross)(
                x, self.cross.read(x if before is None else before(x), n, memory)
            )
        if self.feedforward is not None:
            before = self.before_feedforward
            x = (fused[2] or self.join_feedforward)(
                x, self.feedforward(x if before is None else before(x))
            )
        return x


class Engine:
    """A model's decoder with its matrices in one layout."""

    def __init__(self, model: Any, layout: str) -> None:
        self.copies = WeightCopies()
        layers = {id(block): Layer(block, layout, self.copies) for block in model.decoder}
        self.layers = [layers[id(block)] for block in model.decoder]  # shared blocks are there once
        self.norm, self.head = norm_of(model.decoder.norm), head_of(model.head, layout, self.copies)
        self.input: PositionedInput = model.target if hasattr(model, "target") else model.embedding
        self.like = next(model.parameters()).detach()
        linear = any(type(part) is nn.Linear for part in model.modules())
        self.blocks = PackedLinears(self.copies) if linear else None  # of what reads the source
        position, tokens = self.input.position, self.input.tokens
        self.table = tokens.weight.detach() if is_unmodified(tokens, Tokens) else None
        joined = is_unmodified(position, Sinusoidal, Learned) and is_unmodified(position.join, Add)
        self.plain_input = self.table is not None and is_unmodified(self.input, PositionedInput)
        self.plain_input = self.plain_input and (
            joined or is_unmodified(position, NoPositionEmbedding)
        )
        self.largest = len(position.vectors) if joined and isinstance(position, Learned) else None
        self.places: Tensor | None = None
        self.joined, self.size = joined, 0
        self.resident: Any = None  # the GPU decoder
        wide = max((layer.mixer.width for layer in self.layers), default=0)
        # of captured steps: one that is launched by itself takes longer than the two or three of PyTorch's that it replaces
        self.kernels = (
            why_unavailable(self.like.device) is None
            and wide <= MAX_HEAD_WIDTH
            and self.like.dtype in KERNEL_TYPES
        )

    def reading(self, source: Tensor) -> AbstractContextManager[Any]:
        """The context in which an encoder reads a source of this length."""
        pays = (
            source.numel() >= MIN_PACKED_TOKENS
            and layout_for(source.numel(), self.like) == "packed"
        )
        return self.blocks if self.blocks and pays else nullcontext()

    def prepare(self, size: int) -> None:
        """Precomputes position-dependent data for up to `size` tokens."""
        if size <= self.size:
            return
        self.size = size
        for layer in {id(layer): layer for layer in self.layers}.values():
            layer.mixer.prepare(size, self.like)
        if self.plain_input and self.joined:
            self.places = self.vectors(size if self.largest is None else min(size, self.largest))

    def vectors(self, size: int) -> Tensor:
        """The position embeddings of the first `size` positions."""
        found: Tensor = self.input.position.vectors_at(torch.arange(size, device=self.like.device))  # type: ignore[operator]
        return found.to(self.like.dtype)

    @torch.inference_mode()
    def refresh(self) -> None:
        """Updates copies of parameters in place, where captured steps read them."""
        self.copies.refresh()
        if self.places is not None and self.largest is not None:
            self.places.copy_(self.vectors(len(self.places)))
        for mixer in {id(layer): layer.mixer for layer in self.layers}.values():
            if mixer.biases is not None:
                mixer.biases.copy_(mixer.biases_for(mixer.biases.shape[1], self.like))

    def check(self, position: int) -> None:
        """Checks that a position is in the learned tables, as the model does."""
        if self.largest is not None and position >= self.largest:
            check_within(torch.tensor([position]), self.largest)

    def embed(self, tokens: Tensor, at: StepPosition) -> Tensor:
        if not self.plain_input:
            where = torch.arange(self.size, device=tokens.device)
            x: Tensor = self.input(tokens.unsqueeze(1), at.pick(where))
            return x.squeeze(1)
        assert self.table is not None
        x = F.embedding(tokens, self.table)
        if self.places is None:
            return x * self.input.scale
        return torch.add(at.pick(self.places), x, alpha=self.input.scale)

    def step(self, tokens: Tensor, at: StepPosition, memory: Memory | None) -> Tensor:
        """One step: last tokens R → logits R V."""
        x = self.embed(tokens, at)
        for n, layer in enumerate(self.layers):
            x = layer(x, n, at, memory)
        return self.head(x if self.norm is None else self.norm(x))
