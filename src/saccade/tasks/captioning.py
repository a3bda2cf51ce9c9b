"""A text about a picture, after a question where there is one; captioning.

B batch, H × W pixels, R × C positions of the image encoder's grid, T tokens of a caption."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import record
from ..core.record import source_weights
from ..data.batches import Plans, on, pad
from ..data.corpora import CAPTIONED
from ..data.image_decoding import fit_box
from ..data.image_examples import Captioned, Picture
from ..data.vocabulary import Encoded, Vocabulary
from ..decoding import PromptedModel, decode
from ..decoding.searches import Hypothesis, Search
from ..models.builder import Builder
from ..models.protocols import ImageEncoder, ImageToText
from ..recipe import Recipe
from ..training.losses import Batch
from ..views.answers import Caption
from ..views.document import Document
from .attention_sites import attends, sites_over
from .generating import Generating
from .image_batches import (
    PictureTask,
    PictureWork,
    Seen,
    Size,
    check_decoded,
    decoded,
    on_device,
    one_picture,
    pictures_of,
    size_of,
    sizes_from,
)
from .search_options import OutputLengths, make_search
from .task import GENERATING, device_of, from_tokens, learn_vocabulary, percent_of, table
from .text_scores import CaptionScores, word_weights

TOGETHER = 64  # pictures that are described at once


class Forced(NamedTuple):
    """A caption that a model was made to generate: its tokens, those the model found the likeliest instead, and the mean weights of all
    attention to the picture (words × R × C), a word's being the mean of its tokens'."""

    text: Encoded
    likeliest: list[int]
    weights: NDArray[np.floating]

    def knows(self, word: int) -> bool:
        """Whether the model found every token of that word the likeliest."""
        each = zip(self.text.words, self.text.ids, self.likeliest, strict=True)
        return all(id == likeliest for at, id, likeliest in each if at == word)


class Describing(PictureTask, Generating):
    """A text about a picture: one vocabulary; each text of an example is one to learn from, and all are references. The decoder reads the
    example's question before it generates, where it has one."""

    needs = ImageToText
    settings = (*PictureTask.settings, *GENERATING)
    counted, judged_tokens = "pictures", 2048
    texts_about: ClassVar[Any]  # of an example: the texts to generate
    question_of: ClassVar[Any]  # and what is read before them
    outcome: ClassVar[str]

    def __init__(
        self, text: Vocabulary, image_size: Size, lengths: OutputLengths | None = None
    ) -> None:
        self.text, self.reads, self.image_size = text, text, image_size
        self.lengths = lengths or OutputLengths()

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Any], given: Vocabulary | None = None) -> Self:
        lines = (
            text for one in train for text in (cls.question_of(one), *cls.texts_about(one)) if text
        )
        return cls(learn_vocabulary(recipe, lines, given), size_of(recipe, train))

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(
            from_tokens(tokens, "text"),
            sizes_from(tokens),
            OutputLengths(**tokens.get("outputs", {})),
        )

    def tokens(self) -> dict[str, Any]:
        found = {"text": self.text.to_json(), "image_size": list(self.image_size)}
        return found | ({"outputs": asdict(self.lengths)} if self.lengths.longest else {})

    def texts(self, examples: Sequence[Any]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {
            f"{self.outcome}s": (
                self.text,
                [text for one in examples for text in self.texts_about(one)],
            )
        }

    def build(self, builder: Builder) -> nn.Module:
        return builder.make(ImageToText, builder.image_encoder(), len(self.text))

    def work(
        self, recipe: Recipe, train: Sequence[Any], dev: Sequence[Any], device: torch.device
    ) -> PictureWork:
        made = CaptionWork(self, recipe, train, dev, device)
        self.lengths = OutputLengths.measure(made.lengths)
        return made

    def numbers(self, examples: Sequence[Any]) -> list[Seen]:
        """An example for each text; those of one picture share its pixels."""
        wrong = dict[int, str]()
        pixels = decoded([one.image for one in examples], self.image_size, wrong)
        questions = self.text.encode_ids([self.question_of(one) for one in examples])
        ids = iter(
            self.text.encode_ids([text for one in examples for text in self.texts_about(one)])
        )
        each = enumerate(zip(pixels, questions, examples, strict=True))
        return [
            Seen(x, asked, next(ids), [], one.line, one, wrong.get(n, ""))
            for n, (x, asked, one) in each
            for _ in self.texts_about(one)
        ]

    def size(self, example: Seen) -> tuple[int, int]:
        """A picture counts as one token."""
        return 1, len(example.read) + len(example.target) + 1

    def batch(self, numbers: Sequence[Seen], device: torch.device, multiple: int = 1) -> Batch:
        """Texts are read with the question and <bos> in front of them, and asked for with <eos> behind them."""
        check_decoded(numbers)
        words = self.text
        read, _ = pad([[*one.read, words.bos, *one.target] for one in numbers], words.pad, multiple)
        wanted = [[*[words.pad] * len(one.read), *one.target, words.eos] for one in numbers]
        target, _ = pad(wanted, words.pad, multiple)
        read, target, one_each = on(
            device, read, target, torch.ones(len(numbers), dtype=torch.long)
        )
        inputs = (on_device([one.pixels for one in numbers], device), one_each, read)
        asked_for = sum(len(one.target) + 1 for one in numbers)
        return Batch(inputs, target, words.pad, asked_for, [one.line for one in numbers])

    def describe(
        self,
        model: nn.Module,
        images: Sequence[Picture],
        max_length: int | None = None,
        look: bool = True,
        questions: Sequence[str] = (),
        **options: Any,
    ) -> Iterator[Caption]:
        """The texts about pictures, in their order, each after its question where there are `questions`; where `look`, with the weights of
        each word, those of the question first."""
        model.eval()
        words, device, search = self.text, device_of(model), make_search(options)
        for start in range(0, len(images), TOGETHER):
            some = images[start : start + TOGETHER]
            asked = list(questions[start : start + TOGETHER]) or [""] * TOGETHER
            pixels = on_device(decoded(some, self.image_size), device)
            # <unk> says nothing
            started = search(
                words.bos, words.eos, tuple({words.pad, words.bos, words.unk} - {words.eos})
            )
            limits = [max_length or self.lengths.limit(1)] * len(some)
            found = self.search(
                model, pixels, words.encode_ids(asked[: len(some)]), started, limits
            )
            texts = [
                [words.decode(one.tokens, keep_unknown=True) for one in hypotheses]
                for hypotheses in found
            ]
            best_of = [text for text, *_ in texts]
            made = (
                self.force(model, pixels, best_of, asked)
                if look and attends(model)
                else [None] * len(some)
            )
            for image, hypotheses, (text, *more), forced in zip(
                some, found, texts, made, strict=True
            ):
                best, weights = hypotheses[0], None if forced is None else forced.weights
                yield Caption(
                    text, best.log_prob, best.finished, more, text.split(), weights, image.name
                )

    def search(
        self,
        model: nn.Module,
        pixels: Tensor,
        questions: Sequence[list[int]],
        search: Search,
        limits: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """The outputs for each picture; questions of one length are read together."""
        found: dict[int, list[Hypothesis]] = {}
        for length in sorted(set(map(len, questions))):
            at = [n for n, one in enumerate(questions) if len(one) == length]
            ones = torch.ones(len(at), dtype=torch.long, device=pixels.device)
            read = torch.tensor([questions[n] for n in at], dtype=torch.long, device=pixels.device)
            asked = PromptedModel(model, read) if length else model
            made = decode(asked, pixels[at], ones, search, [limits[n] for n in at])  # type: ignore[arg-type]
            found |= dict(zip(at, made, strict=True))
        return [found[n] for n in range(len(questions))]

    @torch.no_grad()
    def force(
        self, model: nn.Module, pixels: Tensor, texts: Sequence[str], questions: Sequence[str] = ()
    ) -> list[Forced]:
        """What the model expects and looks at while it is made to generate these texts about pictures (B 3 H W), after questions."""
        model.eval()
        rows, columns = model.image.grid(*self.image_size)  # type: ignore[union-attr, operator]
        encoded = self.text.encode_batch(texts)
        asked = self.text.encode_batch(list(questions[: len(texts)]) or [""] * len(texts))
        both = zip(asked, encoded, strict=True)
        batch = self.batch(
            [Seen(pixels[0], question.ids, one.ids, [], 0, None) for question, one in both],
            pixels.device,
        )
        with record(model, quiet=True) as seen:
            likeliest = model(pixels, *batch.inputs[1:]).argmax(-1).tolist()
        found = []
        looks = source_weights(seen).double().cpu().numpy()
        for question, text, tokens, weights in zip(asked, encoded, likeliest, looks, strict=True):
            first = len(question.ids)
            parts = (weights[:first], question.words), (weights[first:], text.words)
            of_words = np.concatenate(
                [word_weights(*part, range(rows * columns)) for part in parts]
            )
            found.append(
                Forced(
                    text, tokens[first : first + len(text.ids)], of_words.reshape(-1, rows, columns)
                )
            )
        return found

    def write(
        self, model: nn.Module, examples: Sequence[Any], **search: Any
    ) -> Iterator[tuple[int, Caption]]:
        questions = [self.question_of(one) for one in examples]
        images = [one.image for one in examples]
        return enumerate(self.describe(model, images, look=False, questions=questions, **search))

    def shown(self, example: Any) -> tuple[str, str]:
        read = " ".join(filter(None, (example.image.name, self.question_of(example))))
        return read, self.texts_about(example)[0]

    def sums(self, outputs: Sequence[str], examples: Sequence[Any]) -> dict[str, Any]:
        return CaptionScores(outputs, [*map(self.texts_about, examples)]).sums()

    def judge(self, outputs: Sequence[str], examples: Sequence[Any]) -> dict[str, Any]:
        """BLEU-1 to 4 as papers on captions report it, with and without the brevity penalty, CIDEr-D, sacrebleu's BLEU with its signature,
        and exact matches."""
        return CaptionScores(outputs, [*map(self.texts_about, examples)]).metrics()


@table.add("captioning", paper="Xu et al. 2015")
class Captioning(Describing):
    """A text about a picture: one vocabulary; each caption of a picture is an example to learn from, and all are references."""

    data = CAPTIONED
    texts_about = staticmethod(lambda example: example.captions)
    question_of = staticmethod(lambda example: "")
    outcome: ClassVar[str] = "caption"
    command: ClassVar[str] = "caption {model} picture.png"
    method: ClassVar[str] = 'm.caption("picture.png")'
    verbs, routes, looks = ("caption",), ("caption",), ("image", "target")
    without_view: ClassVar[dict[str, Any]] = {"look": False}
    example_types, example_form = (Captioned,), "(image, captions)"

    @classmethod
    def from_values(cls, parts: Sequence[Any], line: int) -> Captioned:
        [image, *_], _ = pictures_of(parts[0], 'm.evaluate([("picture.png", "a black cat")])')
        captions = (parts[1],) if isinstance(parts[1], str) else tuple(parts[1])
        return Captioned(image, captions, line)

    def predict(
        self, model: nn.Module, images: Sequence[Picture], look: bool = True, **options: Any
    ) -> Iterator[tuple[int, Caption]]:
        """The caption of each picture, and where each of its words looked, unless `look` is false, which is faster."""
        return enumerate(self.describe(model, images, look=look, **options))

    def attention(self, model: nn.Module, given: Any, target: Any = None, **how: Any) -> Document:
        """All attention of a caption to its picture, while the model generates it, or is made to generate a `target`."""
        image = one_picture(given)
        if target is None:
            [target] = [
                one.text
                for one in self.describe(model, [image], look=False, beam=how.get("beam", 1))
            ]
        batch = self.batch(self.numbers([Captioned(image, (target,))]), device_of(model))
        words = self.text.label_text(target)
        rows, own = [*words, "<eos>"], ["<bos>", *words]
        sites = sites_over(model, model.image, batch.inputs, self.at, rows, own)  # type: ignore[arg-type]
        return self.seen_document(image, target.split(), sites)

    def evaluate(
        self, model: nn.Module, examples: Sequence[Captioned], *given: Any, **search: Any
    ) -> dict[str, Any]:
        """The metrics of texts, BLEU-4 and CIDEr of each text against another picture's captions as a control, and `pointing` where the
        places of the named objects are known."""
        found = super().evaluate(model, examples, *given, **search)
        placed = [one for one in examples if one.places]
        return found | (self.pointing(model, placed) if placed and attends(model) else {})

    def judge(self, outputs: Sequence[str], examples: Sequence[Any]) -> dict[str, Any]:
        half = len(outputs) // 2
        moved = super().judge([*outputs[half:], *outputs[:half]], examples)
        return super().judge(outputs, examples) | {
            f"{name}_other_picture": moved[name] for name in ("bleu_4", "cider")
        }

    def pointing(self, model: nn.Module, examples: Sequence[Captioned]) -> dict[str, float]:
        """The model is made to generate the first caption of each picture. Of the words that name an object (its size, color and noun) and
        that the model itself finds the likeliest, `pointing` is how many percent have the strongest position of their attention
        on the object: the middle of what the position sees of the picture is inside the object's box. `object_words_right` is how many
        percent of these words the model finds the likeliest; `pointing_chance` is the share of positions that are on the object."""
        right, on_object, every, chance = 0, 0, 0, 0.0
        encoder: ImageEncoder = model.image  # type: ignore[assignment]
        grid = encoder.grid(*self.image_size)
        offset = encoder.offset(*self.image_size, *grid)
        alone = np.eye(grid[0] * grid[1]).reshape(-1, *grid)  # the weights of each position alone
        for start in range(0, len(examples), TOGETHER):
            some = examples[start : start + TOGETHER]
            pixels = on_device(
                decoded([one.image for one in some], self.image_size), device_of(model)
            )
            for example, forced in zip(
                some, self.force(model, pixels, [one.captions[0] for one in some]), strict=True
            ):
                before = example.image.pixels().shape
                for thing in example.places or ():
                    box = fit_box(thing.box, (before[1], before[2]), self.image_size)
                    known = [word for word in thing.words if forced.knows(word)]
                    every, right = every + len(thing.words), right + len(known)
                    inside = sum(is_on(weights, self.image_size, box, offset) for weights in alone)
                    chance += len(thing.words) * inside / len(alone)
                    on_object += sum(
                        is_on(forced.weights[word], self.image_size, box, offset) for word in known
                    )
        found = {
            "pointing": (on_object, right),
            "object_words_right": (right, every),
            "pointing_chance": (chance, every),
        }
        return {name: percent_of(counts) for name, counts in found.items()}


def is_on(
    weights: NDArray[np.floating],
    size: Size,
    box: tuple[float, ...],
    offset: tuple[float, float] = (0.0, 0.0),
) -> bool:
    """Whether the middle of the strongest position of weights (R × C) over a picture of this size is inside a box x0 y0 x1 y1; `offset`:
    where positions look, as `ImageEncoder.offset` says."""
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    y = ((row + 0.5) / weights.shape[0] + offset[0]) * size[0]
    x = ((column + 0.5) / weights.shape[1] + offset[1]) * size[1]
    return bool(box[0] <= x < box[2] and box[1] <= y < box[3])


class CaptionWork(PictureWork):
    """Training on captions of any length together, whose mean length decides how many make a batch; where it is asked for, with greedy
    BLEU among the metrics on the dev set."""

    task: Describing

    def __init__(
        self,
        task: Describing,
        recipe: Recipe,
        train: Sequence[Any],
        dev: Sequence[Any],
        *given: Any,
    ) -> None:
        super().__init__(task, recipe, train, dev, *given)
        # of any length: by the norms of a CNN the model would know how long the captions of a batch are, which it cannot know in use
        mean = round(sum(size for _, size in self.lengths) / len(self.lengths))
        self.plans = Plans([(1, mean)] * len(self.lengths), self.tokens, self.multiple)
        self.pictures = dev
        self.scores_bleu = recipe.training.dev_bleu or recipe.training.watch == "bleu"
        self.measures = ("loss", "bleu") if self.scores_bleu else ("loss",)
        if len(self.examples) != len(train):
            self.notes += (f"{len(self.examples):,} captions of {len(train):,} pictures",)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        found = super().evaluate(model)
        if self.scores_bleu:
            outputs, _ = self.task.outputs(model, self.pictures)
            found["bleu"] = CaptionScores(
                outputs, [*map(self.task.texts_about, self.pictures)]
            ).sacrebleu
        return found
