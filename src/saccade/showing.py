"""What a model looked at, as a document that pictures, pages and JSON are made from."""

from __future__ import annotations

import torch

from .core import record
from .data.pairs import Pair
from .data.vocabulary import BOS, EOS
from .decoding import Beam, greedy
from .errors import SaccadeError
from .system import System
from .tasks.classification import Classification
from .tasks.translation import NEVER, Translation
from .views.document import Document
from .views.document import Site as SiteView


def show(system: System, text: str, target: str | None = None, beam: int = 1) -> Document:
    """What every attention of the model looked at while it read a text, or translated it (or put out a given target)."""
    if not text.strip():
        raise SaccadeError("the text is empty; give a sentence")
    if isinstance(system.task, Translation):
        return show_translation(system, system.task, text, target, beam)
    if target is not None:
        raise SaccadeError(f"a {system.recipe.task} model puts out no text; leave the target out")
    return show_reading(system, text)


def show_translation(system: System, task: Translation, text: str, target: str | None, beam: int) -> Document:
    output = target
    if output is None:
        search = (lambda: greedy(BOS, EOS, NEVER)) if beam == 1 else (lambda: Beam(BOS, EOS, NEVER, beam))
        output = dict(task.translate(system.model, [text], search))[0].text
    source, put_out = [*task.source.encode(text).pieces, "<eos>"], [*task.target.encode(output).pieces, "<eos>"]
    batch = task.batch(task.numbers([Pair(text, output)]), system.device)
    system.model.eval()
    with torch.no_grad(), record(system.model) as seen:
        system.model(batch.source, batch.lengths, batch.read)
    names = {"cross": (put_out, source), "encoder": (source, source), "decoder": (["<bos>", *put_out[:-1]],) * 2}
    sites = []
    for name, looks in seen.items():
        rows, columns = names["cross" if name.endswith("cross") else name.split(".")[0]]
        sites.append(SiteView(name, rows, columns, looks.weights()[0].float().cpu().tolist()))
    sites.sort(key=lambda site: not site.name.endswith("cross"))
    return document(system, text, source[:-1], put_out[:-1], sites)


def show_reading(system: System, text: str) -> Document:
    """The attention inside a model that reads one text, and what its label was pooled from, where it has one."""
    with torch.no_grad(), record(system.model) as seen:
        tokens, outcome = system.task.look(system.model, text)
    sites = []
    if isinstance(system.task, Classification):
        weights = system.task.classify(system.model, [text])[0].weights
        sites.append(SiteView("pool", [outcome], tokens, [[weights]]))
    for name, looks in seen.items():
        found = looks.calls[-1].weights()[0].float().cpu()
        if name != "pool" and found.shape[1] == found.shape[2] == len(tokens):
            sites.append(SiteView(name.removeprefix("body."), tokens, tokens, found.tolist()))
    return document(system, text, tokens, [outcome], sites, ("text", system.task.outcome))


def document(
    system: System,
    text: str,
    source: list[str],
    target: list[str],
    sites: list[SiteView],
    called: tuple[str, str] = ("source", "target"),
) -> Document:
    if not sites:
        raise SaccadeError(
            f"a {system.name} model has no attention to show; train one that attends, such as bahdanau or transformer"
        )
    return Document(title=text, source=source, target=target, sites=sites, model=system.name, called=called)
