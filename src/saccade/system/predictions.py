"""What can be done with a model, one text at a time or many: translate, classify, tag, generate, align, look."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import nn

from ..data.conllu import Sentence
from ..data.documents import Document as Text
from ..data.image_examples import Asked, Captioned, Picture, Pictured
from ..data.labeled import Labeled
from ..data.node_graphs import Graph
from ..data.pairs import Pair
from ..data.surface_meshes import Surface
from ..decoding import MakeSearch
from ..errors import SaccadeError, with_article
from ..models.protocols import Seq2Seq
from ..recipe import Recipe
from ..tasks.autoencoding import Autoencoding
from ..tasks.captioning import Captioning
from ..tasks.classification import Classification
from ..tasks.image_batches import PictureTask
from ..tasks.image_classification import ImageClassification
from ..tasks.language import LanguageModelling
from ..tasks.nodes import Nodes
from ..tasks.open_questions import ANSWERING, OpenQuestions
from ..tasks.output_lengths import check_length
from ..tasks.questions import Questions, asked_of
from ..tasks.tagging import Tagging
from ..tasks.task import Task, device_of
from ..tasks.translation import Translation
from ..views.answers import Aligned, Answered, Classified, Generated, Tagged, Translated
from ..views.document import Document
from ..views.html_page import small_table
from .attention_sites import show_denoising, show_reading, show_translation
from .decoding_steps import Stepping
from .image_predictions import Seeing, one_search, pictured_of, pictures_of, sampling

LONGEST = 50_000  # characters of a text to translate
MOST_SHOWN = 1000  # tokens that are generated to be looked at, where a text is still longer
EXAMPLES = (
    (Translation, Pair), (Captioning, Captioned), (Classification, Labeled), (Tagging, Sentence), (LanguageModelling, Text),
    (Nodes, Graph | Surface), (Questions, Asked), (OpenQuestions, Asked), (ImageClassification, Pictured), (Autoencoding, Pictured),
)  # fmt: skip
CAPTIONS = 'm.evaluate([("picture.png", "a black cat")])'
T = TypeVar("T", bound=Task)
R = TypeVar("R")


class Usable(Seeing, Stepping):
    """A model that can be used; a str is always one text and gives one result, a list gives a list."""

    recipe: Recipe
    model: nn.Module
    task: Any
    folder: Any

    @property
    def device(self) -> torch.device:
        return device_of(self.model)

    def require(self, kind: type[T] | tuple[type[Any], ...], what: str) -> T:
        """The task, if it is of this kind, or of one of these."""
        if not isinstance(self.task, kind):
            wrong, usage = (
                f"{with_article(self.recipe.task)} model cannot {what}; use",
                self.task.usage(self.recipe).format(model="MODEL"),
            )
            raise SaccadeError(
                f"{wrong} {self.task.call(self.recipe)}", shell=f"{wrong} `saccade {usage}`"
            )
        return self.task

    def check_translatable(self, texts: Sequence[str], first: int = 1) -> Translation:
        """The task, if it is translation and each text a sentence: a whole book would take hours, and all memory."""
        for n, size in enumerate(map(len, texts), first):
            if size > LONGEST:
                raise SaccadeError(
                    f"line {n} has {size:,} characters, more than {LONGEST:,}; put one sentence on each line"
                )
        return self.require(Translation, "translate")

    def translations(
        self, texts: Sequence[str], search: MakeSearch, max_length: int | None = None
    ) -> Iterator[tuple[int, Translated]]:
        """Translations as they come, each with the number of its text; one of `max_length` tokens is cut there."""
        if max_length is not None:
            check_length(max_length)
        return self.check_translatable(texts).translate(
            self.model, texts, search, max_length=max_length
        )

    @overload
    def translate(
        self,
        texts: str,
        beam: int = 1,
        length_penalty: float = 1.0,
        *,
        max_length: int | None = None,
        **how: Any,
    ) -> Translated: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        beam: int = 1,
        length_penalty: float = 1.0,
        *,
        max_length: int | None = None,
        **how: Any,
    ) -> list[Translated]: ...
    def translate(
        self,
        texts: str | Iterable[str],
        beam: int = 1,
        length_penalty: float = 1.0,
        sample: Mapping[str, Any] | None = None,
        max_length: int | None = None,
        length_rule: str = "power",
        coverage_penalty: float = 0.0,
        **how: Any,
    ) -> Translated | list[Translated]:
        """The translation of a text, or those of a list in its order: greedy, by a `beam`, or sampled (temperature, top_k, top_p, seed);
        one of `max_length` tokens is cut there. `length_rule` (power, gnmt) and `coverage_penalty` rank a beam's outputs."""
        search = one_search(
            beam,
            sampling(sample, how),
            length_penalty,
            length_rule,
            coverage_penalty,
            seed_alone=sample is not None,
        )

        def work(given: list[str]) -> list[Translated]:
            found = dict(self.translations(given, search, max_length))
            return [
                replace(found[n], look=partial(self.look, text, found[n].text))
                for n, text in enumerate(given)
            ]

        return one_or_many(texts, work, self.task.call(self.recipe))

    decode = translate  # its name in papers, and in older programs

    def classify(self, texts: Any) -> Any:
        """A text's label, the probability of each label, and how much each piece counted; or a list of these. For a model of pictures the
        same of an image file, by its path; of a list of paths or a folder of images a list."""
        if isinstance(self.task, ImageClassification):
            return self.with_images(texts, partial(self.task.classify, self.model))
        task = self.require(Classification, "label a text")

        def work(given: list[str]) -> list[Classified]:
            found = zip(given, task.classify(self.model, given), strict=True)
            return [replace(one, look=partial(self.look, text)) for text, one in found]

        return one_or_many(texts, work, task.method)

    @overload
    def tag(self, sentences: str | Sentence) -> Tagged: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, sentences: Iterable[str | Sequence[str] | Sentence]) -> list[Tagged]: ...
    def tag(self, sentences: Any) -> Any:
        """A tag for each word of a sentence (words are what spaces separate), or of each sentence of a list; each may be a list of words."""
        task = self.require(Tagging, "tag words")
        alone = isinstance(sentences, str | Sentence)
        given = [
            sentence_of(one, n)
            for n, one in enumerate([sentences] if alone else items(sentences, task.method), 1)
        ]
        found = task.tag(self.model, given)
        for one in found:
            one.look = partial(self.look, " ".join(one.words))
        return found[0] if alone else found

    @overload
    def answer(self, image: str | Path | Picture, question: str) -> Answered: ...  # type: ignore[overload-overlap]
    @overload
    def answer(self, image: str | Path | Picture, question: Iterable[str]) -> list[Answered]: ...
    @overload
    def answer(self, image: Iterable[tuple[str | Path | Picture, str]]) -> list[Answered]: ...
    def answer(self, image: Any, question: Any = None) -> Any:
        """The answer to a question about a picture, with the probability of each and where each word looked; a list for several questions
        about it, or for pairs of pictures (or their files) and questions."""
        task: Questions | OpenQuestions = self.require(
            ANSWERING, "answer a question about a picture"
        )
        alone = isinstance(question, str)
        if question is None:
            given = items(image, "m.answer([(image, question), …])")
        else:
            given = [
                (image, one) for one in ([question] if alone else items(question, task.method))
            ]
        found = task.answer(self.model, [asked_of(one, n) for n, one in enumerate(given, 1)])
        return found[0] if alone else found

    def generate(
        self,
        prompt: str = "",
        limit: int = 200,
        sample: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Generated:
        """Continues a prompt by at most `limit` tokens, piece by piece; sampled by temperature, top_k, top_p and seed."""
        task = self.require(LanguageModelling, "continue a text")
        if not isinstance(prompt, str):
            raise SaccadeError(
                f"expected one text to continue, got {type(prompt).__name__}; write {task.method}"
            )
        if not 1 <= limit <= 1_000_000:
            raise SaccadeError(f"a limit of {limit} tokens; give 1 to 1,000,000")
        return Generated(
            prompt, task.generate(self.model, prompt, limit, sampling(sample, how) or {})
        )

    @overload
    def align(self, pairs: str, target: str) -> Aligned: ...
    @overload
    def align(self, pairs: Iterable[Pair | tuple[str, str]]) -> list[Aligned]: ...
    def align(self, pairs: Any, target: str | None = None) -> Any:
        """Where the model looks while it generates a given target: of a source and a target, or of each pair of a list."""
        task, alone = self.require(Translation, "align words"), isinstance(pairs, str)
        given = [(pairs, target)] if alone else items(pairs, "m.align(source, target)")
        found = task.align(self.model, [example_of(task, one, n) for n, one in enumerate(given, 1)])
        return found[0] if alone else found

    @torch.no_grad()
    def look(
        self, text: Any, target: str | None = None, beam: int = 1, only: str | None = None
    ) -> Document:
        """What every attention of the model looked at while it read a text, or translated it (or generated a given target). For a model of
        pictures the first is a picture or its file. Of a long text, the weights of `only` one attention, by its name, take less memory."""
        if isinstance(self.task, PictureTask):
            seen = self.look_at(text, target, beam)
            return seen if only is None else replace(seen, sites=[seen[only]])
        if not isinstance(text, str):
            raise SaccadeError(
                f"expected one text, got {type(text).__name__}; look at one at a time: m.look(text)"
            )
        if not text.strip():
            raise SaccadeError("the text is empty; give a sentence")
        if isinstance(self.task, Translation):
            most = MOST_SHOWN if len(text.split()) > MOST_SHOWN else None
            output = self.translate(text, beam, max_length=most).text if target is None else target
            source, outcome, sites = show_translation(self.task, self.model, text, output, only)
        elif target is None and self.task.needs is Seq2Seq:
            source, outcome, sites = show_denoising(self.task, self.model, text)
        elif target is None:
            source, outcome, sites = show_reading(self.task, self.model, text, only)
        else:
            raise SaccadeError(
                f"{with_article(self.recipe.task)} model generates no text; leave the target out"
            )
        sites = [site for site in sites if only in (None, site.name)]
        if not sites and only is not None:
            raise SaccadeError(
                f"no attention named '{only}'; leave the name out to see which there are"
            )
        if not sites:
            raise SaccadeError(
                f"the family {self.name} has no attention to show; train one that attends, such as transformer"
            )
        called = (
            ("source", "target")
            if isinstance(self.task, Translation)
            else ("text", self.task.outcome)
        )
        return Document(
            title=text, source=source, target=outcome, sites=sites, model=self.name, called=called
        )

    def unknown_words(self, texts: str | Sequence[str]) -> list[str]:
        """The pieces of the texts that the model has never seen and reads as <unk>, each once, in order."""
        if self.task.reads is None:  # it reads something else than text
            return []
        unk, encoded = (
            self.task.reads.unk,
            self.task.reads.encode_batch([texts] if isinstance(texts, str) else list(texts)),
        )
        return list(
            dict.fromkeys(
                piece
                for one in encoded
                for id, piece in zip(one.ids, one.pieces, strict=True)
                if id == unk
            )
        )

    def facts(self) -> dict[str, str]:
        """What a person wants to know first."""
        sizes = {id(one): f"{len(one):,}" for one, _ in self.task.texts([]).values()}
        count = sum(one.numel() for one in self.model.parameters())
        found = {"task": self.recipe.task, "family": self.name, "parameters": f"{count:,}"}
        if sizes:
            found["vocabulary"] = " + ".join(sizes.values())
        elif isinstance(self.task, PictureTask):
            found["pictures"] = "{} × {}".format(*self.task.image_size)
        return {**found, "folder": str(self.folder or "none, in memory")}

    def __repr__(self) -> str:
        facts = self.facts()
        shown = [
            f"{name} {facts[name]}"
            for name in ("vocabulary", "pictures", "folder")
            if name in facts
        ]
        return f"System({', '.join([facts['task'], facts['family'], facts['parameters'] + ' parameters', *shown])})"

    def _repr_html_(self) -> str:
        return small_table([*self.facts().items(), ("use", self.task.call(self.recipe))])


def items(given: Any, call: str) -> list[Any]:
    """A list of what was given, if it is several things."""
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise SaccadeError(
            f"expected a text or a list of texts, got {type(given).__name__}; write {call}"
        )
    return list(given)


def one_or_many(given: Any, work: Callable[[list[str]], list[R]], call: str) -> R | list[R]:
    """The result of one text, or the results of many."""
    if isinstance(given, str):
        return work([given])[0]
    texts = items(given, call)
    wrong = next((n for n, one in enumerate(texts, 1) if not isinstance(one, str)), None)
    if wrong is not None:
        raise SaccadeError(
            f"expected texts, got {type(texts[wrong - 1]).__name__} as number {wrong}; write {call}"
        )
    return work(texts)


def sentence_of(one: Any, n: int) -> Sentence:
    """A sentence from itself, a text or a list of words."""
    words = one.words if isinstance(one, Sentence) else one.split() if isinstance(one, str) else one
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise SaccadeError(
            f"sentence {n} is {str(one)[:40]!r}; expected a text, a list of words or a Sentence"
        )
    if not words:
        raise SaccadeError(f"sentence {n} has no words; give at least one")
    return one if isinstance(one, Sentence) else Sentence(tuple(words), None, n)


def example_of(task: Task, one: Any, n: int) -> Any:
    """An example as it is, or from plain values: (source, target), (text, label), (words, tags), (image, captions), (image, question,
    answer), or a text."""
    kind: Any = next((kind for owner, kind in EXAMPLES if isinstance(task, owner)), object)
    values = [one] if isinstance(one, str) else one
    if isinstance(one, kind):
        return one
    if kind is Pictured:
        return pictured_of(one, n)
    if kind is Asked and isinstance(one, list | tuple) and len(one) == 3:
        return Asked(*asked_of(one[:2], n), str(one[2]), n)
    if (
        kind is Asked
        or not isinstance(values, list | tuple)
        or len(values) != (1 if kind is Text else 2)
        or None in values
    ):
        forms = {
            Pair: "(source, target)",
            Labeled: "(text, label)",
            Sentence: "(words, tags)",
            Captioned: "(image, captions)",
        }
        expected = {**forms, Asked: "(image, question, answer)"}.get(kind, "a text")
        raise SaccadeError(f"example {n} is {str(one)[:60]!r}; expected {expected}")
    if kind is Captioned:
        return Captioned(
            pictures_of(values[0], CAPTIONS)[0][0],
            (values[1],) if isinstance(values[1], str) else tuple(values[1]),
            n,
        )
    split = (
        [tuple(each.split()) if isinstance(each, str) else tuple(each) for each in values]
        if kind is Sentence
        else values
    )
    return kind(*split, line=n)
