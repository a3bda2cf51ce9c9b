"""A system: a model with its recipe and its task, and what can be done with it."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..config import recipes
from ..config.recipes import Recipe
from ..data.conllu import Sentence
from ..data.image_examples import Picture
from ..data.pairs import Pair
from ..errors import SaccadeError, with_article
from ..files import Writer
from ..tasks.task import WrongExample, device_of, items
from ..views.answers import (
    Aligned,
    Answered,
    Caption,
    Generated,
    Metrics,
    Result,
    Tagged,
    Translated,
)
from ..views.document import Document
from ..views.html_page import small_table
from ..views.step_answers import Scored, Steps
from .model_folder import VOCABULARIES
from .recipe_data import examples_of, source_of

File = str | Path
Image = File | Picture
# What a model of another task cannot do, by the verb that was asked for.
CANNOT = {
    "classify": "label a text",
    "tag": "tag words",
    "generate": "continue a text",
    "align": "align words",
    "steps": "translate",
    "score": "translate",
    "caption": "describe a picture",
    "answer": "answer a question about a picture",
    "reconstruct": "make pictures",
    "encode": "squeeze its input into a vector",
    "from_latent": "decode a vector",
}


@dataclass(frozen=True, repr=False)
class System:
    """A model with its recipe and its task: what a model folder contains.

    A text, a picture or a sentence by itself gives one answer; a list (or a folder of pictures) gives a list.
    """

    recipe: Recipe
    model: nn.Module
    task: Any
    notes: tuple[str, ...] = ()  # what somebody who trains it should know
    folder: Path | None = None  # where it was loaded from

    @property
    def name(self) -> str:
        return str(self.recipe.model["family"])

    @property
    def device(self) -> torch.device:
        return device_of(self.model)

    def require(self, verb: str) -> Any:
        """The task, if its models do this."""
        if verb not in self.task.verbs:
            wrong = f"{with_article(self.recipe.task)} model cannot {CANNOT.get(verb, verb)}; use"
            usage = self.task.usage(self.recipe).format(model="MODEL")
            raise SaccadeError(
                f"{wrong} {self.task.call(self.recipe)}",
                shell=f"{wrong} `saccade {usage}`",
                code="wrong-task",
            )
        return self.task

    # --- prediction

    def predict(self, inputs: Any, **options: Any) -> Any:
        """The answer of a model to one input, or the answers to several.

        Args:
            inputs: What the task reads: a text, a sentence, a picture or its file, a (picture, question) pair; or a list of these,
                or a folder of pictures.
            options: Those of the task, such as `beam=5`; see `m.task.predict_options`.

        Returns:
            An object of `saccade.views.answers`, or a list of them in the order of the inputs.
        """
        given, alone = self.task.inputs(inputs)
        found = dict(self.predictions(given, **options))
        return found[0] if alone else [found[n] for n in range(len(given))]

    def predictions(self, inputs: Sequence[Any], **options: Any) -> Iterator[tuple[int, Any]]:
        """Answers as they come, each with the number of its input; `inputs` are those that `m.task.inputs` gives."""
        given = {name: value for name, value in options.items() if value is not None}
        self.task.check_predict(given)
        return (
            (n, self.with_look(inputs[n], one))
            for n, one in self.task.predict(self.model, inputs, **given)
        )

    def with_look(self, given: Any, answer: Any) -> Any:
        """The answer, which can show what the model looked at for it."""
        if isinstance(answer, Result) and self.task.looks:
            object.__setattr__(
                answer, "look", partial(self.look, *self.task.seen_with(given, answer))
            )
        return answer

    @overload
    def translate(
        self, texts: str, beam: int = 1, length_penalty: float = 1.0, **how: Any
    ) -> Translated: ...
    @overload
    def translate(
        self, texts: Iterable[str], beam: int = 1, length_penalty: float = 1.0, **how: Any
    ) -> list[Translated]: ...
    def translate(
        self, texts: Any, beam: int = 1, length_penalty: float = 1.0, sample: Any = None, **how: Any
    ) -> Any:
        """The translation of a text, or those of a list in its order: greedy, by a `beam`, or sampled (temperature, top_k, top_p, seed);
        one of `max_length` tokens is cut there. `length_rule` (power, gnmt) and `coverage_penalty` rank a beam's outputs."""
        self.require("translate")
        return self.predict(texts, beam=beam, length_penalty=length_penalty, sample=sample, **how)

    decode = translate  # its name in papers, and in older programs

    def classify(self, texts: Any, **how: Any) -> Any:
        """A text's label, the probability of each label, and how much each piece counted; or a list of these. For a model of pictures the
        same of an image file, by its path; of a list of paths or a folder of images a list."""
        self.require("classify")
        return self.predict(texts, **how)

    @overload
    def tag(self, sentences: str | Sentence) -> Tagged: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, sentences: Iterable[str | Sequence[str] | Sentence]) -> list[Tagged]: ...
    def tag(self, sentences: Any) -> Any:
        """A tag for each word of a sentence (words are what spaces separate), or of each sentence of a list; each may be a list of words."""
        self.require("tag")
        return self.predict(sentences)

    @overload
    def caption(self, pictures: Picture, beam: int = 1, **how: Any) -> Caption: ...
    @overload
    def caption(self, pictures: File, beam: int = 1, **how: Any) -> Caption | list[Caption]: ...
    @overload
    def caption(self, pictures: Iterable[Image], beam: int = 1, **how: Any) -> list[Caption]: ...
    def caption(self, pictures: Any, beam: int = 1, **how: Any) -> Any:
        """The caption of a picture (an image file, or one of a data set), or those of a list or a folder: greedy, by a `beam`, or sampled
        (temperature, top_k, top_p, seed); one of `max_length` tokens is cut there. A beam's outputs are ranked by log-probability /
        length^`length_penalty`."""
        self.require("caption")
        return self.predict(pictures, beam=beam, **how)

    @overload
    def answer(self, image: Image, question: str) -> Answered: ...  # type: ignore[overload-overlap]
    @overload
    def answer(self, image: Image, question: Iterable[str]) -> list[Answered]: ...
    @overload
    def answer(self, image: Iterable[tuple[Image, str]]) -> list[Answered]: ...
    def answer(self, image: Any, question: Any = None) -> Any:
        """The answer to a question about a picture, with the probability of each and where each word looked; a list for several questions
        about it, or for pairs of pictures (or their files) and questions."""
        task = self.require("answer")
        if question is None:
            return self.predict(items(image, "m.answer([(image, question), …])"))
        if isinstance(question, str):
            return self.predict((image, question))
        return self.predict([(image, one) for one in items(question, task.method)])

    def generate(
        self, prompt: str = "", limit: int = 200, sample: Any = None, **how: Any
    ) -> Generated:
        """Continues a prompt by at most `limit` tokens, piece by piece; sampled by temperature, top_k, top_p and seed."""
        task = self.require("generate")
        if not isinstance(prompt, str):
            raise SaccadeError(
                f"expected one text to continue, got {type(prompt).__name__}; write {task.method}",
                code="wrong-input",
            )
        found: Generated = self.predict(prompt, limit=limit, sample=sample, **how)
        return found

    def reconstruct(self, images: Any, noise: float | None = None) -> Any:
        """What an autoencoder makes of an image file, beside the image itself; of a list of paths or a folder, a list. `noise` is added to
        what is read: by default as much as in training. An autoencoder of texts: the text that it makes of a text as it is."""
        self.require("reconstruct")
        return self.predict(images, noise=noise)

    def encode(self, given: Any) -> NDArray[np.float32]:
        """The numbers into which an autoencoder squeezes a text or a picture: one vector, or of several a row each."""
        task = self.require("encode")
        inputs, alone = task.inputs(given)
        found: torch.Tensor = task.encode(self.model, inputs)
        return (found[0] if alone else found).numpy()

    def from_latent(self, vectors: Any) -> list[Any]:
        """What an autoencoder makes of vectors such as `encode` gives, a row each: texts, or pictures as arrays of bytes."""
        task, wanted = self.require("from_latent"), self.recipe.autoencoding.latent
        latent = torch.as_tensor(np.asarray(vectors), dtype=torch.float32)
        if latent.dim() != 2 or latent.shape[1] != wanted:
            raise SaccadeError(
                f"the vectors have the shape {tuple(latent.shape)}; give rows of {wanted} numbers, as `encode` does",
                code="wrong-latent",
            )
        found: list[Any] = task.from_latent(self.model, latent)
        return found

    # --- attention and decoding

    @overload
    def align(self, pairs: str, target: str) -> Aligned: ...
    @overload
    def align(self, pairs: Iterable[Pair | tuple[str, str]]) -> list[Aligned]: ...
    def align(self, pairs: Any, target: str | None = None) -> Any:
        """Where the model looks while it generates a given target: of a source and a target, or of each pair of a list."""
        task, alone = self.require("align"), isinstance(pairs, str)
        given = [(pairs, target)] if alone else items(pairs, "m.align(source, target)")
        found = task.align(self.model, [task.example(one, n) for n, one in enumerate(given, 1)])
        return found[0] if alone else found

    def steps(self, text: str, beam: int = 1, candidates: int = 5, **how: Any) -> Steps:
        """The translation of a text and what it was chosen from: at each step every beginning that the search had, with the likeliest
        `candidates` to follow it. `search` instead of a beam: one of `searcher`'s."""
        found: Steps = self.require("steps").steps(self.model, text, beam, candidates, **how)
        return found

    def score(self, source: str, target: str) -> Scored:
        """How likely the model finds a given translation: p of each token after those before it, its rank, what the model would rather
        have said, and the source word it looks at; the alignment too, where the model attends."""
        found: Scored = self.require("score").score_target(self.model, source, target)
        return found

    @torch.no_grad()
    def look(
        self, text: Any, target: str | None = None, beam: int = 1, only: str | None = None
    ) -> Document:
        """What every attention of the model looked at while it read a text, or translated it (or generated a given target). For a model of
        pictures the first is a picture or its file. Of a long text, the weights of `only` one attention, by its name, take less memory."""
        seen: Document = self.task.attention(self.model, text, target, only=only, beam=beam)
        sites = [site for site in seen.sites if only in (None, site.name)]
        if not sites and only is not None:
            raise SaccadeError(
                f"no attention named '{only}'; leave the name out to see which there are",
                code="unknown-attention",
            )
        if not sites:
            raise SaccadeError(
                f"the family {self.name} has no attention to show; train one that attends, such as {self.task.attending}",
                code="no-attention",
            )
        return replace(seen, sites=sites, model=self.name)

    # --- data and evaluation

    def read(self, where: str) -> list[Any]:
        """Examples as this system's recipe would read them; `train`, `dev` and `test` are its own."""
        if self.own_source(where) is not None:
            return examples_of(self.recipe, where)
        found: list[Any] = self.task.read(self.recipe, where)
        return found

    def own_source(self, where: str) -> str | None:
        """What `train`, `dev` and `test` are by the recipe, which comes with the model: other data is chosen by whoever names it."""
        if where not in ("train", "dev", "test") or os.path.exists(where):
            return None
        return getattr(self.recipe.data, where) or (
            source_of(self.recipe, where) if where == "test" else self.recipe.data.train
        )

    def inputs(self, where: str) -> list[Any]:
        """The inputs of data that this system can predict for, without gold targets or labels."""
        return list(self.each_input(where))

    def each_input(self, where: str) -> Iterator[Any]:
        """The same, as they are read."""
        found: Iterator[Any] = self.task.read_inputs(self.recipe, where)
        return found

    def evaluate(self, examples: str | Path | Iterable[Any], **options: Any) -> Metrics:
        """The task's metrics on examples, or on data by its path or name (`test`); options are the task's own, such as `beam` or `stride`."""
        check_options(self.recipe, options)
        where = str(examples) if isinstance(examples, str | Path) else ""
        if where:
            given = self.read(where)
        else:
            plain = items(examples, 'm.evaluate("test.tsv")')
            given = [self.task.example(one, n) for n, one in enumerate(plain, 1)]
        if not given:
            raise SaccadeError(
                "there are no examples to evaluate on; give data with at least one",
                code="no-examples",
            )
        try:
            known = {"controls": self.read("train")} if options.pop("controls", False) else {}
            return Metrics(self.task.evaluate(self.model, given, **options, **known))
        except WrongExample as error:  # who read the file knows its name
            raise (SaccadeError(f"{where}, {error}", code=error.code) if where else error) from None

    # --- facts

    def unknown_words(self, texts: str | Sequence[str]) -> list[str]:
        """The pieces of the texts that the model has never seen and reads as <unk>, each once, in order."""
        words = self.task.reads
        if words is None:  # it reads something else than text
            return []
        encoded = words.encode_batch([texts] if isinstance(texts, str) else list(texts))
        pieces = (pair for one in encoded for pair in zip(one.ids, one.pieces, strict=True))
        return list(dict.fromkeys(piece for id, piece in pieces if id == words.unk))

    def facts(self) -> dict[str, str]:
        """What a person wants to know first."""
        sizes = {id(one): f"{len(one):,}" for one, _ in self.task.texts([]).values()}
        count = sum(one.numel() for one in self.model.parameters())
        found = {"task": self.recipe.task, "family": self.name, "parameters": f"{count:,}"}
        if sizes:
            found["vocabulary"] = " + ".join(sizes.values())
        elif "image" in self.task.fields:
            found["pictures"] = "{} × {}".format(*self.task.image_size)
        return {**found, "folder": str(self.folder or "none, in memory")}

    def __repr__(self) -> str:
        facts = self.facts()
        names = (name for name in ("vocabulary", "pictures", "folder") if name in facts)
        shown = [f"{name} {facts[name]}" for name in names]
        return f"System({', '.join([facts['task'], facts['family'], facts['parameters'] + ' parameters', *shown])})"

    def _repr_html_(self) -> str:
        return small_table([*self.facts().items(), ("use", self.task.call(self.recipe))])


def check_options(recipe: Recipe, options: Mapping[str, Any]) -> None:
    """Raises when an evaluation of the recipe's task has no such option, or not with that value."""
    known = recipe.kind.options
    for name, value in options.items():
        if name not in known:
            # its name on the command line
            shown = {
                "quarters": "lengths",
                "max_length": "max-length",
                "length_penalty": "length-penalty",
            }.get(name, name)
            sentence = f"an evaluation of {recipe.task} has no option '{{}}'; leave it out"
            raise SaccadeError(
                sentence.format(name), shell=sentence.format(shown), code="unknown-option"
            )
        if value is not None:
            known[name](value)


def model_files(system: System) -> dict[str, Writer]:
    """The model folder's files besides the parameters."""
    text = recipes.to_json(system.recipe, of_model=True)
    tokens = json.dumps(system.task.tokens(), ensure_ascii=False) + "\n"
    return {
        "config.json": lambda path: path.write_text(text, encoding="utf-8"),
        VOCABULARIES: lambda path: path.write_text(tokens, encoding="utf-8"),
    }
