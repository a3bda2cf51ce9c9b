"""Many inputs answered in parts, here or on a Ray cluster, and given back in order; parts that are kept let a second run continue."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import api
from ..data.conllu import Sentence, tag_conllu
from ..data.pairs import Pair, format_pharaoh
from ..errors import SaccadeError
from ..files import LOCK, MANIFEST, held, sha256, write_atomically
from ..system.model_folder import model_folder
from ..system.system import System
from ..tasks.text_scores import with_copies
from ..training.signals import Stopped, stop_on_signals
from .ray_runner import cluster
from .runner import SECONDS

# texts of a part that is kept or sent, and of any other: batches of many are of more similar lengths
PART, TOGETHER = (512, 4096)
RETRIES = 3  # of a part whose process died
Tick = Callable[[int], object]  # called with the number of inputs that were answered
Done = dict[str, Any]  # the lines and rows of a part, and how many of its outputs were cut


@dataclass(frozen=True)
class How:
    """All that a process on another machine needs to know."""

    model: str
    others: tuple[str, ...] = ()
    device: str = "auto"
    precision: str = "float32"
    options: tuple[tuple[str, Any], ...] = ()  # of the task's predictions
    align: bool = False


def name_of(given: Any) -> str:
    """How an input of a prediction is called: a text is itself, a picture its file, a sentence its words."""
    if isinstance(given, tuple):
        return str(given[-1])
    if isinstance(given, str):
        return given
    return str(getattr(given, "name", "")) or " ".join(getattr(given, "words", ()))


def answer_inputs(
    system: System, inputs: Sequence[Any], how: How, tick: Tick = lambda count: None
) -> list[Any]:
    """The answer to each input; None for an empty one, unless the model makes something of it."""
    empty = system.task.by_token and "question" not in system.task.fields
    asked = [n for n, one in enumerate(inputs) if empty or not_empty(one)]
    found = dict.fromkeys(range(len(inputs)))
    for n, one in system.predictions([inputs[n] for n in asked], **dict(how.options)):
        found[asked[n]] = one
        tick(1)
    return list(found.values())


def not_empty(given: Any) -> bool:
    return not isinstance(given, str | tuple) or bool(name_of(given).strip())


def printed(
    system: System, inputs: Sequence[Any], answers: Sequence[Any], how: How
) -> list[tuple[str, dict[str, Any]]]:
    """The line and the row of each answer."""
    made = list[tuple[str, dict[str, Any]]]()
    for given, one in zip(inputs, answers, strict=True):
        name = name_of(given)
        if one is None:
            what = "answer" if "question" in system.task.fields else system.task.answers[0]
            made.append(("", {system.task.fields[-1]: name, what: None}))
        elif isinstance(given, Sentence):
            lines = tag_conllu("", [(given, one)], system.recipe.data.column)
            made.append(("".join(lines).removesuffix("\n"), one.row(name)))
        else:
            row = one.row(name)
            again = system.task.verbs[0] == "reconstruct"
            if (text := row.pop("translation", None) if again else None) is not None:
                row["text"] = text
            made.append((one.line(name), row))
    if how.align:
        pairs = [Pair(str(given), one.text) for given, one in zip(inputs, answers, strict=True)]
        for n, found in enumerate(system.align(pairs)):
            links = with_copies(found.links, answers[n].copied)
            line, row = made[n]
            made[n] = f"{line}\t{format_pharaoh(links)}", {**row, "alignment": links}
    return made


def answer_texts(
    system: System, texts: Sequence[str], how: How, tick: Tick = lambda count: None
) -> Done:
    """The lines and rows of a part."""
    inputs = [system.task.input_from(text) if text.strip() else text for text in texts]
    answers = answer_inputs(system, inputs, how, tick)
    lines, rows = zip(*printed(system, inputs, answers, how), strict=True)
    return {"lines": lines, "rows": rows, "cut": count_cut(answers)}


def count_cut(answers: Sequence[Any]) -> int:
    """How many outputs did not come to their end."""
    return sum(not getattr(one, "finished", True) for one in answers)


@lru_cache(maxsize=1)
def loaded(how: How) -> System:
    systems = [api.load(folder, how.device, how.precision) for folder in (how.model, *how.others)]
    return api.ensemble(systems) if how.others else systems[0]


def answer_there(how: How, lines: Sequence[str], folder: str) -> Done:
    """In a process of a cluster, where the same folders are expected."""
    os.chdir(folder)
    return answer_texts(loaded(how), lines, how)


class Kept:
    """A folder of finished parts; those of another text, model or setting are refused."""

    def __init__(self, folder: Path, how: How, lines: Sequence[str]) -> None:
        self.folder = folder
        models = [sha256(model_folder(Path(one)) / MANIFEST) for one in (how.model, *how.others)]
        plan = {
            "part": PART,
            "models": models,
            **{name: value for name, value in asdict(how).items() if name != "device"},
        }
        digest = hashlib.sha256(json.dumps([plan, list(lines)]).encode()).hexdigest()
        there = folder / "plan.json"
        if not there.exists():
            write_atomically(there, json.dumps({"plan": digest}).encode())
        elif read_json(there).get("plan") != digest:
            raise SaccadeError(
                f"the parts in {folder} are of another text, model or setting; remove them, or choose another --out",
                code="parts-differ",
            )

    def path(self, n: int) -> Path:
        return self.folder / f"part-{n:08}.json"

    def read(self, count: int) -> dict[int, Done]:
        return {n: read_json(self.path(n)) for n in range(count) if self.path(n).exists()}

    def write(self, n: int, done: Done) -> None:
        write_atomically(self.path(n), json.dumps(done).encode())

    def remove(self) -> None:
        for path in [
            *self.folder.glob("part-*.json"),
            self.folder / "plan.json",
            self.folder / LOCK,
        ]:
            path.unlink(missing_ok=True)
        self.folder.rmdir()


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise SaccadeError(
            f"{path} is not a part of answers; remove it and run the command again",
            code="foreign-files",
        ) from None


@contextmanager
def kept(folder: Path | None, how: How, lines: Sequence[str]) -> Iterator[Kept | None]:
    """The finished parts in a folder, which nobody else writes meanwhile; without a folder none are kept."""
    if folder is None:
        yield None
        return
    with held(folder):
        yield Kept(folder, how, lines)


def on_ray(
    todo: Iterable[tuple[int, Sequence[str]]], how: How, count: int
) -> Iterator[tuple[int, Done]]:
    """Parts as they are finished, `count` at a time; Ray runs that of a process that died again."""
    with cluster(count, 1) as ray, stop_on_signals() as signals:
        share = min(1.0, ray.cluster_resources().get("GPU", 0) / count)
        remote = ray.remote(max_retries=RETRIES, num_cpus=1, num_gpus=share)(answer_there)
        waiting, running = iter(todo), dict[Any, int]()
        while True:
            while len(running) < count and (part := next(waiting, None)) is not None:
                running[remote.remote(how, part[1], os.getcwd())] = part[0]
            if not running:
                return
            for ready in ray.wait(list(running), timeout=SECONDS)[0]:
                try:
                    yield running.pop(ready), ray.get(ready)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, SaccadeError) else error from None
                except ray.exceptions.RayError as error:
                    why = str(error).strip().partition("\n")[0]
                    raise SaccadeError(
                        f"a part failed {RETRIES + 1} times ({why}); give its processes more memory",
                        code="part-failed",
                    ) from None
            if signals:
                raise Interrupted(signals[0])


class Interrupted(Stopped):
    """A signal ended the work."""

    def __init__(self, number: int) -> None:
        super().__init__(number, 0)
        self.args = ("stopped; with --out, the same command continues with what is missing",)


def answer_all(
    lines: Sequence[str],
    how: How,
    system: System,
    on: str = "here",
    count: int = 2,
    keep: Kept | None = None,
    tick: Tick = int,
) -> Iterator[Done]:
    """The parts of a text in its order."""
    size = TOGETHER if on == "here" and keep is None else PART
    parts = [lines[n : n + size] for n in range(0, len(lines), size)]
    found = {} if keep is None else keep.read(len(parts))
    tick(sum(len(parts[n]) for n in found))
    todo = [(n, part) for n, part in enumerate(parts) if n not in found]
    if on == "ray" and todo:
        new = on_ray(todo, how, count)
    else:
        new = ((n, answer_texts(system, part, how, tick)) for n, part in todo)
    for n in range(len(parts)):
        while n not in found:
            number, done = next(new)
            found[number] = done
            if on == "ray":
                tick(len(parts[number]))
            if keep is not None:
                keep.write(number, done)
        yield found.pop(n)
