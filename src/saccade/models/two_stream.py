"""Permutation language modeling (XLNet, Yang et al. 2019): the tokens of a text in any order. B batch, N positions, W asked positions, V vocabulary.

Two streams through one stack, side by side: *content* (the tokens) and *query* (one learned vector instead of each asked token).
`order` gives each position its rank; what comes later in the order is invisible:

    content i sees content j  iff  rank_j ≤ rank_i        query w sees content j  iff  rank_j < rank_at(w)
"""

import torch
from torch import Tensor, nn

from ..core import Positions, masks
from ..errors import SaccadeError
from ..layers.multihead_attention import MultiHeadAttention
from .classifiers import hidden_head
from .protocols import Encoder
from .transformer import TransformerEncoder


def seen_by_streams(
    lengths: Tensor, order: Tensor, at: Tensor, documents: Tensor | None = None
) -> Tensor:
    """Visible contents per row of [content; query], B (N+W) N, within one document (`documents` B N)."""
    here = torch.arange(order.shape[1], device=order.device) < lengths.unsqueeze(1)
    content = order.unsqueeze(1) <= order.unsqueeze(2)  # B N N: rows see columns
    query = order.unsqueeze(1) < order.gather(1, at).unsqueeze(2)  # B W N
    seen = torch.cat([content, query], 1) & here.unsqueeze(1)
    if documents is not None:
        seen &= torch.cat([documents, documents.gather(1, at)], 1).unsqueeze(
            2
        ) == documents.unsqueeze(1)
    return seen


def two_streams(
    lengths: Tensor, order: Tensor, at: Tensor, documents: Tensor | None = None
) -> masks.Mask:
    """The attention mask over [content; query], B 1 (N+W) (N+W). Queries are invisible."""
    seen = seen_by_streams(lengths, order, at, documents)
    return masks.matrix(nn.functional.pad(seen, (0, at.shape[1])).unsqueeze(1))


class TwoStream(nn.Module):
    """Logits at the requested positions, from earlier tokens in the order and the own position."""

    def __init__(self, body: Encoder, vocab: int) -> None:
        super().__init__()
        if not isinstance(body, TransformerEncoder):
            got = f"got a {type(body).__name__}; choose model.family=xlnet"
            raise SaccadeError(
                f"two streams need a transformer-encoder or an xlnet, {got}",
                code="family-not-supported",
            )
        for block in body.encoder:
            plain = (
                isinstance(block.mixer, MultiHeadAttention)
                and block.mixer.causal
                and block.any_mask
                and body.encoder.any_mask
            )
            if not plain or type(block.mixer.mechanism.mask) is not masks.Full:  # type: ignore[union-attr]
                wrong = (
                    "a convolution, a linformer, a funnel or model.mask would count positions wrong"
                )
                raise SaccadeError(
                    f"two streams are side by side, where {wrong}; leave them out",
                    code="parts-do-not-combine",
                )
        self.body = body
        self.query = nn.Parameter(torch.randn(body.dim))  # as wide as a scaled token vector
        self.head = hidden_head(body, vocab)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        order: Tensor,
        at: Tensor,
        documents: Tensor | None = None,
    ) -> Tensor:
        """tokens B N, order B N (the rank of each position), at B W (the asked positions) → B W V"""
        return self.head(self.features(tokens, lengths, order, at, documents))

    def features(
        self,
        tokens: Tensor,
        lengths: Tensor,
        order: Tensor,
        at: Tensor,
        documents: Tensor | None = None,
    ) -> Tensor:
        """The query stream, B W dim."""
        both, where = self.streams(tokens, at)
        size, mask = both.shape[1], two_streams(lengths, order, at, documents)
        ready = mask.prepare(len(both), self.body.heads, size, size, both.device)
        segments = self.segments(tokens, at)
        relation = None if segments is None else segments.unsqueeze(2) != segments.unsqueeze(1)
        return self.body.encoder(both, ready, positions=Positions(where, where, relation))[
            :, tokens.shape[1] :
        ]

    def streams(self, tokens: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """The input of both streams side by side, B (N+W) dim, and their positions."""
        embedding = self.body.embedding
        line = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
        content = embedding(tokens, line)
        query = embedding.join(self.query.to(content.dtype).expand(*at.shape, -1), at)
        return torch.cat([content, query], 1), torch.cat([line, at], 1)

    def segments(self, tokens: Tensor, at: Tensor) -> Tensor | None:
        """The segments of both streams, B (N+W), if the body has segments."""
        found = self.body.segments(tokens)
        return None if found is None else torch.cat([found, found.gather(1, at)], 1)
