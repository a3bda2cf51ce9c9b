"""Models that training is measured against: those of PyTorch, of installed packages, and the textbook's own. B batch, N source, T target."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PlainBlock(nn.Module):
    """A block of GPT-2 as people write it: one matrix for q, k and v, SDPA, an MLP."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        x = x + self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        x = x + self.mlp(self.second(x))
        return x


class PlainGpt(nn.Module):
    """GPT-2 in one page, in the manner of nanoGPT: tokens and targets → the mean loss."""

    def __init__(self, vocab: int, dim: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.Sequential(*(PlainBlock(dim, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(
            torch.arange(tokens.shape[1], device=tokens.device)
        )
        return F.cross_entropy(
            self.head(self.norm(self.blocks(x))).flatten(0, 1).float(), target.flatten()
        )


class HuggingFaceGpt(nn.Module):
    """GPT-2 of `transformers`."""

    def __init__(self, vocab: int, dim: int, depth: int, heads: int, length: int) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        sizes: dict[str, Any] = {
            "vocab_size": vocab,
            "n_embd": dim,
            "n_layer": depth,
            "n_head": heads,
            "n_positions": length,
        }
        dropped: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        self.model = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **sizes, **dropped))

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


class XTransformersGpt(nn.Module):
    """A decoder of `x-transformers`."""

    def __init__(self, vocab: int, dim: int, depth: int, heads: int, length: int) -> None:
        from x_transformers import Decoder, TransformerWrapper  # type: ignore[import-not-found, unused-ignore]

        super().__init__()
        layers = Decoder(
            dim=dim, depth=depth, heads=heads, attn_dim_head=dim // heads, attn_flash=True
        )
        self.model = TransformerWrapper(
            num_tokens=vocab, max_seq_len=length, attn_layers=layers, tie_embedding=True
        )

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.model(tokens).flatten(0, 1).float(), target.flatten())


class TorchTranslator(nn.Module):
    """`nn.Transformer` with embeddings and a tied output: source, lengths, what is read of the target, targets → the mean loss."""

    waves: Tensor

    def __init__(
        self, vocab: int, dim: int, hidden: int, depth: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.body = nn.Transformer(
            dim, heads, depth, depth, hidden, dropout, batch_first=True, norm_first=True
        )
        self.dim = dim
        nn.init.normal_(self.tokens.weight, std=dim**-0.5)
        self.register_buffer("waves", sinusoids(512, dim), persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.tokens(tokens) * self.dim**0.5
        return x + self.waves[: tokens.shape[1]]

    def forward(self, source: Tensor, lengths: Tensor, read: Tensor, target: Tensor) -> Tensor:
        padded = torch.arange(source.shape[1], device=source.device) >= lengths.unsqueeze(1)
        future = torch.ones(
            read.shape[1], read.shape[1], dtype=torch.bool, device=source.device
        ).triu(1)
        masks: dict[str, Any] = {
            "src_key_padding_mask": padded,
            "memory_key_padding_mask": padded,
            "tgt_is_causal": True,
        }
        x = self.body(self.embed(source), self.embed(read), tgt_mask=future, **masks)
        return F.cross_entropy(
            F.linear(x, self.tokens.weight).flatten(0, 1).float(), target.flatten(), ignore_index=0
        )


class HuggingFaceTranslator(nn.Module):
    """Marian of `transformers`, its encoder–decoder Transformer for translation, with one vocabulary and a tied output."""

    def __init__(
        self, vocab: int, dim: int, hidden: int, depth: int, heads: int, dropout: float
    ) -> None:
        from transformers import MarianConfig, MarianMTModel

        super().__init__()
        sizes: dict[str, Any] = {
            "vocab_size": vocab,
            "d_model": dim,
            "dropout": dropout,
            "max_position_embeddings": 512,
        }
        for side in ("encoder", "decoder"):
            sizes |= {
                f"{side}_layers": depth,
                f"{side}_attention_heads": heads,
                f"{side}_ffn_dim": hidden,
            }
        tokens: dict[str, Any] = {
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            "forced_eos_token_id": None,
        }
        plain: dict[str, Any] = {
            "use_cache": False,
            "attention_dropout": 0.0,
            "activation_dropout": dropout,
        }
        self.model = MarianMTModel(
            MarianConfig(activation_function="relu", **sizes, **tokens, **plain)
        )

    def forward(self, source: Tensor, lengths: Tensor, read: Tensor, target: Tensor) -> Tensor:
        real = torch.arange(source.shape[1], device=source.device) < lengths.unsqueeze(1)
        logits: Tensor = self.model(
            input_ids=source, attention_mask=real, decoder_input_ids=read
        ).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=0)


def sinusoids(length: int, dim: int) -> Tensor:
    turns = torch.arange(length).unsqueeze(1) / 10_000 ** (torch.arange(0, dim, 2) / dim)
    return torch.stack([turns.sin(), turns.cos()], -1).flatten(1)


class TextbookBahdanau(nn.Module):
    """A bidirectional GRU and additive attention, one step after another: source, lengths, what is read, targets → the mean loss."""

    def __init__(self, vocab: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        self.encoder = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.cell, self.first = nn.GRUCell(dim + 2 * hidden, hidden), nn.Linear(2 * hidden, hidden)
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(2 * hidden, hidden)
        self.score = nn.Linear(hidden, 1)
        self.readout, self.head = nn.Linear(3 * hidden + dim, hidden), nn.Linear(hidden, vocab)

    def forward(self, source: Tensor, lengths: Tensor, read: Tensor, target: Tensor) -> Tensor:
        memory, _ = self.encoder(self.source(source))
        hidden = torch.arange(source.shape[1], device=source.device) >= lengths.unsqueeze(1)
        keys, state, features = self.key(memory), torch.tanh(self.first(memory[:, 0])), []
        for x in self.target(read).unbind(1):
            fit = self.score(torch.tanh(self.query(state).unsqueeze(1) + keys)).squeeze(-1)
            weights = fit.masked_fill(hidden, float("-inf")).softmax(-1)
            context = (weights.unsqueeze(1) @ memory).squeeze(1)
            state = self.cell(torch.cat([x, context], -1), state)
            features.append(torch.tanh(self.readout(torch.cat([state, context, x], -1))))
        return F.cross_entropy(
            self.head(torch.stack(features, 1)).flatten(0, 1).float(),
            target.flatten(),
            ignore_index=0,
        )
