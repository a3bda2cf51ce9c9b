"""From a record of a model at work to a document: which tokens are the rows and columns of each attention."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core import record
from ..core import sites as attention_sites
from ..core.record import Look, pass_weights, pooled_index, stretch_weights
from ..data.image_examples import Picture
from ..models.attention_maps import attention_maps
from ..models.protocols import ImageEncoder
from ..training.work import Work
from ..views.document import MAX_PICTURE_SIDE, Document, Site
from ..views.long_texts import Found, make_sites

MEAN_ROW, TOKEN_ROW = "mean of all positions", "class token"
# what was read: its tokens, what came of it, and attention that is not recorded, such as that of a pool
Read = tuple[list[str], str, list[Found]]


def attends(model: nn.Module) -> bool:
    """Whether a model looks at positions of what it reads while it generates, not at one vector of it all."""
    return any(site.cross for site in attention_sites(model).values())


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


def attention_of_reading(
    model: nn.Module, text: str, read: Callable[[str], Read], called: str, only: str | None
) -> Document:
    """The attention inside a model while it read one text, or that of one name; `called` is what it says of the text."""
    with record(model, quiet=True) as seen:
        tokens, outcome, sites = read(text)
    for name, looks in seen.items():
        call = looks.calls[-1]
        names = ["<global>"] * call.mechanism.mask.extra + tokens
        if name != "pool" and call.sizes[2] == call.sizes[3] == len(names):
            weights = partial(weights_between, [call], len(names), len(names))
            sites.append(Found(name.removeprefix("body."), names, names, call.sizes[1], weights))
    made = make_sites([one for one in sites if only in (None, one.name)], only is not None)
    return Document(text, text.split(), [outcome], made, called=("text", called))


def visible_pixels(image: Picture, size: tuple[int, int]) -> Tensor:
    """The part of a picture that a model of this size reads, bytes H W 3: as sharp as the picture is, up to what a document takes."""
    _, *whole = image.pixels().shape
    scale = max(1.0, min(whole[0] / size[0], whole[1] / size[1], MAX_PICTURE_SIDE / max(size)))
    return image.pixels((round(size[0] * scale), round(size[1] * scale))).permute(1, 2, 0)


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
