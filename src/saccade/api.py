"""What a program does with saccade: build, load, fit, evaluate, decode, show. Wires the rooms together."""

from __future__ import annotations

import inspect
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import config
from .config import Recipe
from .data.conllu import Sentence
from .data.pairs import Pair
from .data.vocabulary import BOS, EOS, UNK
from .decoding import Beam, Ensemble, Sample, Search, greedy
from .errors import SaccadeError
from .files import held, write_atomically
from .showing import show
from .system import System, build, check_memory, examples_of, load, model_files, read_config, train_and_dev
from .tasks.classification import Classification, Classified
from .tasks.language import LanguageModelling
from .tasks.scoring import moses_tokenizer
from .tasks.tagging import Tagging
from .tasks.translation import NEVER, Aligned, Translated, Translation
from .training.checkpoints import Progress, RunFolder, learned, mean_parameters, set_parameters
from .training.distributed import check_shared, together
from .training.loop import Training, Watcher

__all__ = [
    "System",
    "align",
    "average",
    "build",
    "classify",
    "decode",
    "ensemble",
    "evaluate",
    "examples_of",
    "fit",
    "generate",
    "load",
]
__all__ += ["model_files", "searcher", "show", "tag", "translations", "unknown_words"]

MAY_CHANGE = (
    "training.updates",
    "training.patience",
    "training.evaluate_every",
    "training.checkpoint_every",
    "training.log_every",
    "training.average",
    "training.learning_rate",  # these three are the way out when a loss became NaN
    "training.warmup",
    "training.clip",
    "training.parallel",
    "training.checkpoint",
    "device",
)


LONGEST = 50_000  # characters of a text to translate


def fit(
    recipe: Recipe | Mapping[str, Any], out: str | Path, resume: bool = False, watcher: Watcher | None = None
) -> tuple[System, Progress]:
    """Trains by a recipe into a run folder; returns the best system and how far the run came."""
    made = recipe if isinstance(recipe, Recipe) else config.recipe(recipe)
    path = Path(out)
    with together(config.device(made.device)) as ranks:
        ranks.lead(lambda: claim(path, made, resume))
        system, work = ranks.agree(lambda: prepared(made))
        folder = RunFolder(path, model_files(system))
        text = json.dumps({"saccade": 1, **made.to_dict()}, indent=2, ensure_ascii=False) + "\n"
        with ranks.led(held(path)):
            # only now, when nothing of the recipe was refused: a first try with a wrong path leaves no run
            ranks.lead(lambda: write_atomically(path / "recipe.json", text.encode()))
            ranks.agree(lambda: check_shared(path / "recipe.json"))
            if watcher is not None and ranks.leads:
                for note in (*system.notes, f"{work.padding():.1%} of the tokens in batches are padding"):
                    watcher.note(note)
            higher = config.task(made).measures[made.training.watch]
            ended = Training(system.model, work, made.training, folder, watcher, ranks, made.seed, higher).run()
            return ranks.agree(lambda: load(path / "best", made.device)), ended


def prepared(made: Recipe) -> tuple[System, Any]:
    """An untrained system, and its work on the recipe's data."""
    train, dev = train_and_dev(made)
    system = build(made, train)
    check_memory(system.model, system.device)
    return system, system.task.work(made, train, dev, system.device)


def claim(path: Path, recipe: Recipe, resume: bool) -> None:
    """Checks that the run folder is new or empty, or contains a run that this recipe may continue."""
    mine, kept = recipe.to_dict(), path / "recipe.json"
    if os.path.exists(path) and not path.is_dir():
        raise SaccadeError(f"{path} is a file; give a folder for the run with --out")
    if os.path.exists(kept):
        if not resume:
            raise SaccadeError(f"{path} already contains a run; use --resume to continue it, or choose another --out")
        changed = differences(read_config(kept).to_dict(), mine)
        wrong = [name for name in changed if name not in MAY_CHANGE]
        if wrong:
            raise SaccadeError(
                f"{path} was started with a different {wrong[0]}; resume with the same recipe (only {', '.join(MAY_CHANGE)} may change)"
            )
    elif os.path.isdir(path) and any(path.iterdir()):
        raise SaccadeError(f"{path} contains other files and no run; choose an empty or new folder with --out")


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
    check_translatable(system, texts)
    return system.task.translate(system.model, texts, search)


def check_translatable(system: System, texts: Sequence[str]) -> None:
    """Raises when the model is not a translation model, or a text is too long."""
    if not isinstance(system.task, Translation):
        raise SaccadeError(
            f"a {system.recipe.task} model does not translate; use `saccade {system.task.usage(system.recipe).format(model='MODEL')}`"
        )
    check_lengths(texts)


def check_lengths(texts: Sequence[str]) -> None:
    """Raises at a text that is no sentence: one of a whole book would take hours, and all memory."""
    for number, text in enumerate(texts, 1):
        if len(text) > LONGEST:
            raise SaccadeError(
                f"line {number} has {len(text):,} characters, more than {LONGEST:,}; put one sentence on each line"
            )


def unknown_words(system: System, texts: Sequence[str]) -> list[str]:
    """The pieces of the texts that the model has never seen and reads as <unk>, each once, in order."""
    encoded = system.task.reads.encode_batch(list(texts))
    return list(dict.fromkeys(piece for one in encoded for id, piece in zip(one.ids, one.pieces, strict=True) if id == UNK))


def align(system: System, pairs: Sequence[Pair]) -> list[Aligned]:
    """Where the model looks while it puts out given targets."""
    return system.task.align(system.model, pairs)


def ensemble(systems: Sequence[System]) -> System:
    """Several systems of one vocabulary as one, whose probabilities are the mean of theirs."""
    model = Ensemble.of([system.model for system in systems]).eval()
    first = systems[0]
    for one in systems:
        if not isinstance(one.task, Translation | LanguageModelling):
            raise SaccadeError(
                f"a {one.recipe.task} model puts out no text token by token, as an ensemble does; use it by itself"
            )
    for number, other in enumerate(systems[1:], 2):
        if other.task.tokens() != first.task.tokens():
            raise SaccadeError(
                f"model {number} ({other.name}) has another vocabulary than the first ({first.name}); an ensemble needs models of one: "
                "train them on the same data with the same vocabulary.* settings"
            )
    return System(first.recipe, model, first.task)


def average(folders: Sequence[str | Path], out: str | Path) -> System:
    """The mean of several models' parameters, written to a new model folder."""
    if not folders:
        raise SaccadeError("the mean of no models; give at least one model folder")
    if os.path.exists(out):
        raise SaccadeError(f"{out} is there already; choose a new folder with --out")
    systems = [load(folder, "cpu") for folder in folders]
    first = systems[0]
    for folder, other in zip(folders[1:], systems[1:], strict=True):
        if other.recipe.model != first.recipe.model or other.task.tokens() != first.task.tokens():
            raise SaccadeError(f"{folder} is another model than {folders[0]}; average models of one shape and vocabulary")
    set_parameters(first.model, mean_parameters([learned(system.model) for system in systems]))
    RunFolder(Path(out).parent, model_files(first)).save(Path(out).name, first.model)
    return load(out)


def evaluate(system: System, examples: Sequence[Any], **options: Any) -> dict[str, Any]:
    """The task's figures on examples: BLEU, chrF, loss and the alignment error rate of translations, accuracy of labels, perplexity …

    Options are the task's own: `beam`, `quarters` and `moses` for texts put out, `stride` for language models.
    """
    if not examples:
        raise SaccadeError("there are no examples to evaluate on; give data with at least one")
    check_options(system.recipe, options)
    found: dict[str, Any] = system.task.evaluate(system.model, examples, **options)
    return found


def check_options(recipe: Recipe, options: Mapping[str, Any]) -> None:
    """Raises when an evaluation of the recipe's task knows no such option, or not with that value."""
    wanted = inspect.signature(config.task(recipe).evaluate).parameters
    wrong = next((name for name in options if name not in wanted), None)
    if wrong:
        spoken = {"quarters": "lengths"}.get(wrong, wrong)  # as the command line has it
        raise SaccadeError(f"an evaluation of {recipe.task} has no option '{spoken}'; leave it out")
    if "beam" in options:
        searcher(options["beam"])
    if options.get("moses") is not None:
        moses_tokenizer(options["moses"])


def generate(system: System, prompt: str = "", limit: int = 200, sample: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Goes on with a prompt, piece by piece as the model puts them out; `sample` has temperature, top_k, top_p and seed."""
    if not isinstance(system.task, LanguageModelling):
        raise SaccadeError(f"a {system.recipe.task} model does not go on with a text; train one with task=language-modelling")
    if not 1 <= limit <= 1_000_000:
        raise SaccadeError(f"a limit of {limit} tokens; give 1 to 1,000,000")
    ends = EOS if system.task.several else -1  # in one long text <eos> ends a line at most
    never = (*NEVER, UNK) if system.task.several or system.task.lines_end else (*NEVER, UNK, EOS)
    return system.task.generate(system.model, prompt, Sample(BOS, ends, never, **(sample or {})), limit)


def classify(system: System, texts: Sequence[str]) -> list[Classified]:
    """Each text's label, the probability of each label, and how much each piece counted."""
    if not isinstance(system.task, Classification):
        raise SaccadeError(f"a {system.recipe.task} model gives no label to a text; train one with task=classification")
    return system.task.classify(system.model, texts)


def tag(system: System, sentences: Sequence[Sentence]) -> list[list[str]]:
    """A tag for each word of each sentence."""
    if not isinstance(system.task, Tagging):
        raise SaccadeError(f"a {system.recipe.task} model gives no tags to words; train one with task=tagging")
    return system.task.tag(system.model, sentences)
