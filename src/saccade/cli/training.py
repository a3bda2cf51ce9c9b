"""Commands that make models: demo, train, convert, average, compare."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import SaccadeError
from .options import Json, Lengths, Moses, OutFolder, Peers, Result, TaskBeam, flag
from .shared import command_name, err, keep_given, note, out, print_json, rank, report, result_writer, show_all, write

if TYPE_CHECKING:
    from ..comparing import Row
    from ..config import Recipe

WHOLE = ("seconds", "updates", "parameters")  # metrics that are shown without decimals


def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Where runs, pictures and the report go.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="The seed of both training runs.", min=0, max=2**31 - 1)] = 0,
    json_: Json = False,
) -> None:
    """Train a translator without and one with attention on the embedded phrasebook, compare them, and draw the attention.

    Finished runs of the same seed are used again, and a stopped one is continued; no other run is replaced.

    Examples:
        saccade demo
        saccade demo --out runs/again --seed 1 --json
    """
    from ..demo import CALLED, run
    from .progress import Board

    result = run(out_folder, seed, Board().watcher, tell=note)
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
    write(f"  {me} train phrasebook-transformer --out {out_folder.parent / 'transformer'}")


def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a recipe that comes with saccade.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings that override the recipe's.")
    ] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/RECIPE]")] = None,
    resume: Annotated[bool, flag("--resume", "Resume from the last checkpoint.")] = False,
    json_: Json = False,
) -> None:
    """Train a model by a recipe into a run folder. Ctrl-C writes a checkpoint; --resume continues from it.

    `torchrun --standalone --nproc-per-node 2 -m saccade train …` trains on two processes as on one; see docs/many-machines.md.

    Examples:
        saccade train phrasebook-bahdanau --out runs/first
        saccade train my.yaml model.dim=256 training.updates=5000 --out runs/mine
        saccade train my.yaml --out runs/mine --resume
    """
    from .. import api, config
    from .progress import Board

    out.quiet = err.quiet = rank() > 0
    made = config.read_recipe(recipe, settings or [])
    folder = out_folder or Path("runs") / Path(recipe).stem
    if config.device(made.device).type == "cpu" and made.training.precision == "bf16":
        note("note: bf16 on a CPU. If the process dies with 'Illegal instruction', set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16.")
    if resume and not (folder / "recipe.json").exists():
        note(f"note: no run to resume in {folder}; starting a new one")
    with Board().watcher(made.model["family"], made.training.updates) as watcher:
        _, ended = api.fit(made, folder, resume, watcher)
    if ended.best is None:
        raise SaccadeError(f"{folder}: nothing was evaluated; raise training.updates")
    facts = {name: value for name, value in asdict(ended).items() if name not in ("batch", "worse")}
    best = f"best dev {made.training.watch} {ended.best:.4f} at update {ended.best_update:,}"
    report(json_, {"out": str(folder), **facts}, f"{folder}: {ended.update:,} updates, {best}\n{usage(made, folder)}")


def usage(recipe: "Recipe", folder: Path) -> str:
    from .. import config

    return f"Use it: {command_name()} {config.task(recipe).usage(recipe).format(model=folder)}"


def convert(
    run: Annotated[Path, typer.Argument(help="A run folder, or its last/, written with training.checkpoint=sharded.")],
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
    models: Annotated[list[Path], typer.Argument(help="Model folders of one shape and vocabulary.")],
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
    words: Annotated[list[str], typer.Argument(metavar="RECIPE… [KEY=VALUE…]", help="Recipes, and settings for all of them.")],
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds, counted from the recipe's own.", min=1, max=100)] = 1,
    data: Annotated[
        str, typer.Option("--data", help="Data to judge on. [default: the recipe's test set, else its dev set]")
    ] = "",
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path("runs/compare"),
    beam: TaskBeam = None,
    lengths: Lengths = False,
    moses: Moses = None,
    result: Result = None,
    peer: Peers = None,
    json_: Json = False,
) -> None:
    """Train several recipes with the same seeds and data, and compare their metrics. Finished runs are reused.

    Examples:
        saccade compare reviews-tf-idf reviews-static reviews-rnn reviews-transformer
        saccade compare mine.yaml other.yaml --seeds 3 training.updates=500 --result mine
    """
    from .. import comparing, config
    from ..training.stopping import Stopped
    from .progress import Board

    names = [word for word in words if "=" not in word]
    if not names:
        raise SaccadeError("no recipe was named; write saccade compare RECIPE RECIPE …")
    recipes = {Path(name).stem: config.read_recipe(name, [word for word in words if "=" in word]) for name in names}
    if len(recipes) < len(names):
        raise SaccadeError("two of these recipes have the same name; rename one of the files")
    write_result, first = result_writer(result, peer), next(iter(recipes.values()))
    options = keep_given(beam=beam, quarters=lengths, moses=moses)
    numbers = list(range(first.seed, first.seed + seeds))
    comparing.check(recipes, numbers, data, options)
    judged_on = data or first.data.test or first.data.dev or f"{first.data.held_out:.0%} held out of {first.data.train}"
    note(f"{len(recipes)} × {seeds} training runs into {out_folder}, judged on {judged_on}")
    try:
        rows = comparing.compare(recipes, numbers, out_folder, Board().watcher, data, options)
    except Stopped as stopped:
        raise Stopped(*stopped.at, "the same command") from None
    metric = next((name for name in ("accuracy", "exact", "bleu", "perplexity") if name in rows[0].metrics), "loss")
    higher = config.task(first).measures.get(metric, metric in ("exact", "bleu"))
    if json_:
        print_json({row.name: row.metrics for row in rows})
    else:
        show_all(side_by_side(rows))
        if len(rows) > 1:
            write(f"best {metric}: {' and '.join(row.name for row in comparing.best(rows, metric, higher))}")
    write_result(comparing.for_result(rows, metric, higher), " ".join(recipes), numbers)


def side_by_side(rows: "list[Row]") -> Table:
    """A line per metric, a column per recipe, so that many metrics fit."""

    def cell(row: "Row", name: str) -> str:
        mean, spread = row.mean(name), row.spread(name)
        if name in WHOLE:
            return f"{mean:,.0f}" if mean >= 10 else f"{mean:.2g}"
        return f"{mean:.5g}" + (f" ± {spread:.2g}" if spread else "")

    table = Table("", *(row.name for row in rows), box=None, pad_edge=False, header_style="bold")
    for name in rows[0].metrics:
        if all(name in row.metrics for row in rows):
            table.add_row(name, *(cell(row, name) for row in rows))
    return table
