"""The models of a service: what each can do, as jobs for the worker; and their folders, loaded again when they change."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import api
from ..core import sites
from ..data.image_decoding import read_image
from ..data.image_examples import Kept, Picture
from ..decoding import why_plain
from ..errors import SaccadeError, did_you_mean, with_article
from ..files import MANIFEST
from ..system.model_folder import model_folder
from ..system.system import System
from ..tasks.search_options import SAMPLING, make_search, sampling
from .continuous_batching import Flow, Output
from .kept_looks import Looks, looked
from .messages import Completion, Generate, Look
from .schema import Refused
from .service_settings import Limits, Settings
from .worker import Job

# the name of a model that is named by its languages
PAIR = re.compile(r"([a-z]{2,3})[-_]([a-z]{2,3})")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, eq=False)
class Sent(Picture):
    """A picture that came with a request."""

    data: bytes
    most: int

    @property
    def name(self) -> str:
        return "the image"

    def pixels(self, size: tuple[int, int] | None = None) -> Any:
        return read_image(self.data, size, self.most, "the image")


class Speller:
    """The text of tokens, one piece for each as it comes and one at the end."""

    def __init__(self, task: Any, prompt: str) -> None:
        self.waiting: deque[int] = deque()
        self.pieces: Iterator[str] = task.spell(prompt, self.tokens())

    def tokens(self) -> Iterator[int]:
        while self.waiting:
            yield self.waiting.popleft()

    def add(self, token: int) -> str:
        self.waiting.append(token)
        return next(self.pieces)

    def end(self) -> str:
        return next(self.pieces, "")


class Served:
    """One loaded model."""

    def __init__(
        self,
        name: str,
        system: System,
        limits: Limits,
        looks: Looks | None = None,
        created: int = 0,
    ) -> None:
        self.name, self.system, self.task, self.limits = name, system, system.task, limits
        self.looks, self.created = looks or Looks(), created  # seconds since 1970
        self.model = system.model.eval()
        self.does = list(self.task.routes)
        if not self.does:
            raise SaccadeError(
                f"{with_article(system.recipe.task)} model as '{name}' can answer nothing here; leave it out",
                code="cannot-serve",
            )
        self.fast = self.task.by_token and why_plain(self.model) is None
        self.flows: dict[int, Flow] = {}
        self.sees = "image" in self.task.fields
        named = PAIR.fullmatch(name)
        self.languages = (named[1], named[2]) if named else ("source", "target")

    def facts(self) -> dict[str, Any]:
        facts = self.system.facts()
        count = int(facts["parameters"].replace(",", ""))
        own = {
            "task": facts["task"],
            "family": facts["family"],
            "parameters": count,
            "does": self.does,
        }
        own["attends"] = bool(sites(self.model)) or "classify" in self.does
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "saccade",
            **own,
        }

    def flow(self, width: int, never: tuple[int, ...], pad: int) -> Flow:
        if width not in self.flows:
            self.flows[width] = Flow(self.model, width, never, pad)
        return self.flows[width]

    def job(
        self, verb: str, item: Any, run: Callable[[Sequence[Any]], Sequence[Any]], *same: Any
    ) -> Job:
        """One of a batch of all that ask for the same."""
        return Job(key=(verb, self, *same), item=item, run=run)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts to translate, each with its end."""
        found: list[list[int]] = self.task.source_ids(texts)
        return found

    def predict(
        self, verb: str, item: Any, options: dict[str, Any], ids: list[int] | None = None
    ) -> Job:
        """A prediction with the options of the task; where its tokens are there, it may enter a flow."""
        task, most = self.task, options.get("max_length")
        if hasattr(task, "lengths"):
            limit = min(most or task.lengths.limit(len(ids or [0])), self.limits.tokens)
            if self.fast and ids is not None and item.strip():
                return self.flowing(item, ids, options, limit)
            options = {
                **options,
                "max_length": most or (limit if limit == self.limits.tokens else None),
            }
        # who samples draws for itself
        alike = object() if any(name in options for name in SAMPLING) else tuple(options.items())
        options = options | task.without_view
        return self.job(verb, item, lambda some: self.predict_all(some, options), alike)

    def predict_all(self, items: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        found = dict(self.task.predict(self.model, items, **options))
        return [found[n] for n in range(len(items))]

    def flowing(self, text: str, ids: list[int], options: dict[str, Any], limit: int) -> Job:
        """A text whose output flows beside others, token by token."""
        task, words = self.task, self.task.target
        search = make_search(options)(words.bos, words.eos, task.never)
        flow = self.flow(options.get("beam", 1), task.never, task.source.pad)
        output = Output(ids, search, limit)
        made = Job(flow, output)
        made.finish = lambda found: task.finish(self.model, text, ids, found, **options)
        output.is_wanted = lambda: not made.cancelled
        return made

    def generate(self, asked: Generate | Completion, prompt: str, limit: int) -> Job:
        names = ("temperature", "top_k", "top_p", "seed")
        sample = sampling(None, {name: getattr(asked, name, None) for name in names}) or {}
        task, streams = self.task, bool(asked.stream)
        if not self.fast:
            made = Job(pieces=task.generate(self.model, prompt, limit, sample), streams=streams)
            made.finish = lambda _: made.spoken
            return made
        ids, search = task.begin(prompt, sample)
        output, speller = Output(ids, search, limit, task.how.block), Speller(task, prompt)
        made = Job(self.flow(1, search.never, task.text.pad), output, streams=streams)

        def finish(_: Any) -> list[str]:
            made.say(speller.end())
            return made.spoken

        made.finish, output.hear = finish, lambda token: made.say(speller.add(token))
        output.is_wanted = lambda: not made.cancelled
        return made

    def look(self, look: Look, *given: Any) -> Job:
        """What the model looked at, as the document of a view."""
        return self.job("look", None, lambda _: [looked(self, look, *given)], object())

    def can(self, verb: str) -> bool:
        return verb in self.does or verb == "look"

    def picture(self, data: bytes) -> Picture:
        """Decoded at the size the model reads."""
        sent = Sent(data, self.limits.pixels)
        return Kept(sent, sent.pixels(self.task.image_size))


class Shelf:
    """All models by their names; one whose folder changed is loaded beside the old one and takes its name over."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.models = settings, dict[str, Served]()
        self.seen: dict[str, Any] = {}
        self.looks = Looks()

    def load(self, name: str) -> Served:
        folder = self.settings.models[name]
        self.seen[name] = mark_of(folder)
        system = api.load(folder, self.settings.device, self.settings.precision)
        created = self.seen[name][1] // 10**9 if self.seen[name] else 0
        self.models[name] = Served(name, system, self.settings.limits, self.looks, created)
        return self.models[name]

    def changed(self) -> list[str]:
        """The names of models whose folders have changed since they were loaded."""
        return [
            name
            for name, folder in self.settings.models.items()
            if (now := mark_of(folder)) and now != self.seen.get(name)
        ]

    def choose(self, verb: str, name: str | None) -> Served:
        able = {one.name: one for one in self.models.values() if one.can(verb)}
        if name is None and able:
            return next(iter(able.values()))
        if name is None or name not in able:
            asked = (
                f"no model here can {verb}"
                if name is None
                else f"no model named '{name[:64]}' here can {verb}"
            )
            raise Refused(404, f"{asked}{did_you_mean(name or '', able)}", code="unknown-model")
        return able[name]


def mark_of(folder: Path) -> Any:
    """What is different once a model folder was written again; None where there is none at the moment."""
    try:
        path = model_folder(folder) / MANIFEST
        there = os.stat(path)
    except (OSError, SaccadeError):
        return None
    return str(path), there.st_mtime_ns, there.st_ino, there.st_size


def name_models(words: Sequence[str]) -> dict[str, Path]:
    """Models by the names they were given (NAME=FOLDER), or by those of their folders."""
    found: dict[str, Path] = {}
    for word in words:
        name, sign, folder = word.partition("=")
        if not sign or not NAME.fullmatch(name):
            folder = word
            path = Path(word)
            name = path.parent.name if path.name in ("best", "last") else path.resolve().name
        if not NAME.fullmatch(name):
            raise SaccadeError(
                f"expected a name of letters, digits, '.', '_' and '-', got '{name}'; give one: NAME={folder}",
                code="bad-name",
            )
        if name in found:
            raise SaccadeError(
                f"two models are named '{name}'; give other names: NAME={folder}",
                code="duplicate-name",
            )
        found[name] = Path(folder)
    return found
