"""Commands that make models: demo, train, convert, average, compare."""

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import SaccadeError
from .completion import recipe_names, recipes_and_settings, run_folders
from .completion import settings as complete_settings
from .options import Controls, Json, Lengths, Moses, OutFolder, Peers, Result, TaskBeam, TaskPenalty, Tokenize, Vary, flag
from .reporting import check_picture, report_comparison
from .shared import command_name, err, keep_given, note, out, print_json, rank, report, result_writer, show_all, write

if TYPE_CHECKING:
    from ..config import Recipe

RECIPE = "A YAML file, the name of a recipe (`saccade list recipes`), or a run's recipe.json; with --resume, a run folder."
VARY = (
    "Train once with each of these values (commas within brackets do not separate); several of these options: every combination."
)
SHARDED = "A run folder, or its last/, written with training.checkpoint=sharded."


def demo(
    out_folder: Annotated[Path | None, typer.Option("--out", help="Where all goes. [default: runs/demo, runs/demo-TO]")] = None,
    to: Annotated[str, typer.Option("--to", help="fr, de (verb last), it, es, zh (no articles) or hi (verb last).")] = "fr",
    seed: Annotated[int, typer.Option(help="The seed of both training runs.", min=0, max=2**31 - 1)] = 0,
    json_: Json = False,
) -> None:
    """Train a translator without and one with attention on the embedded phrasebook, compare them, and draw the attention.

    Finished runs of the same seed are used again, and a stopped one is continued; no other run is replaced.

    Examples:
        saccade demo
        saccade demo --to de
        saccade demo --out runs/again --seed 1 --json
    """
    from ..demo import CALLED, run, sentences_in
    from .progress import Board

    example = sentences_in(to)[0]
    out_folder = out_folder or Path("runs/demo" if to == "fr" else f"runs/demo-{to}")
    result = run(out_folder, seed, Board().watcher, tell=note, to=to)
    if json_:
        print_json(result.metrics)
        return
    table = Table("words in the source", *CALLED.values(), title="BLEU on sentences never seen in training")
    for row in result.lengths:
        table.add_row(*row, end_section=row is result.lengths[-2])
    show_all(table)
    for source, plain, attended in result.sentences:
        write(f"\n  {source}\n    fixed context   {plain}\n    with attention  {attended}")
    write(f"\nAlignment error rate with attention: {result.metrics['aer']:.3f}   ({result.metrics['seconds']:.0f} s in all)")
    write(f"Report: {result.report}   pictures: {', '.join(path.name for path in result.pictures)}")
    me, model = command_name(), out_folder / "bahdanau"
    write(f'\nNext:\n  {me} translate {model} "two old dogs saw the white horse" --align')
    write(f'  {me} show {model} "the small dog saw the black cat" --out cat.html')
    if to != "fr":
        write(f"  {me} draw orders --out orders.png    ({example.source}: {example.target})")
    write(f"  {me} train phrasebook-transformer --out {out_folder.parent / 'transformer'}")


def train(
    recipe: Annotated[str | None, typer.Argument(help=RECIPE, autocompletion=recipe_names)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings that override the recipe's.", autocompletion=complete_settings),
    ] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/RECIPE]")] = None,
    resume: Annotated[bool, flag("--resume", "Continue a run from its last checkpoint, by its own recipe.")] = False,
    json_: Json = False,
) -> None:
    """Train a model by a recipe into a run folder. Ctrl-C writes a checkpoint; --resume continues from it.

    `torchrun --standalone --nproc-per-node 2 -m saccade train …` trains on two processes as on one; see docs/many-machines.md.

    Examples:
        saccade train phrasebook-bahdanau --out runs/first
        saccade train translation data.train=train.en,train.fr model.size=small training.minutes=10 --out runs/mine
        saccade train --resume runs/mine
        saccade train --resume runs/mine training.minutes=30
        saccade train runs/mine/recipe.json --out runs/again
    """
    out.quiet = err.quiet = rank() > 0
    with err.status("starting …"):
        from .. import api, config
        from ..training.logs import shown
        from ..training.stopping import Stopped
        from .progress import Board

    made, folder = find_run(recipe, settings or [], out_folder, resume)
    if config.device(made.device).type == "cpu" and made.training.precision == "bf16":
        note("note: bf16 on a CPU. If the process dies with 'Illegal instruction', set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16.")
    try:
        with Board().watcher(folder.name, made.training.updates) as watcher:
            _, ended = api.fit(made, folder, resume, watcher)
    except Stopped as stopped:
        begun = os.path.exists(folder / "recipe.json")  # else it was stopped in the training that it starts from
        raise Stopped(*stopped.at, f"{command_name()} train --resume {folder}" if begun else "the same command") from None
    if ended.best is None:
        raise SaccadeError(f"{folder}: nothing was evaluated; raise training.updates")
    facts = {name: value for name, value in asdict(ended).items() if name not in ("batch", "worse")}
    best = f"best dev {made.training.watch} {shown(made.training.watch, ended.best)} at update {ended.best_update:,}"
    report(json_, {"out": str(folder), **facts}, f"{folder}: {ended.update:,} updates, {best}\n{usage(made, folder)}")


def find_run(recipe: str | None, words: list[str], out_folder: Path | None, resume: bool) -> "tuple[Recipe, Path]":
    """The recipe and the folder of a run: a new one by a recipe, or with `resume` a run by its own recipe, which words may change."""
    from .. import config
    from ..api import differences
    from ..fitting import adopt

    if recipe is not None and "=" in recipe and not os.path.exists(recipe):
        words, recipe = [recipe, *words], None
    if recipe is None and (out_folder is None or not resume):
        raise SaccadeError("no recipe was named; write `saccade train RECIPE`, or `saccade train --resume RUN` to continue a run")
    missing = recipe is not None and out_folder is None and os.sep in recipe and not os.path.exists(recipe)
    if recipe is None or (resume and (missing or os.path.isdir(recipe))):
        folder = out_folder or Path(str(recipe))
        if recipe is not None and folder.resolve() != Path(recipe).resolve():
            raise SaccadeError(f"{recipe} and --out {folder} are two folders; name the one run to resume")
        if not (folder / "recipe.json").exists():
            raise SaccadeError(f"{folder} holds no run to resume; start one with `saccade train RECIPE --out {folder}`")
        return config.read_recipe(folder / "recipe.json", words), folder
    path = Path(recipe)
    folder = out_folder or (path.parent if path.name == "recipe.json" else Path("runs") / path.stem)
    if not resume or not (folder / "recipe.json").exists():
        if resume:
            note(f"note: no run to resume in {folder}; starting a new one")
        return config.read_recipe(recipe, words), folder
    made = config.read_recipe(folder / "recipe.json", words)
    with suppress(SaccadeError):  # it may need words that were given when the run began
        if changed := differences(made.to_dict(), adopt(config.read_recipe(recipe, words), made).to_dict()):
            note(f"note: {recipe} differs from the run's own recipe in {', '.join(changed)}; the run's own recipe is used")
    return made, folder


def usage(recipe: "Recipe", folder: Path) -> str:
    from .. import config

    return f"Use it: {command_name()} {config.task(recipe).usage(recipe).format(model=folder)}"


def convert(
    run: Annotated[Path, typer.Argument(help=SHARDED, autocompletion=run_folders)],
    out_folder: OutFolder,
    json_: Json = False,
) -> None:
    """Make a plain model folder of a run's last sharded checkpoint, in one process.

    Examples:
        saccade convert runs/large --out models/large
    """
    from ..system import read_config
    from ..training.checkpoints import convert

    convert(run, out_folder)
    use = usage(read_config(out_folder / "config.json"), out_folder)
    report(json_, {"out": str(out_folder)}, f"{out_folder}: a model folder made of {run}\n{use}")


def average(
    models: Annotated[list[Path], typer.Argument(help="Model folders of one shape and vocabulary.", autocompletion=run_folders)],
    out_folder: OutFolder,
    json_: Json = False,
) -> None:
    """Write the mean of several models' parameters as a new model folder.

    Examples:
        saccade average runs/a runs/b runs/c --out runs/mean
    """
    from .. import api

    system = api.average(models, out_folder)
    facts = {"out": str(out_folder), "models": [str(model) for model in models], "family": system.name}
    report(json_, facts, f"{out_folder}: the mean of {len(models)} models")


def compare(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE… [KEY=VALUE…]", help="Recipes, and settings for all of them.", autocompletion=recipes_and_settings
        ),
    ],
    vary: Vary = None,
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds, counted from the recipe's own.", min=1, max=100)] = 1,
    data: Annotated[
        str, typer.Option("--data", help="Data to judge on. [default: the recipe's test set, else its dev set]")
    ] = "",
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path("runs/compare"),
    beam: TaskBeam = None,
    length_penalty: TaskPenalty = None,
    lengths: Lengths = False,
    moses: Moses = None,
    tokenize: Tokenize = None,
    controls: Controls = False,
    ensemble: Annotated[bool, flag("--ensemble", "Also score all the models together: the mean of their probabilities.")] = False,
    picture: Annotated[Path | None, typer.Option(help="The picture to draw. [default: OUT/compare.png]")] = None,
    result: Result = None,
    peer: Peers = None,
    json_: Json = False,
) -> None:
    """Train several recipes with the same seeds and data, and compare their metrics. Finished runs are reused.

    A winner is named only where the difference is larger than chance would give (p < 0.05). A picture and a page (OUT/report.html)
    are written. A recipe that has changed since the last time gets new folders; the old runs stay.

    Examples:
        saccade compare reviews-tf-idf reviews-static reviews-rnn reviews-transformer
        saccade compare mine.yaml other.yaml --seeds 3 training.updates=500 --result mine
        saccade compare phrasebook-bahdanau --vary model.score=dot,bilinear,additive --vary model.dim=64,128
        saccade compare phrasebook-transformer --vary "model.mask=full,{name: window, left: 3}" --seeds 2 --ensemble
    """
    from .. import comparing, config
    from ..training.stopping import Stopped
    from .progress import Board

    check_picture(picture)
    recipes = named_recipes(words, vary or [])
    write_result, first = result_writer(result, peer), next(iter(recipes.values()))
    options = keep_given(beam=beam, length_penalty=length_penalty, quarters=lengths, moses=moses, tokenize=tokenize)
    options |= keep_given(controls=controls)
    numbers = list(range(first.seed, first.seed + seeds))
    comparing.check(recipes, numbers, data, options)
    if ensemble:
        comparing.check_ensemble(recipes, numbers)
    judged_on = data or first.data.test or first.data.dev or f"what is held out of {first.data.train}"
    note(f"{len(recipes)} × {seeds} training runs into {out_folder}, judged on {judged_on}")
    try:
        rows = comparing.compare(recipes, numbers, out_folder, Board().watcher, data, options)
    except Stopped as stopped:
        raise Stopped(*stopped.at, "the same command") from None
    if ensemble:
        rows.append(comparing.score_ensemble(rows, first.device, data, options))
    metrics = report_comparison(rows, config.task(first).measures, judged_on, out_folder, picture, json_)
    described = [*(Path(word).stem for word in words if "=" not in word), *(f"--vary {word}" for word in vary or [])]
    write_result(metrics, " ".join(described), numbers)


def named_recipes(words: list[str], varied: list[str]) -> "dict[str, Recipe]":
    """The recipes among the words by their names, each with the settings among them, and once for each row of what is varied."""
    from ..varying import vary

    names = [word for word in words if "=" not in word]
    if not names:
        raise SaccadeError("no recipe was named; write saccade compare RECIPE RECIPE …")
    recipes = {Path(name).stem: name for name in names}
    if len(recipes) < len(names):
        raise SaccadeError("two of these recipes have the same name; rename one of the files")
    return vary(recipes, varied, [word for word in words if "=" in word])
