"""What a model looked at, as a document that pictures, pages and JSON are made from."""

from __future__ import annotations

import torch

from .core import record
from .data.pairs import Pair
from .errors import SaccadeError
from .system import System
from .tasks.classification import Classification
from .tasks.translation import Translation
from .views.document import Document
from .views.document import Site as SiteView

Shown = tuple[list[str], list[str], list[SiteView]]  # what was read, what came of it, and the attention


@torch.no_grad()
def show(system: System, text: str, target: str | None = None, beam: int = 1) -> Document:
    """What every attention of the model looked at while it read a text, or translated it (or generated a given target)."""
    if not text.strip():
        raise SaccadeError("the text is empty; give a sentence")
    if isinstance(system.task, Translation):
        source, outcome, sites = show_translation(system, text, system.decode([text], beam)[0].text if target is None else target)
    elif target is None:
        source, outcome, sites = show_reading(system, text)
    else:
        raise SaccadeError(f"a {system.recipe.task} model generates no text; leave the target out")
    if not sites:
        raise SaccadeError(
            f"a {system.name} model has no attention to show; train one that attends, such as bahdanau or transformer"
        )
    called = ("source", "target") if isinstance(system.task, Translation) else ("text", system.task.outcome)
    return Document(title=text, source=source, target=outcome, sites=sites, model=system.name, called=called)


def show_translation(system: System, text: str, output: str) -> Shown:
    """All attention of a translation, that to the source first."""
    task, model = system.task, system.model.eval()
    source, target = [*task.source.encode(text).pieces, "<eos>"], [*task.target.encode(output).pieces, "<eos>"]
    batch = task.batch(task.numbers([Pair(text, output)]), system.device)
    with record(model) as read:
        model.start(*batch.inputs[:2])  # type: ignore[operator]
    with record(model) as seen:
        model(*batch.inputs)
    sites = []
    for name, looks in sorted(seen.items(), key=lambda item: not item[1].cross):
        own = source if read[name].calls else ["<bos>", *target[:-1]]  # the decoder has not looked at anything when it starts
        rows, columns = (target, source) if looks.cross else (own, own)
        sites.append(SiteView(name, rows, columns, looks.weights()[0].float().cpu().tolist()))
    return source[:-1], target[:-1], sites


def show_reading(system: System, text: str) -> Shown:
    """The attention inside a model that reads one text, and what its label was pooled from, where it has one."""
    with record(system.model) as seen:
        tokens, outcome = system.task.look(system.model, text)
    sites = []
    if isinstance(system.task, Classification):
        sites.append(SiteView("pool", [outcome], tokens, [[system.classify([text])[0].weights]]))
    for name, looks in seen.items():
        found = looks.calls[-1].weights()[0].float().cpu()
        if name != "pool" and found.shape[1] == found.shape[2] == len(tokens):
            sites.append(SiteView(name.removeprefix("body."), tokens, tokens, found.tolist()))
    return tokens, [outcome], sites
