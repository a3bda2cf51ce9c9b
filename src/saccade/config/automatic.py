"""What a recipe leaves open is chosen by the amount of data and the device, before a run starts: a run's recipe.json has numbers alone."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import models
from ..settings import AUTO, resolve
from . import recipes
from .recipes import Recipe

TOKENS_PER_LETTER = {"bpe": 0.4, "words": 0.2, "characters": 1.0}  # roughly
# a batch's, on a CPU and on a GPU
TOKENS_PER_PICTURE, FEWEST_PICTURES, MOST_PICTURES = (64, 8, {False: 64, True: 512})
# of a vocabulary; of bpe by the amount of text
MOST_TOKENS = {"words": 30_000, "characters": 5_000}


def fit_to_data(recipe: Recipe, examples: Sequence[Any]) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe with its model's size, its vocabulary's size and the tokens of a batch as numbers, and notes of what was chosen."""
    model, vocabulary, training = recipe.model, recipe.vocabulary, recipe.training
    chosen, notes = list[str](), list[str]()
    budget = training.tokens if recipe.kind.has_text else training.batch_size
    learns_words = not (recipe.start_from or not recipe.kind.has_text)
    if (
        model.get("size") != AUTO
        and budget != AUTO
        and not (vocabulary.size == AUTO and learns_words)
    ):
        return recipe, ()
    letters = sum(sum(map(len, texts_of(one))) for one in examples)
    tokens = letters * TOKENS_PER_LETTER[vocabulary.kind]
    if not recipe.kind.has_text:
        tokens = len(examples) * TOKENS_PER_PICTURE
    on_gpu = recipes.device(recipe.device).type == "cuda"
    if model.get("size") == AUTO:
        size = choose_size(tokens, on_gpu, training.minutes or 0)
        model = recipes.recipe({**recipe.to_dict(), "model": {**model, "size": size}}).model
        sizes = models.table[model["family"]].config.sizes  # type: ignore[attr-defined]
        numbers = (f"{name} {model[name]}" for name in sizes[size] if name in model)
        chosen.append(f"model.size={size} ({', '.join(numbers)})")
        notes.append(advice(size, list(sizes), training.minutes or 10))
    if vocabulary.size == AUTO and learns_words:
        pieces = max(500, round(6 * math.sqrt(letters) / 100) * 100)
        vocabulary = dataclasses.replace(
            vocabulary, size=MOST_TOKENS.get(vocabulary.kind) or min(pieces, 16_000)
        )
        chosen.append(f"vocabulary.size={vocabulary.size}")
    if budget == AUTO:
        pictures = max(min(MOST_PICTURES[on_gpu], len(examples) // 20), FEWEST_PICTURES)
        name, budget = (
            ("tokens", choose_tokens(recipe, examples, tokens, on_gpu))
            if recipe.kind.has_text
            else ("batch_size", pictures)
        )
        training = dataclasses.replace(training, **{name: budget})  # type: ignore[arg-type]
        chosen.append(f"training.{name}={budget}")
    count = f"{len(examples):,} examples" if len(examples) > 1 else f"{letters:,} letters"
    told = f"chosen for {count} on a {'GPU' if on_gpu else 'CPU'}: {', '.join(chosen)}"
    return dataclasses.replace(recipe, model=model, vocabulary=vocabulary, training=training), (
        told,
        *notes,
    )


def choose_tokens(recipe: Recipe, examples: Sequence[Any], tokens: float, on_gpu: bool) -> int:
    """How many tokens a batch has, for data of about so many."""
    # no example has more tokens than bytes; language models read blocks. One line that is far too long must not decide.
    bytes_of = sorted(len(" ".join(texts_of(one)).encode()) + 4 for one in examples)
    whole = "data.max_length" in recipe.kind.settings
    longest = bytes_of[(len(bytes_of) - 1) * 99 // 100] if whole else 0
    return min(max(1000, round(tokens / 10_000) * 100, longest), 8192 if on_gpu else 4096)


def texts_of(example: Any) -> list[str]:
    """The texts of an example of any task."""
    return [getattr(example, name, "") for name in ("source", "target", "text", "question")] + [
        *getattr(example, "words", ())
    ]


def choose_size(tokens: float, on_gpu: bool, minutes: float) -> str:
    """Little data learns nothing more in a large model; a processor trains a large one for hours."""
    if tokens < 30_000:
        return "tiny"
    if not on_gpu:
        return "medium" if minutes >= 60 and tokens > 500_000 else "small"
    return "small" if tokens < 300_000 else "medium" if tokens < 30_000_000 else "base"


def advice(size: str, sizes: list[str], minutes: float) -> str:
    """How to make the run smaller and larger than with a chosen size."""
    at = sizes.index(size)
    smaller = [
        *(f"model.size={one}" for one in sizes[max(at - 1, 0) : at]),
        f"training.minutes={minutes / 2:g}",
    ]
    larger = [
        *(f"model.size={one}" for one in sizes[at + 1 : at + 2]),
        f"training.minutes={minutes * 6:g}",
    ]
    return f"for a shorter run: {' '.join(smaller)}; for a better model: {' '.join(larger)}"


def adopt(recipe: Recipe, kept: Recipe) -> Recipe:
    """The recipe of a run that continues: what it leaves open is what was chosen when the run started."""
    now, then = recipe.training, kept.training
    names = ("tokens", "batch_size", "evaluate_every", "checkpoint_every", "graphs", "compile")
    training: dict[str, Any] = {
        name: resolve(getattr(now, name), getattr(then, name)) for name in names
    }
    # runs of version 0.2.0 have no number of threads, and used torch's
    training["threads"] = resolve(now.threads, resolve(then.threads, torch.get_num_threads()))
    if now.updates == AUTO and (now.epochs, now.minutes) == (then.epochs, then.minutes):
        training |= {"updates": then.updates, "warmup": then.warmup}
    model = recipe.model
    if model.get("size") == AUTO:
        model = {**kept.model, **{name: value for name, value in model.items() if name != "size"}}
    vocabulary = dataclasses.replace(
        recipe.vocabulary, size=resolve(recipe.vocabulary.size, kept.vocabulary.size)
    )
    return dataclasses.replace(
        recipe, model=model, vocabulary=vocabulary, training=dataclasses.replace(now, **training)
    )
