"""Autoencoding of texts: one vector for a text, and the text again from it. B batch, L numbers of a latent."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..core import State
from ..data.bad_lines import Skipped
from ..data.batches import on, pad
from ..data.corpora import TEXTS_ALONE
from ..data.pairs import Pair
from ..data.vocabulary import Vocabulary
from ..decoding import decode, searcher
from ..errors import SaccadeError
from ..models.builder import Builder
from ..models.protocols import Seq2Seq, TextAutoencoder
from ..recipe import AutoencodingRecipe, Recipe
from ..training.losses import Batch
from .pair_work import PairWork, WorkWithBleu
from .task import ExampleTask, device_of, learn_vocabulary, table
from .text_to_text import TextToText
from .translation import Pairs, Scores


@table.add(
    "text-autoencoding", paper="Sutskever et al. 2014; Vincent et al. 2008; Lample et al. 2018"
)
class TextAutoencoding(TextToText):
    """A text again from `autoencoding.latent` numbers; with `autoencoding.drop` or `.shuffle` the text from one with words lost or moved."""

    needs, data = TextAutoencoder, TEXTS_ALONE
    settings = (*ExampleTask.settings, "autoencoding", "autoencoding.drop", "autoencoding.shuffle")
    command: ClassVar[str] = 'reconstruct {model} "your text"'
    method: ClassVar[str] = 'm.reconstruct("your text")'
    verbs = ("reconstruct", "encode", "from_latent", *TextToText.verbs)
    how: AutoencodingRecipe

    @classmethod
    def reading(cls, recipe: Recipe) -> tuple[str, ...]:
        return ()

    @classmethod
    def read(cls, recipe: Recipe, where: str, skipped: Skipped | None = None) -> list[Pair]:
        """Pairs of what is read and the text: the same text always gets the same noise."""
        return [
            replace(one, source=noisy(one.target, recipe.autoencoding))
            for one in super().read(recipe, where, skipped)
        ]

    @classmethod
    def learn(
        cls,
        recipe: Recipe,
        train: Pairs,
        given: Vocabulary | None = None,
        target: Vocabulary | None = None,
    ) -> Self:
        words = learn_vocabulary(recipe, (pair.target for pair in train), given)
        return cls(words, words).by(recipe)

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return super().restore(recipe, tokens).by(recipe)

    def by(self, recipe: Recipe) -> Self:
        self.how = recipe.autoencoding
        return self

    def build(self, builder: Builder) -> nn.Module:
        return builder.make(TextAutoencoder, len(self.source), self.how.latent)

    def score(
        self, outputs: Sequence[str], pairs: Pairs, moses: str | None = None, tokenizer: str = "13a"
    ) -> Scores:
        """Exact matches and BLEU; the same of what the next text's latent gives, a control; and with noise, of what was read."""
        found = super().score(outputs, pairs, moses, tokenizer)
        controls = {"other_text": [*outputs[1:], *outputs[:1]]}
        if self.how.drop or self.how.shuffle:
            controls["noisy"] = [pair.source for pair in pairs]
        for name, texts in controls.items():
            scored = super().score(texts, pairs, None, tokenizer)
            found |= {f"{metric}_{name}": scored[metric] for metric in ("exact", "bleu")}
        return found

    @torch.no_grad()
    def encode(self, model: nn.Module, texts: Sequence[str], budget: int = 256) -> Tensor:
        """The latent of each text: B L."""
        assert isinstance(model, TextAutoencoder)
        if not texts or not all(text.strip() for text in texts):
            raise SaccadeError(
                'expected a text or a list of texts, none of them empty; write m.encode("your text")',
                code="empty-text",
            )
        found = list[Tensor]()
        rows = [[*ids, self.source.eos] for ids in self.source.encode_ids(list(texts))]
        for at in range(0, len(rows), budget):
            source, lengths = on(device_of(model), *pad(rows[at : at + budget], self.source.pad))
            found.append(model.eval().latent(source, lengths).float().cpu())
        return torch.cat(found)

    @torch.no_grad()
    def from_latent(self, model: nn.Module, latent: Tensor) -> list[str]:
        """The text that the decoder makes of each latent, B L."""
        assert isinstance(model, TextAutoencoder)
        words, device = self.target, device_of(model)
        search = searcher()(words.bos, words.eos, tuple({words.pad, words.bos} - {words.eos}))
        which = torch.arange(len(latent), device=device).unsqueeze(1)
        limits = [self.lengths.longest + 10] * len(latent)
        found = decode(
            FromLatent(model.eval(), latent.to(device)),
            which,
            torch.ones_like(which[:, 0]),
            search,
            limits,
        )
        return [words.decode(one[0].tokens, keep_unknown=True) for one in found]


class FromLatent(Seq2Seq):
    """A decoder whose sources are the numbers of latents."""

    def __init__(self, model: TextAutoencoder, latent: Tensor) -> None:
        super().__init__()
        self.model, self.latent = model, latent

    def start(self, source: Tensor, lengths: Tensor) -> State:
        return self.model.start_from(self.latent[source[:, 0]])

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.model.step(tokens, state)


class TextAutoencodingWork(PairWork):
    """Training with noise that is new for each batch of the same seed."""

    task: TextAutoencoding

    def __init__(self, task: TextAutoencoding, recipe: Recipe, train: Pairs, *given: Any) -> None:
        super().__init__(
            task, recipe, [replace(pair, source=pair.target) for pair in train], *given
        )

    def batch(self, plan: list[int]) -> Batch:
        how = self.task.how
        if not (how.drop or how.shuffle):
            return super().batch(plan)
        texts = [self.examples[n].pair.target for n in plan]
        name = repr((self.seed, plan)).encode()
        pairs = [
            Pair(noisy(text, how, name + b"%d" % n), text, self.examples[at].line)
            for n, (at, text) in enumerate(zip(plan, texts, strict=True))
        ]
        return self.task.batch(self.task.numbers(pairs), self.device, self.multiple)


class TextAutoencodingWithBleu(TextAutoencodingWork, WorkWithBleu):
    """The same, with greedy BLEU on the dev set."""


TextAutoencoding.workers = TextAutoencodingWork, TextAutoencodingWithBleu


def noisy(text: str, how: AutoencodingRecipe, salt: bytes = b"") -> str:
    """The text without a share `drop` of its words, and the others at most `shuffle` positions from where they were (Lample et al. 2018)."""
    if not (how.drop or how.shuffle):
        return text
    chance = np.random.default_rng(list(hashlib.sha256(salt + text.encode()).digest()))
    words = text.split()
    kept = [
        word
        for word, draw in zip(words, chance.random(len(words)), strict=True)
        if draw >= how.drop
    ] or words[:1]
    order = np.argsort(
        np.arange(len(kept)) + chance.uniform(0, how.shuffle + 1, len(kept)), kind="stable"
    )
    return " ".join(kept[n] for n in order)
