"""From a record of a model at work to a document: which tokens are the rows and columns of each attention."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core import record
from ..core import sites as attention_sites
from ..core.record import Look, pass_weights, pooled_index, stretch_weights
from ..data.image_examples import Asked, Captioned, Picture, Pictured
from ..data.pairs import Pair
from ..decoding import Sample, decode
from ..models.attention_maps import attention_maps, grad_cam
from ..models.protocols import ImageEncoder
from ..tasks.captioning import Captioning
from ..tasks.classification import Classification
from ..tasks.image_classification import ImageClassification
from ..tasks.objectives import HIDDEN
from ..tasks.open_questions import OpenQuestions
from ..tasks.questions import Questions
from ..tasks.task import device_of
from ..tasks.translation import Translation
from ..training.work import Work
from ..views.document import MOST_PIXELS, Site
from ..views.long_texts import Found, make_sites
from ..views.selection import is_flat

# the tokens read, what came of them, and all attention
Shown = tuple[list[str], list[str], list[Site]]
MEAN_ROW, TOKEN_ROW, GRAD_CAM = "mean of all positions", "class token", "Grad-CAM"


def show_translation(
    task: Translation, model: nn.Module, text: str, output: str, only: str | None = None
) -> Shown:
    """All attention of a translation, or one of them."""
    source, target = (
        [*task.source.label_text(text), "<eos>"],
        [*task.target.label_text(output), "<eos>"],
    )
    batch = task.batch(task.numbers([Pair(text, output)]), device_of(model))
    return text.split(), output.split(), sites_between(model, batch.inputs, source, target, only)


def show_denoising(task: Any, model: nn.Module, text: str) -> Shown:
    """What is generated for each <mask> of a text, or after its end without one, and all attention meanwhile."""
    words, device = task.text, device_of(model)
    ids, _ = task.encode_hidden(text if HIDDEN in text else text + HIDDEN)
    source = torch.tensor([ids], device=device)
    lengths, search = (
        torch.tensor([len(ids)], device=device),
        Sample(words.bos, words.eos, (words.pad, words.bos), 0.0),
    )
    output = decode(model.eval(), source, lengths, search, [task.how.block])[0][0].tokens  # type: ignore[arg-type]
    names, target = task.names(ids), [*task.names(output), "<eos>"]
    read = torch.tensor([[words.bos, *output]], device=device)
    return names, target[:-1], sites_between(model, (source, lengths, read), names, target)


def sites_between(
    model: nn.Module,
    inputs: tuple[Any, ...],
    source: list[str],
    target: list[str],
    only: str | None = None,
) -> list[Site]:
    """All attention of an encoder–decoder (or that of one name), that to the source first; a block that is used several times is one site
    per pass."""
    model.eval()
    with record(model, quiet=True) as read:
        model.start(*inputs[:2])  # type: ignore[operator]
    with record(model, quiet=True) as seen:
        model(*inputs)
    sites = []
    for name, looks in sorted(seen.items(), key=lambda item: not item[1].cross):
        if only is not None and only.partition(", pass ")[0] != name:
            continue
        # the decoder has not looked at anything when it starts
        own = source if read[name].calls else ["<bos>", *target[:-1]]
        rows, columns = (target, source) if looks.cross else (own, own)
        passes = looks.passes
        names = (
            [name] if len(passes) == 1 else [f"{name}, pass {n}" for n in range(1, len(passes) + 1)]
        )
        for each, calls in zip(names, passes, strict=True):
            if only in (None, each):
                weights = partial(weights_between, calls, len(rows), len(columns))
                sites.append(Found(each, rows, columns, calls[0].sizes[1], weights))
    return make_sites(sites, only is not None)


def weights_between(
    calls: list[Look], rows: int, columns: int, asked: Sequence[int] | None
) -> Tensor:
    """The weights of some of these rows, or of all, in one pass, also where the model shortened its texts."""
    queries = sum(call.sizes[2] for call in calls)
    if asked is None or queries == rows:
        chosen = None if asked is None or len(asked) == rows else asked
        return stretch_weights(
            pass_weights(calls, chosen, None)[0], rows if chosen is None else len(chosen), columns
        )
    from_rows = pooled_index(rows, queries)[list(asked)].tolist()
    return stretch_weights(pass_weights(calls, from_rows, None)[0], len(asked), columns)


def show_reading(task: Any, model: nn.Module, text: str, only: str | None = None) -> Shown:
    """The attention inside a model that reads one text, or one of these, and what its label was pooled from, where it has one."""
    sites = []
    with record(model, quiet=True) as seen:
        if isinstance(task, Classification):
            [one] = task.classify(model, [text])
            tokens, outcome, pool = one.pieces, one.label, torch.as_tensor(one.weights)[None, None]
            sites.append(Found("pool", [outcome], tokens, 1, lambda _: pool))
        else:
            tokens, outcome = task.look(model, text)
    for name, looks in seen.items():
        call = looks.calls[-1]
        names = ["<global>"] * call.mechanism.mask.extra + tokens
        if name != "pool" and call.sizes[2] == call.sizes[3] == len(names):
            weights = partial(weights_between, [call], len(names), len(names))
            sites.append(Found(name.removeprefix("body."), names, names, call.sizes[1], weights))
    return (
        text.split(),
        [outcome],
        make_sites([one for one in sites if only in (None, one.name)], only is not None),
    )


def visible_pixels(image: Picture, size: tuple[int, int]) -> Tensor:
    """The part of a picture that a model of this size reads, bytes H W 3: as sharp as the picture is, up to what a document takes."""
    _, *whole = image.pixels().shape
    scale = max(1.0, min(whole[0] / size[0], whole[1] / size[1], MOST_PIXELS / max(size)))
    return image.pixels((round(size[0] * scale), round(size[1] * scale))).permute(1, 2, 0)


def show_label(task: ImageClassification, model: nn.Module, image: Picture) -> Shown:
    """What an image classifier looks at: all its layers together, each by itself, and what the label was pooled from; where no layer attends
    from positions to positions, first Grad-CAM of its label."""
    [seen] = task.classify(model, [image])
    batch = task.batch(task.numbers([Pictured(image)]), device_of(model))
    sites = sites_inside(model.body, batch.inputs[0], model.weights(batch.inputs[0])[0], seen.label)  # type: ignore[arg-type, operator]
    offset = model.body.offset(*task.image_size, *seen.weights.shape)  # type: ignore[union-attr, operator]
    if not attention_sites(model.body):  # type: ignore[arg-type]
        found = grad_cam(model, batch.inputs[0], task.labels.index(seen.label))  # type: ignore[arg-type]
        if found.any():
            sites.insert(
                0,
                Site.over_picture(
                    GRAD_CAM, [seen.label], found.view(1, 1, -1), found.shape, offset
                ),
            )
    if not is_flat(seen.weights.ravel().tolist()):
        sites.append(
            Site.over_picture(
                "pool", [seen.label], [[seen.weights.ravel()]], seen.weights.shape, offset
            )
        )
    return [image.name], [seen.label], sites


def show_caption(task: Captioning, model: nn.Module, image: Picture, caption: str) -> Shown:
    """All attention of a caption to its picture, while the model was made to generate it."""
    batch, words = (
        task.batch(task.numbers([Captioned(image, (caption,))]), device_of(model)),
        task.text.label_text(caption),
    )
    sites = sites_over(
        model,
        model.image,  # type: ignore[arg-type]
        batch.inputs,
        task.at,
        [*words, "<eos>"],
        ["<bos>", *words],
    )
    return [image.name], caption.split(), sites


def show_question(
    task: Questions | OpenQuestions, model: nn.Module, image: Picture, question: str
) -> Shown:
    """All attention of a question to its picture, while the model answers it."""
    [seen] = task.answer(model, [(image, question)])
    # the words of the answer look too, after those of the question
    if isinstance(task, OpenQuestions):
        batch = task.batch(task.numbers([Asked(image, question, seen.answer)]), device_of(model))
        asked, said = task.text.label_text(question), task.text.label_text(seen.answer)
        rows, own = [*asked, *said, "<eos>"], [*asked, "<bos>", *said]
        return (
            question.split(),
            seen.answer.split(),
            sites_over(model, model.image, batch.inputs, task.at, rows, own),  # type: ignore[arg-type]
        )
    batch = task.batch(task.numbers([Asked(image, question)]), device_of(model))
    return (
        question.split(),
        [seen.answer],
        sites_over(model, model.body.image, batch.inputs, task.at, seen.pieces, seen.pieces),  # type: ignore[arg-type, union-attr]
    )


def sites_inside(
    body: ImageEncoder, image: Tensor, pooled: Tensor | None = None, label: str = MEAN_ROW
) -> list[Site]:
    """The attention inside an image encoder to the positions of one image (1 3 H W), and to channels; first that of all layers together, as
    much as each position counts: `pooled`, or alike. With `pooled`, last how long the vectors of each resolution are."""
    found, sites, grid = attention_maps(body, image), list[Site](), body.grid(*image.shape[2:])

    def add(name: str, rows: list[str], weights: Tensor) -> None:
        """A site of weights H rows R C."""
        at = weights.shape[2:]
        sites.append(
            Site.over_picture(
                name, rows, weights.flatten(2), at, body.offset(*image.shape[2:], *at)
            )
        )

    if found.rollout is not None:
        rows = found.rollout.mean(0) if pooled is None else pooled.to(found.rollout) @ found.rollout
        add("rollout", [label], rows[-math.prod(grid) :].view(1, 1, *grid))
    for name, weights in found.layers.items():
        if name in found.token:
            add(f"{name}, {TOKEN_ROW}", [TOKEN_ROW], found.token[name].unsqueeze(1))
        add(name, [MEAN_ROW], weights.unsqueeze(1))
    for name, weights in found.positions.items():
        add(f"{name}, positions", ["factor"], weights[None, None])
    for name, weights in found.channels.items():
        names = [f"channel {n}" for n in range(len(weights))]
        sites.append(Site(f"{name}, channels", ["factor"], names, weights[None, None]))
    for weights in found.features if pooled is not None else ():
        add("features, {} × {}".format(*weights.shape), ["length"], weights[None, None])
    return sites


def sites_over(
    model: nn.Module,
    body: ImageEncoder,
    inputs: tuple[Any, ...],
    at: int,
    rows: list[str],
    own: list[str],
) -> list[Site]:
    """All attention of a text to a picture, then that within the text and within the image encoder. `at`: which of the inputs is the image;
    `rows`: the text's tokens where it looks at the picture, `own`: those it looks at itself."""
    image, inside = inputs[at], set(attention_sites(body).values())
    height, width = image.shape[2:]
    grid = body.grid(height, width)
    with record(model, quiet=True) as seen:
        model.eval()(*inputs)
    found = {
        name: site
        for name, site in attention_sites(model).items()
        if site not in inside and seen[name].calls
    }
    over, within = list[Site](), list[Site]()
    for name, site in found.items():
        weights = pass_weights(seen[name].passes[-1], None, None)[0]
        if site.cross:
            over.append(
                Site.over_picture(
                    name.removeprefix("body."),
                    rows,
                    weights,
                    grid,
                    body.offset(height, width, *grid),
                )
            )
        elif weights.shape[1:] == (len(own), len(own)):
            within.append(Site(name.removeprefix("body."), own, own, weights))
    deep = [replace(site, name=f"image.{site.name}") for site in sites_inside(body, image)]
    return [*over, *within, *deep]


@torch.no_grad()
def blind_sites(model: nn.Module, work: Work) -> list[str]:
    """Attention whose weights are all 0 on the first examples, which only a normalizer without a sum of one can give."""
    if all(site.mechanism.normalize.sums_to_one for site in attention_sites(model).values()):
        return []
    batch = work.batch(work.epoch(0)[0][:8])
    with record(model, quiet=True) as seen:
        model(*batch.inputs)
    return [
        name
        for name, looks in seen.items()
        if looks.calls and not any(call.weights().any() for call in looks.calls)
    ]
