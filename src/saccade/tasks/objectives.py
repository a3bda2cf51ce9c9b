"""What a language model learns on plain text: causal, masked, denoising and permutation objectives. B blocks, N tokens, V vocabulary.

An objective makes a batch from blocks of a stream: what is read, what is wanted, and the model that goes from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import extras, masks
from ..core.table import Table
from ..data.batches import on, pad
from ..data.vocabulary import BOS, EOS, PAD
from ..errors import SaccadeError
from ..models.kinds import AttendingEncoder, CausalLM, Encoder, Seq2Seq
from ..models.labels import MaskedModel
from ..models.two_stream import TwoStream
from ..recipe import LanguageRecipe
from ..training.losses import token_loss
from .task import Builder

table: Table[type[Objective]] = Table("objectives", "objective")


@dataclass(frozen=True)
class Blocks:
    """Blocks of a stream: B (N + 1) tokens, <pad> behind the end of the text, on the model's device and here, so that nobody waits
    to read them; the number of each token's document where there are several; and what each block's objective draws from."""

    tokens: Tensor
    here: NDArray[np.int64]
    documents: Tensor | None
    seeds: Sequence[tuple[int, ...]]
    lines: Sequence[int]

    @cached_property
    def chances(self) -> list[np.random.PCG64]:
        """Made when they are asked for: what only goes on with a text draws nothing."""
        return [np.random.PCG64(seed) for seed in self.seeds]


@dataclass(frozen=True)
class LanguageBatch:
    """What a model is called with, the tokens that are wanted (<pad> where none is), and how many."""

    read: tuple[Any, ...]
    wanted: Tensor
    tokens: int
    lines: Sequence[int]


class Objective:
    """One objective with its numbers; `extra` rows of the embedding stand behind the vocabulary's own, for masks."""

    extra = 0

    def __init__(self, vocab: int, how: LanguageRecipe) -> None:
        self.vocab, self.how = vocab, how

    def build(self, builder: Builder) -> nn.Module:
        raise NotImplementedError

    def batch(self, blocks: Blocks) -> LanguageBatch:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: LanguageBatch, smoothing: float = 0.0) -> Tensor:
        """The summed loss of the wanted tokens."""
        with extras.collect() as left:
            logits = model(*batch.read)
        return token_loss(logits, batch.wanted, PAD, smoothing) + left.total((batch.wanted != PAD).sum(1))


@table.add("causal", paper="Radford et al. 2018", system="T9")
class Causal(Objective):
    """Each token from those before it, in its own document; a recurrent model is told by <bos> where a document begins."""

    attends = True

    def build(self, builder: Builder) -> nn.Module:
        model = builder.whole(self.vocab, self.vocab)
        if not isinstance(model, CausalLM):
            raise SaccadeError(
                f"a {builder.name} does not go on with a text; choose another model.family, such as transformer-decoder"
            )
        self.attends = model.attends
        return model

    def batch(self, blocks: Blocks) -> LanguageBatch:
        read, wanted = blocks.tokens[:, :-1], blocks.tokens[:, 1:]
        count = counted(blocks.here[:, 1:])
        if blocks.documents is None:
            return LanguageBatch((read,), wanted, count, blocks.lines)
        wanted = wanted.masked_fill(wanted == BOS, PAD)  # where a document begins is not to be guessed from the one before it
        if not self.attends:
            return LanguageBatch((read,), wanted, count, blocks.lines)
        documents = blocks.documents[:, :-1]
        return LanguageBatch((read, masks.documents(documents), restarted(documents)), wanted, count, blocks.lines)


def counted(tokens: NDArray[np.int64]) -> int:
    """How many tokens are asked for of a causal model: neither padding nor what begins a document."""
    return int(np.isin(tokens, (PAD, BOS), invert=True).sum())


def restarted(documents: Tensor) -> Tensor:
    """Places counted from each document's first token in the block: B N."""
    at = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return at - torch.where(begins, at, 0).cummax(1).values


class OfPlaces(Objective):
    """An objective on an encoder: some places are asked for."""

    def body(self, builder: Builder) -> Encoder:
        body = builder.body(self.vocab + self.extra)
        if not body.sees_ahead:
            raise SaccadeError(
                f"a {builder.name} sees nothing behind a hidden token; choose another model.family, such as transformer-encoder"
            )
        if body.embedding.reads_bytes:
            raise SaccadeError(
                "model.words reads the bytes of a word, which give a hidden one away; leave model.words out to pretrain"
            )
        return body

    def asked(self, blocks: Blocks) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The tokens of the blocks (without the one behind), and which of their places are asked for: `share` of each row."""
        tokens = blocks.here[:, :-1]
        real = tokens >= EOS  # padding, what begins a document and unknown words are never asked for
        rank = np.where(real, rows_of(blocks), 2.0).argsort(1).argsort(1)
        return tokens, (rank < np.maximum(1, (self.how.share * real.sum(1, keepdims=True)).round())) & real

    def wanted(self, blocks: Blocks, asked: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        """The asked places, B W, and the tokens there; rows that ask for less go on with place 0, where nothing is wanted."""
        at, counts = pad([np.flatnonzero(row).tolist() for row in asked], 0)
        wanted = torch.from_numpy(np.take_along_axis(blocks.here, at.numpy(), 1))
        wanted = wanted.masked_fill(torch.arange(at.shape[1]) >= counts.unsqueeze(1), PAD)
        at, wanted = on(blocks.tokens.device, at, wanted)
        return at, wanted

    def lengths(self, blocks: Blocks) -> Tensor:
        return on(blocks.tokens.device, torch.from_numpy((blocks.here[:, :-1] != PAD).sum(1)))[0]


def draw(chance: np.random.PCG64, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1), the same with every version of numpy."""
    return fractions(chance.random_raw(count))


def fractions(raw: Any) -> NDArray[np.float64]:
    """Raw 64-bit numbers as numbers in [0, 1)."""
    return (np.asarray(raw, dtype=np.uint64) >> np.uint64(11)).astype(np.float64) / 2.0**53


def rows_of(blocks: Blocks) -> NDArray[np.float64]:
    """A number in [0, 1) for each place, each row from its block's own chance: B N."""
    return fractions(np.stack([chance.random_raw(blocks.here.shape[1] - 1) for chance in blocks.chances]))


@table.add("masked", paper="Devlin et al. 2019", system="T9")
class Masked(OfPlaces):
    """`share` of the tokens are asked for; of these 80 % are hidden, 10 % replaced by any token, 10 % left as they are."""

    extra = 1
    attends = True

    def build(self, builder: Builder) -> nn.Module:
        body = self.body(builder)
        self.attends = isinstance(body, AttendingEncoder)
        return MaskedModel(body, self.vocab + self.extra)

    def batch(self, blocks: Blocks) -> LanguageBatch:
        tokens, asked = self.asked(blocks)
        how, other = rows_of(blocks), rows_of(blocks)
        replaced = EOS + 1 + (other * (self.vocab - EOS - 1)).astype(np.int64)
        shown = np.where(asked & (how < 0.8), self.vocab, np.where(asked & (how >= 0.9), replaced, tokens))
        at, wanted = self.wanted(blocks, asked)
        [read] = on(blocks.tokens.device, torch.from_numpy(shown))
        more: tuple[Any, ...] = ()
        if blocks.documents is not None and self.attends:
            documents = blocks.documents[:, :-1]
            more = (masks.documents(documents), restarted(documents))
        return LanguageBatch((read, self.lengths(blocks), at, *more), wanted, int(asked.sum()), blocks.lines)


@table.add("permutation", paper="Yang et al. 2019 (XLNet)", system="T9")
class Permutation(OfPlaces):
    """Each asked token from those before it in a random order: the last `share` of the order is asked for, in two streams."""

    def build(self, builder: Builder) -> nn.Module:
        return TwoStream(self.body(builder), self.vocab)  # type: ignore[arg-type]  # it refuses any other body with a sentence

    def batch(self, blocks: Blocks) -> LanguageBatch:
        _, asked = self.asked(blocks)
        order = np.where(asked, 1.0, 0.0) + 0.999 * rows_of(blocks)  # what is asked for comes last
        rank = torch.from_numpy(order.argsort(1).argsort(1)).to(blocks.tokens.device)
        at, wanted = self.wanted(blocks, asked)
        documents = None if blocks.documents is None else blocks.documents[:, :-1]
        read = (blocks.tokens[:, :-1], self.lengths(blocks), rank, at, documents)
        return LanguageBatch(read, wanted, int(asked.sum()), blocks.lines)


@table.add("denoising", paper="Raffel et al. 2020 (T5)", system="T9")
class Denoising(OfPlaces):
    """Spans of about `span` tokens are cut out, `share` of the text in all; the decoder puts them out, each behind its own mark.

    A block may hold several documents, and a span may cross from one to the next, as in the paper.
    """

    def __init__(self, vocab: int, how: LanguageRecipe) -> None:
        super().__init__(vocab, how)
        self.extra = self.spans(how.block)[1]

    def spans(self, length: int) -> tuple[int, int]:
        """How many tokens of `length` are cut out, and in how many spans."""
        noise = min(max(round(self.how.share * length), 1), max(length - 1, 1))
        return noise, max(1, min(round(noise / self.how.span), noise, length - noise))

    def build(self, builder: Builder) -> nn.Module:
        model = builder.whole(self.vocab + self.extra, self.vocab + self.extra)
        if not isinstance(model, Seq2Seq):
            raise SaccadeError(
                f"a {builder.name} cannot put out what was cut out; choose another model.family, such as transformer"
            )
        return model

    def batch(self, blocks: Blocks) -> LanguageBatch:
        sources, targets = [], []
        for row, chance in zip(blocks.here[:, :-1], blocks.chances, strict=True):
            source, target = self.cut(row[row != PAD].tolist(), chance)
            sources.append(source)
            targets.append(target)
        source_rows, lengths = pad(sources, PAD)
        read, _ = pad([[BOS, *target] for target in targets], PAD)
        wanted, sizes = pad([[*target, EOS] for target in targets], PAD)
        device = blocks.tokens.device
        source_rows, lengths, read, wanted = on(device, source_rows, lengths, read, wanted)
        return LanguageBatch((source_rows, lengths, read), wanted, int(sizes.sum()), blocks.lines)

    def cut(self, tokens: list[int], chance: np.random.PCG64) -> tuple[list[int], list[int]]:
        """The text with a mark in place of each span, and each mark with its span."""
        if len(tokens) < 2:
            return tokens or [EOS], [self.vocab, *tokens]
        noise, spans = self.spans(len(tokens))
        hidden, kept = parted(noise, spans, chance), parted(len(tokens) - noise, spans, chance)
        source, target, at = [], [], 0
        for n, (keep, hide) in enumerate(zip(kept, hidden, strict=True)):
            source += [*tokens[at : at + keep], self.vocab + n]
            target += [self.vocab + n, *tokens[at + keep : at + keep + hide]]
            at += keep + hide
        return source, target


def parted(total: int, parts: int, chance: np.random.PCG64) -> list[int]:
    """`total` as a sum of `parts` numbers of at least 1, all such sums equally likely."""
    borders = np.sort(draw(chance, total - 1).argsort()[: parts - 1]) + 1
    return np.diff([0, *borders.tolist(), total]).tolist()
