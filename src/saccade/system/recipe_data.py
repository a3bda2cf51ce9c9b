"""The examples that a recipe names, and what is worth knowing about them before a training."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..config.recipes import Recipe
from ..data.bad_lines import Skipped, many
from ..data.corpora import LABELED, overlap
from ..data.findings import find_useless_labels
from ..errors import SaccadeError
from ..settings import resolve
from ..training.work import Work

SAMPLES = 6  # dev examples that a report shows


def train_and_dev(recipe: Recipe, skipped: Skipped | None = None) -> tuple[list[Any], list[Any]]:
    """The examples of data.train and data.dev, without bad lines unless the recipe is strict; without data.dev, data.train divided."""
    task, count = recipe.kind, None if recipe.data.strict else skipped or Skipped()
    train = task.read(recipe, source_of(recipe, "train"), count)
    if recipe.data.dev:
        return train, task.read(recipe, recipe.data.dev, count)
    train, dev = task.divide(train, resolve(recipe.data.held_out, 0.0))
    return train, dev


def examples_of(recipe: Recipe, split: str) -> list[Any]:
    """The examples of data.train or data.dev, as training uses them, or of data.test, where a bad line is an error."""
    if split != "test" and recipe.data.train:
        return train_and_dev(recipe)[split == "dev"]
    examples: list[Any] = recipe.kind.read(recipe, source_of(recipe, split))
    return examples


def source_of(recipe: Recipe, split: str) -> str:
    where: str = getattr(recipe.data, split)
    if not where:
        raise SaccadeError(
            f"data.{split} is not set; name the data, such as data.{split}={split}.tsv or phrasebook:{split}",
            code="data-missing",
        )
    return where


def spread(examples: Sequence[Any]) -> Sequence[Any]:
    """A few examples, from everywhere among them."""
    return examples[:: max(1, len(examples) // SAMPLES)][:SAMPLES]


def note_data(
    task: Any,
    recipe: Recipe,
    train: Sequence[Any],
    dev: Sequence[Any],
    work: Work,
    skipped: Skipped,
) -> list[str]:
    """What was read, held out and skipped, the sizes of the vocabularies, and what the dev examples share with those of training."""
    thing, data = task.data.thing, recipe.data
    each, judged = getattr(work, "examples", train), len(dev)
    # a picture with several captions is one
    used = len({id(getattr(one, "example", one)) for one in each})
    own = (
        f"in {data.dev}"
        if data.dev
        else f"held out of it ({resolve(data.held_out, judged / max(len(train) + judged, 1)):.3g})"
    )
    sizes = {id(vocabulary): len(vocabulary) for vocabulary, _ in task.texts([]).values()}
    vocabulary = f"; vocabulary: {' and '.join(f'{size:,}' for size in sizes.values())} tokens{' (source and target)' * (len(sizes) > 1)}"
    read = f"{many(used, thing)} to train on in {data.train}, {many(judged, thing)} {own} for dev"
    labels = f"; labels: {len(task.labels)}" if hasattr(task, "labels") else ""
    notes = [f"data: {read}{vocabulary if sizes else labels}", *skipped.notes()]
    shared = overlap(task.data, train, dev)
    if task.data is LABELED:
        tally = Counter(name for one in train for name in task.labels_of(one) or ())
        notes += [
            f"warning: {finding.sentence}" for finding in find_useless_labels(tally, len(train))
        ]
    if shared:
        what = f"{shared:,} of {many(judged, f'dev {thing}')} also {'occurs' if judged == 1 else 'occur'} in the training data"
        level = "warning" if 10 * shared > judged else "note"
        notes.append(
            f"{level}: {what} (the same input), so dev metrics say less about new {'text' if sizes else thing + 's'}"
        )
    return notes
