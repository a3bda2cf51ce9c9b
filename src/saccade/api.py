"""What a program does with saccade: build, load, fit, evaluate, decode, show. Wires the rooms together."""

from __future__ import annotations

import inspect
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import config
from .config import Recipe
from .core import record
from .data.corpora import corpus, embedded
from .data.pairs import Pair
from .data.vocabulary import BOS, EOS, UNK, Vocabulary
from .decoding import Beam, Sample, Search, greedy
from .errors import SaccadeError
from .files import Writer, held, settle, verified, write_atomically
from .tasks.translation import NEVER, Aligned, Translated, Translation, TranslationWork, WorkOptions, by_length
from .training.checkpoints import load_model
from .training.distributed import check_shared, together
from .training.loop import Training, Watcher
from .training.runs import Progress, RunFolder
from .training.shards import METADATA
from .views.document import Document
from .views.document import Site as SiteView

MAY_CHANGE = (
    "training.updates",
    "training.patience",
    "training.evaluate_every",
    "training.checkpoint_every",
    "training.log_every",
    "training.learning_rate",  # these three are the way out when a loss became NaN
    "training.warmup",
    "training.clip",
    "training.parallel",
    "training.checkpoint",
    "device",
)
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")


@dataclass(frozen=True)
class System:
    """A model with its recipe and its task: what a model folder holds."""

    recipe: Recipe
    model: nn.Module
    task: Translation

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def name(self) -> str:
        return str(self.recipe.model["family"])

    def pairs(self, where: str) -> list[Pair]:
        """A corpus as this system's recipe would make it."""
        found = embedded(where)
        return corpus(where, getattr(self.recipe.data, found[0]) if found else None)


def build(recipe: Recipe | Mapping[str, Any], train: Sequence[Pair] | None = None) -> System:
    """A fresh, untrained system: vocabularies made from the training pairs, parameters drawn by the recipe's seed."""
    made = recipe if isinstance(recipe, Recipe) else config.recipe(recipe)
    pairs = training_pairs(made) if train is None else train
    task = Translation(*vocabularies(made, pairs))
    torch.manual_seed(made.seed)
    model = config.build_model(made.model, len(task.source), len(task.target))
    return System(made, model.to(config.device(made.device)), task)


def training_pairs(recipe: Recipe) -> list[Pair]:
    return named_pairs(recipe, "train")


def named_pairs(recipe: Recipe, split: str) -> list[Pair]:
    """The pairs of data.train, data.dev or data.test."""
    where = getattr(recipe.data, split)
    if not where:
        raise SaccadeError(
            f"data.{split} is not set; name the pairs: data.{split}={split}.tsv, or {split}.en,{split}.fr, or phrasebook:{split}"
        )
    found = embedded(where)
    return corpus(where, getattr(recipe.data, found[0]) if found else None)


def vocabularies(recipe: Recipe, pairs: Sequence[Pair]) -> tuple[Vocabulary, Vocabulary]:
    how = recipe.vocabulary
    make = lambda lines: Vocabulary.train(lines, how.kind, how.size, how.split, how.lowercase, how.min_count)  # noqa: E731
    if how.joint:
        both = make(line for pair in pairs for line in (pair.source, pair.target))
        return both, both
    return make(pair.source for pair in pairs), make(pair.target for pair in pairs)


def model_files(system: System) -> dict[str, Writer]:
    """The model folder's files besides the parameters."""
    text = json.dumps({"saccade": 1, **system.recipe.to_dict()}, indent=2, ensure_ascii=False) + "\n"
    joint = system.task.source is system.task.target
    sides = {"joint": system.task.source} if joint else {"source": system.task.source, "target": system.task.target}
    tokens = json.dumps({side: json.loads(vocabulary.to_json()) for side, vocabulary in sides.items()}, ensure_ascii=False) + "\n"
    return {
        "config.json": lambda path: path.write_text(text, encoding="utf-8"),
        "tokenizer.json": lambda path: path.write_text(tokens, encoding="utf-8"),
    }


def load(folder: str | Path, device: str = "auto") -> System:
    """The system in a model folder (or in the `best/`, else `last/`, of a run folder), checked against its manifest."""
    path = model_folder(Path(folder))
    if os.path.exists(path / METADATA):
        raise SaccadeError(
            f"{path} is a sharded checkpoint; make a model folder of it with `saccade convert {folder} --out FOLDER`"
        )
    verified(path, "model folder", MODEL_FILES)
    recipe = read_config(path / "config.json")
    try:
        tokens = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
        sides = [json.dumps(tokens[side]) for side in (("joint", "joint") if "joint" in tokens else ("source", "target"))]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise SaccadeError(f"{path}/tokenizer.json cannot be read; copy the model folder again") from None
    source = Vocabulary.from_json(sides[0])
    task = Translation(source, source if "joint" in tokens else Vocabulary.from_json(sides[1]))
    model = config.build_model(recipe.model, len(task.source), len(task.target))
    load_model(model, path / "model.safetensors")
    return System(recipe, model.to(config.device(device)).eval(), task)


def model_folder(path: Path) -> Path:
    """A run folder stands for its best model."""
    for inner in (path / "best", path / "last"):
        settle(inner)
        if os.path.isdir(inner) and not (path / "config.json").exists():
            return inner
    return path


def read_config(path: Path) -> Recipe:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise SaccadeError(f"{path} cannot be read as JSON; copy the model folder again") from None
    if not isinstance(values, dict) or values.pop("saccade", None) != 1:
        raise SaccadeError(f"{path} was not written by this version of saccade; use the version that wrote it")
    return config.recipe(values)


def fit(
    recipe: Recipe | Mapping[str, Any], out: str | Path, resume: bool = False, watcher: Watcher | None = None
) -> tuple[System, Progress]:
    """Trains by a recipe into a run folder; returns the best system and where the training ended."""
    made = recipe if isinstance(recipe, Recipe) else config.recipe(recipe)
    path = Path(out)
    with together(config.device(made.device)) as ranks:
        ranks.lead(lambda: claim(path, made, resume))
        system, work = ranks.agree(lambda: prepared(made))
        settings, folder = config.settings(made.training, made.seed), RunFolder(path, model_files(system))
        text = json.dumps({"saccade": 1, **made.to_dict()}, indent=2, ensure_ascii=False) + "\n"
        with ranks.led(held(path)):
            # only now, when nothing of the recipe was refused: a first try with a wrong path leaves no run behind
            ranks.lead(lambda: write_atomically(path / "recipe.json", text.encode()))
            ranks.agree(lambda: check_shared(path / "recipe.json"))
            ended = Training(system.model, work, settings, folder, watcher, ranks).run()
            return ranks.agree(lambda: load(path / "best", made.device)), ended


def prepared(made: Recipe) -> tuple[System, TranslationWork]:
    """An untrained system, and its work on the recipe's data."""
    train, dev = training_pairs(made), named_pairs(made, "dev")
    system = build(made, train)
    check_translates(system)
    search: Callable[[], Search] | None = None
    if made.training.dev_bleu or made.training.watch == "bleu":
        search = lambda: greedy(BOS, EOS, NEVER)  # noqa: E731
    options = WorkOptions(made.training.tokens, made.training.smoothing, made.seed, search)
    return system, TranslationWork(system.task, train, dev, system.device, options)


def claim(path: Path, recipe: Recipe, resume: bool) -> None:
    """Checks that the run folder is new or empty, or holds a run that is this recipe's to go on with."""
    mine, kept = recipe.to_dict(), path / "recipe.json"
    if os.path.exists(path) and not path.is_dir():
        raise SaccadeError(f"{path} is a file; give a folder for the run with --out")
    if os.path.exists(kept):
        if not resume:
            raise SaccadeError(f"{path} holds a run already; go on with it by --resume, or choose another --out")
        changed = differences(read_config(kept).to_dict(), mine)
        wrong = [name for name in changed if name not in MAY_CHANGE]
        if wrong:
            raise SaccadeError(
                f"{path} was begun with another {wrong[0]}; resume with the same recipe (only {', '.join(MAY_CHANGE)} may change)"
            )
    elif os.path.isdir(path) and any(path.iterdir()):
        raise SaccadeError(f"{path} holds other files and no run; choose an empty or new folder with --out")


def check_translates(system: System) -> None:
    """A model that is trained on pairs reads a source and puts out a target."""
    if list(inspect.signature(system.model.forward).parameters) != ["source", "lengths", "target"]:
        raise SaccadeError(
            f"a {system.name} does not read one text and put out another; choose another model.family, such as transformer"
        )


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """The dotted names under which two trees differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [
            name for key in sorted({*a, *b}) for name in differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if a == b else [path]


def searcher(beam: int = 1, length_penalty: float = 1.0, sample: Mapping[str, Any] | None = None) -> Callable[[], Search]:
    """Makes the search of one batch: greedy for a beam of 1, a beam above, or sampling with temperature, top_k, top_p, seed."""
    if sample is not None:
        Sample(BOS, EOS, NEVER, **sample)  # a wrong value shows before any work is done
        seeds = itertools.count(int(sample.get("seed", 0)))  # each batch draws from a seed of its own
        return lambda: Sample(BOS, EOS, NEVER, **{**sample, "seed": next(seeds)})
    Beam(BOS, EOS, NEVER, beam, length_penalty)
    return (lambda: greedy(BOS, EOS, NEVER)) if beam == 1 else (lambda: Beam(BOS, EOS, NEVER, beam, length_penalty))


def decode(
    system: System, texts: Sequence[str], beam: int = 1, length_penalty: float = 1.0, sample: Mapping[str, Any] | None = None
) -> list[Translated]:
    """Translations of texts, in their order."""
    found = dict(translations(system, texts, searcher(beam, length_penalty, sample)))
    return [found[n] for n in range(len(texts))]


def translations(system: System, texts: Sequence[str], search: Callable[[], Search]) -> Iterator[tuple[int, Translated]]:
    """Translations as they come, each with the number of its text."""
    return system.task.translate(system.model, texts, search)


def unknown_words(system: System, texts: Sequence[str]) -> list[str]:
    """The pieces of the texts that the model has never seen and reads as <unk>, each once, in order."""
    encoded = system.task.source.encode_batch(list(texts))
    return list(dict.fromkeys(piece for one in encoded for id, piece in zip(one.ids, one.pieces, strict=True) if id == UNK))


def align(system: System, pairs: Sequence[Pair]) -> list[Aligned]:
    """Where the model looks while it puts out given targets."""
    return system.task.align(system.model, pairs)


def evaluate(system: System, pairs: Sequence[Pair], beam: int = 1, quarters: bool = False) -> dict[str, Any]:
    """BLEU and chrF with their signatures, loss, the alignment error rate where gold links are, and BLEU by length quarter when asked."""
    if not pairs:
        raise SaccadeError("there are no pairs to evaluate on; give data with at least one")
    outputs = [one.text for one in decode(system, [pair.source for pair in pairs], beam)]
    figures: dict[str, Any] = {"sentences": len(pairs), "beam": beam, **system.task.score(outputs, pairs)}
    figures["loss"] = system.task.mean_loss(system.model, pairs)
    if attends_to_source(system) and (error := system.task.alignment_error(system.model, pairs)) is not None:
        figures["aer"] = error
    if quarters:
        figures["by_length"] = quarter_scores(system, outputs, pairs)
    return figures


def quarter_scores(system: System, outputs: Sequence[str], pairs: Sequence[Pair]) -> list[dict[str, float]]:
    """BLEU of each quarter of the pairs by source length (S5)."""
    rows = []
    for group in by_length(pairs):
        if group:
            lengths = [len(pairs[n].source.split()) for n in group]
            bleu = system.task.score([outputs[n] for n in group], [pairs[n] for n in group])["bleu"]
            rows.append(
                {"shortest": min(lengths), "longest": max(lengths), "mean": sum(lengths) / len(lengths), "bleu": float(bleu)}
            )
    return rows


def attends_to_source(system: System) -> bool:
    return any(name.split(".")[-1] == "cross" for name, module in system.model.named_modules() if hasattr(module, "tape"))


def show(system: System, text: str, target: str | None = None, beam: int = 1) -> Document:
    """What every attention of the model looked at while it translated a text (or put out a given target), as a document."""
    if not text.strip():
        raise SaccadeError("the text is empty; give a sentence")
    output = decode(system, [text], beam)[0].text if target is None else target
    numbers = system.task.numbers([Pair(text, output)])
    source = [*system.task.source.encode(text).pieces, "<eos>"]
    put_out = [*system.task.target.encode(output).pieces, "<eos>"]
    batch = system.task.batch(numbers, system.device)
    system.model.eval()
    with torch.no_grad(), record(system.model) as seen:
        system.model(batch.source, batch.lengths, batch.read)
    names = {"cross": (put_out, source), "encoder": (source, source), "decoder": (["<bos>", *put_out[:-1]],) * 2}
    sites = []
    for name, looks in seen.items():
        rows, columns = names["cross" if name.endswith("cross") else name.split(".")[0]]
        sites.append(SiteView(name, rows, columns, looks.weights()[0].float().cpu().tolist()))
    if not sites:
        raise SaccadeError(
            f"a {system.name} model has no attention to show; train one that attends, such as bahdanau or transformer"
        )
    sites.sort(key=lambda site: not site.name.endswith("cross"))
    return Document(title=text, source=source[:-1], target=put_out[:-1], sites=sites, model=system.name)
