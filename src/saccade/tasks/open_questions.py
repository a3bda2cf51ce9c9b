"""Open questions about a picture: the answer is a sentence that the model generates."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import exp
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ..data.corpora import OPEN
from ..data.image_examples import Asked, Picture
from ..data.vocabulary import Vocabulary
from ..recipe import Recipe
from ..views.answers import Answered
from ..views.document import Site
from .attention_sites import sites_over
from .captioning import Describing
from .questions import AboutPictures
from .search_options import SEARCH, Option
from .task import WrongExample, device_of, table
from .text_scores import CaptionScores


@table.add("open-questions", paper="Antol et al. 2015 (VQA)")
class OpenQuestions(AboutPictures, Describing):
    """A sentence that answers a question about a picture: the decoder reads the question, looking at the picture, and then generates."""

    data = OPEN
    texts_about = staticmethod(lambda example: () if example.answer is None else (example.answer,))
    question_of = staticmethod(lambda example: example.question)
    predict_options: ClassVar[dict[str, Option]] = {
        name: SEARCH[name] for name in ("beam", "length_penalty", "max_length")
    }

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.blind: dict[str, str] = {}  # question → the commonest answer of the training data

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Asked], given: Vocabulary | None = None) -> Self:
        made, counts = super().learn(recipe, train, given), defaultdict[str, Counter[str]](Counter)
        for one in train:
            counts[one.question][str(one.answer)] += 1
        made.blind = {
            asked: min(found, key=lambda text: (-found[text], text))
            for asked, found in counts.items()
        }
        return made

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        made = super().restore(recipe, tokens)
        made.blind = {str(asked): str(answer) for asked, answer in tokens.get("blind", {}).items()}
        return made

    def tokens(self) -> dict[str, Any]:
        return {**super().tokens(), "blind": self.blind}

    def texts(self, examples: Sequence[Asked]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {
            "questions": (self.text, [one.question for one in examples]),
            **super().texts(examples),
        }

    def evaluate(
        self, model: nn.Module, examples: Sequence[Asked], *given: Any, **search: Any
    ) -> dict[str, Any]:
        """The metrics of texts, and controls, of which each lacks a part: `blind_exact` answers with the commonest answer to the question
        in training, `exact_other_picture` reads a picture of another half of the examples, `exact_other_question` the next example's question."""
        if wrong := next((one for one in examples if one.answer is None), None):
            raise WrongExample(
                f"line {wrong.line} has no answer to compare with; give one, or use `answer`",
                code="answer-missing",
            )
        found, halfway = super().evaluate(model, examples, *given, **search), len(examples) // 2
        turned = zip(
            examples,
            [*examples[halfway:], *examples[:halfway]],
            [*examples[1:], *examples[:1]],
            strict=True,
        )
        asked = [
            (Asked(far.image, one.question), Asked(one.image, near.question))
            for one, far, near in turned
        ]
        controls = {
            "exact_other_picture": self.outputs(model, [one for one, _ in asked], *given, **search)[
                0
            ],
            "exact_other_question": self.outputs(
                model, [one for _, one in asked], *given, **search
            )[0],
            "blind_exact": [self.blind.get(one.question, "") for one in examples],
        }
        judged = {
            name: CaptionScores(texts, [*map(self.texts_about, examples)])
            for name, texts in controls.items()
        }
        return found | {name: 100 * float(one.exact[:, 0].mean()) for name, one in judged.items()}

    def sites_of_answer(
        self, model: nn.Module, image: Picture, question: str, answer: str
    ) -> list[Site]:
        """The words of the answer look too, after those of the question."""
        batch = self.batch(self.numbers([Asked(image, question, answer)]), device_of(model))
        asked, said = self.text.label_text(question), self.text.label_text(answer)
        rows, own = [*asked, *said, "<eos>"], [*asked, "<bos>", *said]
        return sites_over(model, model.image, batch.inputs, self.at, rows, own)  # type: ignore[arg-type]

    @torch.no_grad()
    def predict(
        self, model: nn.Module, asked: Sequence[tuple[Picture, str]], **options: Any
    ) -> Iterator[tuple[int, Answered]]:
        """The answers to questions about pictures, with their probabilities; where each word of the question and of the answer looked."""
        images, questions = [image for image, _ in asked], [question for _, question in asked]
        said = self.describe(model, images, questions=questions, **options)
        rows, columns = model.image.grid(*self.image_size)  # type: ignore[union-attr, operator]
        for n, ((image, question), one) in enumerate(zip(asked, said, strict=True)):
            pieces = [*question.split(), *one.words]
            weights = (
                torch.zeros(len(pieces), rows, columns).numpy()
                if one.weights is None
                else one.weights
            )
            chance = {one.text: exp(one.log_prob)}
            yield n, Answered(one.text, chance, question, image.name, pieces, weights)
