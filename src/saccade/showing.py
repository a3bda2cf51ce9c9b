"""From a record of a model at work to a document: which tokens are the rows and columns of each attention."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .core import record
from .core import sites as attention_sites
from .core.record import stretched
from .data.pairs import Pair
from .data.pictures import Captioned, Picture
from .decoding import Sample, decode
from .tasks.captioning import Captioning
from .tasks.classification import Classification
from .tasks.objectives import HIDDEN
from .tasks.task import device_of
from .tasks.translation import Translation
from .training.work import Work
from .views.document import Site

Grids = NDArray[np.floating]  # tokens × rows × columns
Shown = tuple[list[str], list[str], list[Site]]  # the tokens read, what came of them, and all attention


def show_translation(task: Translation, model: nn.Module, text: str, output: str) -> Shown:
    """All attention of a translation."""
    source, target = [*task.source.label_text(text), "<eos>"], [*task.target.label_text(output), "<eos>"]
    batch = task.batch(task.numbers([Pair(text, output)]), device_of(model))
    return text.split(), output.split(), sites_between(model, batch.inputs, source, target)


def show_caption(task: Captioning, model: nn.Module, picture: Picture, words: str) -> tuple[list[str], dict[str, Grids]]:
    """The tokens of a caption, <eos> last, and for each attention to the picture how much each token looked at each position while the
    model was made to generate them, the mean over heads: tokens × rows × columns of the image encoder's grid."""
    grid = model.image.grid(*task.image_size)  # type: ignore[union-attr, operator]
    [numbers] = task.numbers([Captioned(picture, (words,))])
    model.eval()
    with torch.no_grad(), record(model, quiet=True) as seen:
        model(*task.batch([numbers], device_of(model)).inputs)
    tokens = [*task.text.label_text(words), "<eos>"]
    found = {name: looks.weights() for name, looks in seen.items() if looks.cross}
    means = {name: (each.mean(0) if each.dim() == 5 else each)[0].mean(0) for name, each in found.items()}
    return tokens, {name: each.double().cpu().numpy().reshape(len(tokens), *grid) for name, each in means.items()}


def show_denoising(task: Any, model: nn.Module, text: str) -> Shown:
    """What is generated for each <mask> of a text, or after its end without one, and all attention meanwhile."""
    words, device = task.text, device_of(model)
    ids, _ = task.encode_hidden(text if HIDDEN in text else text + HIDDEN)
    source = torch.tensor([ids], device=device)
    lengths, search = torch.tensor([len(ids)], device=device), Sample(words.bos, words.eos, (words.pad, words.bos), 0.0)
    output = decode(model.eval(), source, lengths, search, [task.how.block])[0][0].tokens  # type: ignore[arg-type]
    names, target = task.names(ids), [*task.names(output), "<eos>"]
    read = torch.tensor([[words.bos, *output]], device=device)
    return names, target[:-1], sites_between(model, (source, lengths, read), names, target)


def sites_between(model: nn.Module, inputs: tuple[Any, ...], source: list[str], target: list[str]) -> list[Site]:
    """All attention of an encoder–decoder, that to the source first; a block that is used several times is one site per pass."""
    model.eval()
    with record(model, quiet=True) as read:
        model.start(*inputs[:2])  # type: ignore[operator]
    with record(model, quiet=True) as seen:
        model(*inputs)
    sites = []
    for name, looks in sorted(seen.items(), key=lambda item: not item[1].cross):
        own = source if read[name].calls else ["<bos>", *target[:-1]]  # the decoder has not looked at anything when it starts
        rows, columns = (target, source) if looks.cross else (own, own)
        found = looks.weights()
        passes = found if found.dim() == 5 else found[None]
        names = [name] if len(passes) == 1 else [f"{name}, pass {n}" for n in range(1, len(passes) + 1)]
        whole = [stretched(weights[0], len(rows), len(columns)) for weights in passes]
        sites += [Site(each, rows, columns, weights) for each, weights in zip(names, whole, strict=True)]
    return sites


def show_reading(task: Any, model: nn.Module, text: str) -> Shown:
    """The attention inside a model that reads one text, and what its label was pooled from, where it has one."""
    with record(model, quiet=True) as seen:
        tokens, outcome = task.look(model, text)
    sites = []
    if isinstance(task, Classification):
        sites.append(Site("pool", [outcome], tokens, [[task.classify(model, [text])[0].weights]]))
    for name, looks in seen.items():
        found = looks.calls[-1].weights()[0]
        names = ["<global>"] * looks.calls[-1].mechanism.mask.extra + tokens
        if name != "pool" and found.shape[1] == found.shape[2] == len(names):
            sites.append(Site(name.removeprefix("body."), names, names, found))
    return text.split(), [outcome], sites


@torch.no_grad()
def blind_sites(model: nn.Module, work: Work) -> list[str]:
    """Attention whose weights are all 0 on the first examples, which only a normalizer without a sum of one can give."""
    if all(site.mechanism.normalize.sums_to_one for site in attention_sites(model).values()):
        return []
    batch = work.batch(work.epoch(0)[0][:8])
    with record(model, quiet=True) as seen:
        model(*batch.inputs)
    return [name for name, looks in seen.items() if looks.calls and not any(call.weights().any() for call in looks.calls)]
