"""Tagging: one label per word. B batch, N tokens, W words, C tags."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..building import Builder
from ..data.batches import on, pad, pad_rows, tree_distances
from ..data.conllu import Sentence
from ..data.corpora import SENTENCES
from ..data.words import SPLITS, split_words
from ..errors import SaccadeError
from ..models.labels import Tagger
from ..recipe import Recipe
from ..training.losses import Batch
from ..views.results import Tagged
from .labels import UNLABELED, LabelTask, Numbered, make_rows, percent
from .task import WrongExample, table


@table.add("tagging", paper="Ling et al. 2015")
class Tagging(LabelTask):
    """One label for each word, such as its part of speech; a word of several pieces is tagged at its first."""

    data = SENTENCES
    label, unit = "tag", "word"
    text_of = staticmethod(lambda example: " ".join(example.words))
    labels_of = staticmethod(lambda example: example.tags)
    outcome: ClassVar[str] = "tags"
    command: ClassVar[str] = "tag {model} your.conllu"
    method: ClassVar[str] = 'm.tag("your sentence")'

    @classmethod
    def reading(cls, recipe: Recipe) -> tuple[str, ...]:
        return (recipe.data.column,)

    @property
    def split(self) -> str:
        """How raw text becomes words such as the model knows: at `space`, or as `words` where punctuation was by itself in training."""
        return SPLITS[self.text.kind != "words" or self.text.id(".") != self.text.unk or self.text.id(",") != self.text.unk]

    def words(self, text: str, split: str = "") -> tuple[str, ...]:
        """The words of a raw text, split at spaces or as in the training data, unless asked for one of `SPLITS`."""
        return tuple(split_words(text) if (split or self.split) == "words" else text.split())

    def build(self, builder: Builder) -> nn.Module:
        return Tagger(self.encoder(builder), len(self.labels), builder.dropout)

    def numbers(self, examples: Sequence[Sentence]) -> list[Numbered]:
        """Sentences as rows of tokens, their tags and line, and the position of each word's first token."""
        words = {word: n for n, word in enumerate(dict.fromkeys(word for one in examples for word in one.words))}
        pieces = self.text.encode_ids(list(words))
        return [self.number(one, [pieces[words[word]] or [self.text.unk] for word in one.words]) for one in examples]

    def number(self, one: Sentence, pieces: list[list[int]]) -> Numbered:
        if self.text.kind == "words":
            pieces = [ids[:1] for ids in pieces]  # a word with a space in it stays one word
        spelled = [word if n == 0 else "" for word, ids in zip(one.words, pieces, strict=True) for n in range(len(ids))]
        rows = make_rows([id for ids in pieces for id in ids], spelled, self.reads_bytes)
        sizes = [len(ids) for ids in pieces]
        distances = token_distances(one, sizes) if self.needs_relation else None
        return Numbered(rows, self.label_numbers(one, len(sizes)), one.line, [0, *accumulate(sizes[:-1])], distances)

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> Batch:
        tokens, lengths = pad_rows([one.rows for one in numbers], self.text.pad, multiple)
        at, words = pad([one.at for one in numbers], 0, multiple)
        target, _ = pad([one.labels for one in numbers], UNLABELED, multiple)
        squares = [one.distances for one in numbers if one.distances is not None]
        relation = torch.zeros(len(squares), tokens.shape[1], tokens.shape[1], dtype=torch.long)
        for n, square in enumerate(squares):
            relation[n, : len(square), : len(square)] = square
        tokens, lengths, at, target, *more = on(device, tokens, lengths, at, target, *([relation] if squares else []))
        return Batch((tokens, lengths, at, *more), target, UNLABELED, int(words.sum()), [one.line for one in numbers])

    def evaluate(self, model: nn.Module, examples: Sequence[Sentence], confusion: bool | None = None) -> dict[str, Any]:
        """Accuracy over all words, and over those that the vocabulary lacks, which a model knows by their bytes and neighbors alone;
        precision, recall and F1 of each tag."""
        self.check_labeled(examples, more=" to compare with, or use `tag`")
        numbers = self.numbers(examples)
        metrics, guessed, wanted = self.judge(model, numbers)
        found: dict[str, Any] = {"sentences": len(numbers), **metrics}
        if self.text.kind == "words":
            unknown = torch.tensor([row[0] == self.text.unk for one in numbers for row in one.rows])
            found["unknown_words"] = int(unknown.sum())
            if unknown.any():
                found["accuracy_unknown"] = percent((guessed == wanted)[unknown])
        return {**found, **self.by_class(guessed, wanted, confusion)}

    def tag(self, model: nn.Module, examples: Sequence[Sentence]) -> list[Tagged]:
        numbers = self.numbers([replace(one, tags=None) for one in examples])
        found = []
        for one, rows in zip(examples, self.logits(model, numbers), strict=True):
            tags = [self.labels[tag] for tag in rows.argmax(-1).tolist()]
            found.append(Tagged(tags, one.words, self.labels, rows.double().softmax(-1).numpy()))
        return found

    def look(self, model: nn.Module, text: str) -> tuple[list[str], str]:
        """Reads a sentence; its tokens, and the words' tags."""
        sentence = Sentence(self.words(text), None, 1)
        pieces = self.text.labels(row[0] for row in self.numbers([sentence])[0].rows)
        return list(sentence.words) if self.text.kind == "words" else pieces, " ".join(self.tag(model, [sentence])[0])


def token_distances(one: Sentence, sizes: Sequence[int]) -> Tensor:
    """Steps between a sentence's tokens along its parse tree, N N: a token is where its word is (word n has sizes[n] tokens)."""
    if one.heads is None:
        what = f"line {one.line}: the sentence has no parse tree, and model.position is 'syntax'"
        raise WrongExample(f"{what}; give a .conllu file whose HEAD column is filled, or train with another model.position")
    try:
        steps = tree_distances([one.heads])[0].short()
    except SaccadeError as error:
        raise WrongExample(f"line {one.line}: {error}") from None
    word = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return steps[word][:, word]
