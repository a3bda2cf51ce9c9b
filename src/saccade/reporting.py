"""The report of training runs: `curves.png`, and one page with curves, metrics, samples, attention, data, settings and cost."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import config
from .config import Recipe
from .errors import SaccadeError
from .files import write_atomically
from .results import environment
from .system import System, load, read_config
from .training.cost import duration
from .training.logs import read_rows, shown
from .training.work import Work
from .views.document import Document
from .views.page import Section, report_page

SAMPLES, EVALUATIONS, LOOKS = 6, 12, 2  # of them in a page
LONGEST = 400  # characters in a cell
ABOUT = "run.json"
Show = Callable[[System, str], Document]
Note = Callable[[str], object]


@dataclass(frozen=True)
class Run:
    """A run folder as a report reads it: its recipe, the rows of its log, and where and on what it was trained."""

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
        sign = 1 if config.task(self.recipe).measures.get(watch) else -1
        return max(self.evaluations, key=lambda row: sign * row.get(f"dev_{watch}", -sign * math.inf), default={})


def read_run(path: Path) -> Run:
    """A run folder; what is not a number in its log is left out."""
    if not (path / "recipe.json").is_file():
        raise SaccadeError(f"{path} is not a run folder: it has no recipe.json; give folders that `saccade train` wrote")
    rows = [{name: v for name, v in row.items() if is_number(v)} for row in read_rows(path / "log.jsonl")]
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        about = {}  # as older versions left a run
    rows = [row for row in rows if "update" in row]
    return Run(path, read_config(path / "recipe.json"), rows, about if isinstance(about, dict) else {})


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and -1e300 < value < 1e300


def spread(examples: Sequence[Any]) -> Sequence[Any]:
    """A few examples, from everywhere among them."""
    return examples[:: max(1, len(examples) // SAMPLES)][:SAMPLES]


def describe(system: System, work: Work) -> bytes:
    """What `run.json` contains: data, vocabulary, size and environment of a run that begins."""
    sizes = {f"vocabulary, {side}": len(words) for side, (words, _) in system.task.texts([]).items()}
    parameters = sum(p.numel() for p in system.model.parameters())
    sizes |= {"labels": len(labels)} if (labels := getattr(system.task, "labels", ())) else {}
    data = {**{f"examples, {name}": count for name, count in work.counts.items()}, **sizes, "notes": list(system.notes)}
    return (json.dumps({"data": data, "cost": {"parameters": parameters, **environment()}}, indent=2) + "\n").encode()


@contextmanager
def harmless(note: Note) -> Iterator[None]:
    """Within the `with`, whatever fails is a note: a picture must not break a training run."""
    try:
        yield
    except Exception as error:
        note(f"note: no report was written ({type(error).__name__}: {error}); try `saccade report` on this run")


def draw_curves(path: Path, runs: Sequence[Run]) -> bytes:
    """Writes the picture; returns its content."""
    from .views.curves import curves, png  # matplotlib takes a second to import

    content = png(curves({str(run.path): run.rows for run in runs}, f"{len(runs)} runs" if len(runs) > 1 else runs[0].path.name))
    write_atomically(path, content)
    return content


def finish(path: Path, system: System, examples: Sequence[Any], show: Show, note: Note) -> None:
    """Writes `curves.png` and `report.html` of a run that has ended."""
    with harmless(note):
        run = read_run(path)
        write_atomically(
            path / "report.html", page([run], [system], examples, show, draw_curves(path / "curves.png", [run])).encode()
        )


def report(paths: Sequence[Path], out: Path, show: Show, first: Sequence[Section] = (), title: str = "") -> list[Run]:
    """Writes the page of some runs; of several, curves and metrics side by side."""
    runs = [read_run(path) for path in paths]
    systems = []
    for run in runs:
        if (run.path / "best").is_dir():
            systems.append(load(run.path / "best"))
    examples: Sequence[Any] = ()
    if len(systems) == len(runs) and len({run.recipe.task for run in runs}) == 1:
        try:
            examples = spread(systems[0].read("dev"))
        except SaccadeError as error:
            first = [*first, Section("Without samples", f"The dev data could not be read: {error}")]
    picture = draw_curves(out.with_name("curves.png") if out.name == "report.html" else out.with_suffix(".png"), runs)
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
    watched = f"At the evaluation with the best dev {runs[0].recipe.training.watch}."
    sections = [*first, Section("Metrics", watched, side(runs, results)), Section("Curves", picture=picture)]
    if len(runs) == 1:
        sections.append(Section("Evaluations", table=evaluations(runs[0])))
    rows = [system.task.samples(system.model, examples) for system in systems] if examples else []
    if rows and rows[0]:
        names = ["output"] if len(runs) == 1 else [str(run.path) for run in runs]
        cells = [[*each[0][:2], *(row[2] for row in each)] for each in zip(*rows, strict=True)]
        table = [["input", "reference", *names], *([cut(text) for text in row] for row in cells)]
        sections.append(Section("Samples", "Examples of the dev set, and what the model makes of them.", table))
    sections += looks(systems, [row[0] for row in rows[0]] if rows else [], show, runs)
    sections.append(Section("Data", table=side(runs, lambda run: {**sources(run.recipe), **flat(run.about.get("data"))})))
    what = "What differs from the defaults." if len(runs) == 1 else "What differs between the runs."
    sections.append(Section("Settings", what, settings(runs)))
    sections.append(Section("Cost", table=side(runs, lambda run: {**spent(run), **flat(run.about.get("cost"))})))
    return report_page(title or ", ".join(str(run.path) for run in runs), [one for one in sections if one.table != []])


def side(runs: Sequence[Run], facts: Callable[[Run], Mapping[str, object]]) -> list[list[str]]:
    """A row for each fact, a column for each run."""
    each = [facts(run) for run in runs]
    names = dict.fromkeys(name for one in each for name in one)
    head = ["", *(str(run.path) for run in runs)]
    return [head, *([cut(name), *(cut(one.get(name, "–")) for one in each)] for name in names)] if names else []


def results(run: Run) -> dict[str, str]:
    return {name.replace("_", " "): shown(name, value) for name, value in run.best.items() if name != "epoch"}


def spent(run: Run) -> dict[str, str]:
    """What the log says of time and tokens."""
    last = {name: value for row in run.rows for name, value in row.items()}
    found: dict[str, str] = {name: f"{last[name]:,.0f}" for name in last if name in ("update", "epoch", "tokens")}
    return {**found, **({"time": duration(last["seconds"])} if "seconds" in last else {})}


def evaluations(run: Run) -> list[list[str]]:
    """Some of the evaluations, the best and the last among them."""
    rows = run.evaluations
    chosen = [*rows[:: max(1, len(rows) // EVALUATIONS)], run.best, *rows[-1:]]
    names = dict.fromkeys(name for row in rows for name in row)
    marked = [row for row in rows if any(row is one for one in chosen)]
    cells = [[*(shown(name, row.get(name, "")) for name in names), "best" if row is run.best else ""] for row in marked]
    return [[*(name.replace("_", " ") for name in names), ""], *cells] if rows else []


def looks(systems: Sequence[System], texts: Sequence[str], show: Show, runs: Sequence[Run]) -> Iterator[Section]:
    """The attention view of the first runs on one or two of the samples, those that are neither short nor long."""
    chosen = sorted(texts, key=lambda text: abs(len(text.split()) - 9))[: LOOKS if len(systems) == 1 else 1]
    for run, system in list(zip(runs, systems, strict=False))[:LOOKS]:
        for text in chosen:
            try:
                document = show(system, " ".join(text[:120].split()))
            except SaccadeError:
                return  # a model that does not attend
            yield Section(f"Attention: {cut(text, 60)}" + (f", {run.path}" if len(runs) > 1 else ""), document=document)


def sources(recipe: Recipe) -> dict[str, str]:
    return {f"data.{split}": where for split in ("train", "dev", "test") if (where := getattr(recipe.data, split))}


def settings(runs: Sequence[Run]) -> list[list[str]]:
    """Of one run what differs from the defaults of its task and model; of several what differs between them."""
    each = [flat(run.recipe.to_dict()) for run in runs]
    if len(runs) == 1:
        recipe = runs[0].recipe
        objective = {"language": {"objective": recipe.language.objective}} if recipe.task == "language-modelling" else {}
        plain = config.recipe({"task": recipe.task, "model": {"family": recipe.model["family"]}, **objective})
        each.append(flat(plain.to_dict()))
    keys = [key for key in dict.fromkeys(key for one in each for key in one) if len({one.get(key) for one in each}) > 1]
    head = ["setting", "value", "default"] if len(runs) == 1 else ["setting", *(str(run.path) for run in runs)]
    return [head, *([key, *(cut(one.get(key, "–")) for one in each)] for key in keys)] if keys else []


def flat(tree: object, path: str = "") -> dict[str, str]:
    """Nested settings under dotted names."""
    if not isinstance(tree, dict):
        return {path: json.dumps(tree, ensure_ascii=False) if isinstance(tree, list) else str(tree)} if path else {}
    return {key: value for name, one in tree.items() for key, value in flat(one, f"{path}.{name}".lstrip(".")).items()}


def cut(text: object, longest: int = LONGEST) -> str:
    return str(text) if len(str(text)) <= longest else str(text)[: longest - 1] + "…"
