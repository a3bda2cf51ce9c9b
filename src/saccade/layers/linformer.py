"""Linformer: attention to fewer keys than there are tokens. B batch, N positions, H heads, D width of a head, S projected positions."""

from typing import Annotated, Any, NoReturn

import torch
from torch import Tensor, nn

from ..core import Mechanism, Positions, Ready
from ..core.masks import Full, Mask
from ..core.positions import NoPosition
from ..errors import SaccadeError
from ..settings import Range
from .mixers import check_length, table
from .multihead_attention import MultiHeadAttention

SHARED = ("none", "heads", "keys-values")


@table.add("linformer", paper="Wang et al. 2020", example={"k": 3, "max_len": 16})
class Linformer(MultiHeadAttention):
    """softmax(q (E k)ᵀ / √D) F v: keys and values projected along the length to `k` positions, so that time is linear in the length.

    `share: none` has E and F for each head, `heads` one E and one F for all heads, `keys-values` (the default) one matrix for both. They
    are learned for `max_len` positions, of which a shorter text uses the first. Not for models that hide the future: E k knows all tokens.
    """

    causal = False

    def __init__(
        self,
        dim: int,
        heads: int = 8,
        k: Annotated[int, Range(1, 65536)] = 256,
        max_len: Annotated[int, Range(1, 10**6)] = 512,
        share: Annotated[str, SHARED] = "keys-values",
        mechanism: Mechanism | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        head_width: int | None = None,
    ) -> None:
        super().__init__(
            dim, heads, mechanism=mechanism, bias=bias, dropout=dropout, head_width=head_width
        )
        if share not in SHARED:
            raise SaccadeError(
                f"expected a share that is one of {', '.join(SHARED)}, got {share!r}; choose one of these",
                code="unknown-choice",
            )
        position = self.mechanism.position
        if type(self.mechanism.mask) is not Full or position.biases or position.adds_values:
            wrong = "a linformer has fewer keys than tokens, and model.mask, or a position that adds to scores or values, asks for each"
            raise SaccadeError(
                f"{wrong}; leave them out, or choose mixer=attention", code="parts-do-not-combine"
            )
        planes = heads if share == "none" else 1
        self.max_len = max_len
        self.project_keys = nn.Parameter(torch.empty(planes, k, max_len))
        self.project_values = (
            self.project_keys
            if share == "keys-values"
            else nn.Parameter(torch.empty(planes, k, max_len))
        )
        for one in {id(one): one for one in (self.project_keys, self.project_values)}.values():
            nn.init.normal_(one, std=max_len**-0.5)  # a projected key varies as a key does

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Mask | None = None, positions: Positions | None = None
    ) -> Tensor:
        """x: B N dim"""
        self.check(x, None, mask, positions)
        return self.mix(x, mask, positions)

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        positions = (
            Positions.line(x.shape[1], x.shape[1], x.device) if positions is None else positions
        )
        return self.read(x, self.squeeze(x, mask, positions), None, positions)

    def squeeze(self, x: Tensor, mask: Mask | None, positions: Positions) -> Ready:
        """Keys and values of S positions, prepared by the mechanism; what is hidden from all queries has no part in them."""
        check_length(positions, self.max_len)
        hides, keys = (False, Full()) if mask is None else mask.causal_and_keys() or (True, Full())
        if hides:
            wrong = f"a linformer knows padding masks alone, got {mask!r}"
            raise SaccadeError(
                f"{wrong}; use mixer=attention for others", code="mask-not-supported"
            )
        k, v = self.split(self.k(x), self.heads), self.split(self.v(x), self.heads)
        position = self.mechanism.position
        if type(position) is not NoPosition:
            k = position.encode(k, positions.j, positions)
            v = position.encode_values(v, positions.j, positions)
        to_keys, to_values = (
            self.columns(matrix, positions) for matrix in (self.project_keys, self.project_values)
        )
        if type(keys) is not Full:
            real = keys.dense(x.shape[0], 1, 1, x.shape[1], x.device).transpose(-2, -1)  # B 1 N 1
            k, v = k * real.to(k.dtype), v * real.to(v.dtype)
        return Ready(self.mechanism.score.key(to_keys.to(k.dtype) @ k), to_values.to(v.dtype) @ v)

    def columns(self, matrix: Tensor, positions: Positions) -> Tensor:
        """Of H|1 S max_len those of the tokens: H|1 S N, or B H|1 S N where positions differ from row to row."""
        if positions.in_line:
            return matrix[..., : positions.j.shape[-1]]
        found = matrix[..., positions.j]
        return found if positions.j.dim() == 1 else found.movedim(-2, 0)

    def start(self, x: Tensor) -> NoReturn:
        raise SaccadeError(
            "a linformer cannot read position by position; choose mixer=attention for a model that generates",
            code="cannot-generate",
        )

    def step(
        self, x: Tensor, cache: Any, mask: Mask | None = None, positions: Positions | None = None
    ) -> NoReturn:
        self.start(x)
