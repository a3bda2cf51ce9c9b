"""The report of training runs: `curves.png`, and one page with curves, metrics, samples, attention, data, settings and cost."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import recipes
from ..config.recipes import Recipe
from ..errors import SaccadeError
from ..files import write_atomically
from ..training.cost import duration
from ..training.logs import format_metric, read_rows
from ..training.work import Work
from ..views.document import Document
from ..views.html_page import Section, report_page
from .build import load
from .model_folder import read_config
from .provenance import environment
from .recipe_data import spread
from .system import System

EVALUATIONS, LOOKS, LONGEST = 12, 2, 400  # of them in a page; characters in a cell
ABOUT = "run.json"
PSNR = "Of the dev set: pictures, and what the model made of them."
Show = Callable[[System, str], Document]
Note = Callable[[str], object]


@dataclass(frozen=True)
class Run:
    """A run folder as a report reads it: its recipe, the numbers of its log, and where and on what it was trained."""

    path: Path
    recipe: Recipe
    rows: list[dict[str, float]]
    about: dict[str, Any]

    @property
    def evaluations(self) -> list[dict[str, float]]:
        return [row for row in self.rows if any(name.startswith("dev_") for name in row)]

    @property
    def best(self) -> dict[str, float]:
        """The evaluation with the best value of what the recipe watches; empty before the first one."""
        watch = self.recipe.training.watch
        sign = 1 if self.recipe.kind.measures.get(watch) else -1
        return max(
            self.evaluations,
            key=lambda row: sign * row.get(f"dev_{watch}", -sign * math.inf),
            default={},
        )


def read_run(path: Path, recipe: Recipe | None = None) -> Run:
    """A run folder, whose recipe may be known; what is not a number in its log is left out."""
    if not (path / "recipe.json").is_file():
        raise SaccadeError(
            f"{path} is not a run folder: it has no recipe.json; give folders that `saccade train` wrote",
            code="not-a-run",
        )
    rows = [
        {name: value for name, value in row.items() if is_number(value)}
        for row in read_rows(path / "log.jsonl")
    ]
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        about = None  # as older versions left a run
    kept = [row for row in rows if "update" in row]
    recipe = recipe or read_config(path / "recipe.json")
    return Run(path, recipe, kept, about if isinstance(about, dict) else {})


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and -1e300 < value < 1e300


def describe(system: System, work: Work) -> bytes:
    """What `run.json` contains: data, vocabulary, size and environment of a run that begins."""
    data: dict[str, Any] = {f"examples, {name}": count for name, count in work.counts.items()}
    data |= {
        f"vocabulary, {side}": len(words) for side, (words, _) in system.task.texts([]).items()
    }
    data |= {"labels": len(system.task.labels)} if hasattr(system.task, "labels") else {}
    cost = {"parameters": sum(p.numel() for p in system.model.parameters()), **environment()}
    return (
        json.dumps({"data": {**data, "notes": list(system.notes)}, "cost": cost}, indent=2) + "\n"
    ).encode()


def draw_curves(path: Path, runs: Sequence[Run]) -> bytes:
    """Writes the picture; returns its content."""
    from ..views.figures import curves, png  # matplotlib takes a second to import

    content = png(
        curves(
            {str(run.path): run.rows for run in runs},
            f"{len(runs)} runs" if len(runs) > 1 else runs[0].path.name,
        )
    )
    write_atomically(path, content)
    return content


def finish(
    path: Path, recipe: Recipe, system: System | None, work: Work, show: Show, note: Note
) -> None:
    """Writes `curves.png` of a run that stops, and with its best system `report.html`; whatever fails is a note and breaks no run."""
    try:
        run = read_run(path, recipe)
        picture = draw_curves(path / "curves.png", [run])
        if system is not None:
            write_atomically(
                path / "report.html", page([run], [system], work.some, show, picture).encode()
            )
    except Exception as error:
        note(
            f"note: no report was written ({type(error).__name__}: {error}); try `saccade report {path}`"
        )


def report(
    paths: Sequence[Path], out: Path, show: Show, first: Sequence[Section] = (), title: str = ""
) -> list[Run]:
    """Writes the page of some runs, and their curves beside it; of several, curves and metrics side by side."""
    runs, examples = [read_run(path) for path in paths], list[Any]()
    systems = [load(run.path / "best") for run in runs if (run.path / "best").is_dir()]
    if len(systems) == len(runs) and len({run.recipe.task for run in runs}) == 1:
        try:
            examples = list(spread(systems[0].read("dev")))
        except SaccadeError as error:
            first = [*first, Section("Without samples", f"The dev data could not be read: {error}")]
    picture = draw_curves(
        out.with_name("curves.png") if out.name == "report.html" else out.with_suffix(".png"), runs
    )
    write_atomically(out, page(runs, systems, examples, show, picture, first, title).encode())
    return runs


def page(
    runs: Sequence[Run],
    systems: Sequence[System],
    examples: Sequence[Any],
    show: Show,
    picture: bytes,
    first: Sequence[Section] = (),
    title: str = "",
) -> str:
    """The report as one HTML file that loads nothing."""
    from ..views.figures import before_after, png

    names = [str(run.path) for run in runs]
    watched = f"At the evaluation with the best dev {runs[0].recipe.training.watch}."
    sections = [
        *first,
        Section("Metrics", watched, side(runs, results)),
        Section("Curves", picture=picture),
    ]
    if len(runs) == 1 and (rows := runs[0].evaluations):
        some = [*rows[: -1 : len(rows) // EVALUATIONS + 1], rows[-1]]
        cells = [[format_metric(name, row.get(name, "–")) for name in rows[0]] for row in some]
        sections.append(
            Section("Evaluations", table=[[name.replace("_", " ") for name in rows[0]], *cells])
        )
    outputs = (
        [system.task.samples(system.model, examples) for system in systems] if examples else []
    )
    if outputs and outputs[0]:
        cells = [[*each[0][:2], *(row[2] for row in each)] for each in zip(*outputs, strict=True)]
        head = ["input", "reference", *(names if len(runs) > 1 else ["output"])]
        sections.append(
            Section(
                "Samples",
                "Of the dev set.",
                [head, *([cut(text) for text in row] for row in cells)],
            )
        )
        sections += looks(systems[0], [row[0] for row in outputs[0]], show)
    made = [
        (run, found)
        for run, one in zip(runs, systems, strict=False)
        if examples and (found := one.task.reconstructions(one.model, examples))
    ]
    sections += [
        Section(
            f"Before and after{f', {run.path}' * (len(runs) > 1)}",
            PSNR,
            picture=png(before_after(found)),
        )
        for run, found in made
    ]
    sections.append(
        Section(
            "Data", table=side(runs, lambda run: {**sources(run), **flat(run.about.get("data"))})
        )
    )
    what = "What differs from the defaults." if len(runs) == 1 else "What differs between the runs."
    sections.append(Section("Settings", what, settings(runs)))
    sections.append(
        Section("Cost", table=side(runs, lambda run: {**spent(run), **flat(run.about.get("cost"))}))
    )
    for section in sections:
        section.table = section.table if section.table and len(section.table) > 1 else None
    return report_page(title or ", ".join(names), sections)


def looks(system: System, texts: Sequence[str], show: Show) -> list[Section]:
    """The attention view of one or two of the samples, those that are neither short nor long; nothing of a model that does not attend."""
    try:
        chosen = sorted(texts, key=lambda text: abs(len(text.split()) - 9))[:LOOKS]
        documents = [show(system, " ".join(text[:120].split())) for text in chosen]
    except SaccadeError:
        return []
    return [Section(f"Attention: {cut(one.title, 60)}", document=one) for one in documents]


def side(runs: Sequence[Run], facts: Callable[[Run], Mapping[str, object]]) -> list[list[str]]:
    """A row for each fact, a column for each run."""
    each = [facts(run) for run in runs]
    names = dict.fromkeys(name for one in each for name in one)
    return [
        ["", *(str(run.path) for run in runs)],
        *([cut(name), *(cut(one.get(name, "–")) for one in each)] for name in names),
    ]


def results(run: Run) -> dict[str, str]:
    return {
        name.replace("_", " "): format_metric(name, value)
        for name, value in run.best.items()
        if name != "epoch"
    }


def sources(run: Run) -> dict[str, str]:
    return {
        f"data.{split}": getattr(run.recipe.data, split) or "–"
        for split in ("train", "dev", "test")
    }


def spent(run: Run) -> dict[str, str]:
    """What the log says of time and tokens."""
    last = {name: value for row in run.rows for name, value in row.items()}
    found = {
        name: f"{value:,.0f}"
        for name, value in last.items()
        if name in ("update", "epoch", "tokens")
    }
    return {**found, "time": duration(last["seconds"])} if "seconds" in last else found


def settings(runs: Sequence[Run]) -> list[list[str]]:
    """Of one run what differs from the defaults of its task and model; of several what differs between them."""
    each, head = [flat(run.recipe.to_dict()) for run in runs], [str(run.path) for run in runs]
    if len(runs) == 1:
        recipe = runs[0].recipe
        objective = {"language": {"objective": recipe.language.objective}}
        objective = {} if recipe.language.objective == "causal" else objective
        plain = recipes.recipe(
            {"task": recipe.task, "model": {"family": recipe.model["family"]}, **objective}
        )
        each, head = [*each, flat(plain.to_dict())], ["value", "default"]
    keys = [
        key
        for key in dict.fromkeys(key for one in each for key in one)
        if len({one.get(key) for one in each}) > 1
    ]
    return [["setting", *head], *([key, *(cut(one.get(key, "–")) for one in each)] for key in keys)]


def flat(tree: object, path: str = "") -> dict[str, str]:
    """Nested values under dotted names."""
    if not isinstance(tree, dict):
        return {path: str(tree)} if path else {}
    return {
        key: value
        for name, one in tree.items()
        for key, value in flat(one, f"{path}.{name}".lstrip(".")).items()
    }


def cut(text: object, longest: int = LONGEST) -> str:
    return str(text) if len(str(text)) <= longest else str(text)[: longest - 1] + "…"
