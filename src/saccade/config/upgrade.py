"""Recipes and model folders of earlier versions: their settings and the names of their parameters, as they are called now."""

import dataclasses
import functools
import logging
import re
from collections.abc import Mapping
from typing import Any

from .. import models, tasks
from ..errors import SaccadeError
from ..settings import AUTO

log = logging.getLogger(__name__)
# settings that were 0 where they are now `auto` or off, and those that had another word
CHOSEN = "training.updates training.tokens training.round_to training.evaluate_every training.checkpoint_every training.threads "
CHOSEN += (
    "vocabulary.size data.held_out data.max_length data.image_size training.compile training.graphs"
)
UNSET = "training.patience training.clip training.epochs training.minutes training.average training.reward data.max_ratio data.rotate_test"
SPELLED = {**dict.fromkeys(CHOSEN.split(), AUTO), **dict.fromkeys(UNSET.split())}
OLD = {"training.compile": None, "training.graphs": None, "training.reward": "none"}
CORPORA = [
    "phrasebook",
    "dates",
    "reviews",
    "shapes",
    "senses",
    "entailment",
    "week",
    "bags",
    "graphs",
    "karate",
    "surfaces",
]
VERSION = 3  # of config.json; 0.1.0 wrote 1, 0.2.0 and 0.3.0 wrote 2

# parameters that were called otherwise, by pattern
NAMES = (
    (r"\b(encoder|decoder)\.(\d+)\.attention\.", r"\1.\2.mixer."),
    (r"\b(encoder|decoder)\.(\d+)\.around_attention\.", r"\1.\2.around_mixer."),
    (r"\b(encoder|decoder)\.(\d+)\.mlp\.", r"\1.\2.feedforward."),
    (r"\b(encoder|decoder)\.(\d+)\.around_mlp\.", r"\1.\2.around_feedforward."),
    (r"\bmechanism\.position\.bias$", "mechanism.position.table"),
    (r"\b(embedding|source|target)\.places\.", r"\1.position."),
    (r"\b(embedding|source|target)\.entry\.join\.", r"\1.position.join.project."),
    (r"^(source|target)\.weight$", r"\1.tokens.weight"),
)


def respelled(tree: dict[str, Any]) -> dict[str, Any]:
    """A recipe with the spellings of today: `auto` and `null` where 0 or `none` stood, one `data.options`, and `batch_size` for pictures."""
    notes: list[str] = []
    found = {name: dict(one) if isinstance(one, dict) else one for name, one in tree.items()}
    for path, new in SPELLED.items():
        section, name = path.split(".")
        given, old = found.get(section), OLD.get(path, 0)
        if not isinstance(given, dict) or name not in given:
            continue
        if given[name] == old and not isinstance(given[name], bool):
            given[name] = new
            if old is not None:  # saccade itself wrote null
                notes.append(f"{path}={old} is now {path}={new or 'null'}")
    data, training = found.get("data"), found.get("training")
    for name in CORPORA:
        if not isinstance(data, dict) or name not in data:
            continue
        old, now = data.pop(name), data.get("options") or {}
        sources = [str(data[split]) for split in ("train", "dev", "test") if data.get(split)]
        if old and sources and not any(where.startswith(f"{name}:") for where in sources):
            raise SaccadeError(
                f"data.{name} has no effect here: it is for data such as {name}:train; leave it out",
                code="no-effect",
            )
        if old:
            both = isinstance(old, dict) and isinstance(now, dict)
            data["options"] = {**now, **old} if both else old
            notes.append(f"data.{name} is now data.options")
    task = str(found.get("task"))
    pictures = task in tasks.table and not tasks.table[task].has_text
    if pictures and isinstance(training, dict) and "tokens" in training:
        training["batch_size"] = training.pop("tokens")
        notes.append("training.tokens of pictures is now training.batch_size")
    note("; ".join(notes))
    return found


@functools.cache
def note(upgrades: str) -> None:
    """Logs the same upgrades once, though a recipe is read several times and many recipes may need them."""
    if upgrades:
        log.warning("an old spelling was upgraded: %s", upgrades)


def upgrade_parameter(name: str) -> str:
    """The name of a parameter of a version 0.1.0 model; a current name stays as it is."""
    for pattern, new in NAMES:
        name = re.sub(pattern, new, name)
    return name


def without_removed(values: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe that versions 0.2.0 and 0.3.0 wrote out in full, without the options that no longer exist and were unset."""
    model = values.get("model")
    return {**values, "model": without_unset(model)} if isinstance(model, dict) else dict(values)


def without_unset(model: Mapping[str, Any]) -> dict[str, Any]:
    """Removes `token` of a vit and `decoder_blocks` of a stack; a model that has a token is refused."""
    found = {
        name: without_unset(one) if name == "image_encoder" and isinstance(one, dict) else one
        for name, one in model.items()
    }
    if found.get("family") == "vit" and found.pop("token", False):
        raise SaccadeError(
            "the model has a class token that no output reads (model.token); train it again with model.pool=token",
            code="old-model",
        )
    stack = found.get("stack")
    if isinstance(stack, dict) and stack.get("decoder_blocks", 0) is None:
        found["stack"] = {name: value for name, value in stack.items() if name != "decoder_blocks"}
    return found


def upgrade_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """A version 0.1.0 recipe with its model's settings under their current names."""
    model = dict(values.get("model", {}))
    if not isinstance(model.get("family"), str):
        return dict(values)  # refused by whoever builds it
    family = models.table[model["family"]]
    if "places" in model:
        position: dict[str, Any] = {"name": model.pop("places")}
        if position["name"] == "learned":
            position["max_len"] = model.get("max_len", 512)
        if position["name"] != "none":
            position["join"] = model.get("entry", "add")
        model["position_embedding"] = position
    if "words" in model:
        chosen = model.pop("words")
        model["embedding"] = "tokens" if chosen == "embedding" else chosen
    if "activation" in model:
        model["feedforward"] = {"name": "mlp", "activation": model.pop("activation")}
    known = {f.name for f in dataclasses.fields(family.config)}
    return {
        **values,
        "model": {
            name: value for name, value in model.items() if name in known or name == "family"
        },
    }
