"""A model as a block diagram: its parts with their matrices, output shapes and parameter counts."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ... import api
from ...config import recipes
from ...data.corpora import is_generated
from ...data.vocabulary import Vocabulary
from ...errors import SaccadeError
from ...layers.residuals import NoResidual, Residual
from ...models.builder import NoInit
from ...settings import resolve
from ...views.plots.diagrams import Box, boxes
from .drawing import Drawing, Table

MAX_DEPTH = 2  # parts inside parts that are drawn
# the left column, where a decoder is the right one
READS = ("source", "image", "grid", "embedding", "encoder", "squeeze")
# of a batch, source tokens, target tokens: sizes that nothing else has
LETTERS = {11: "B", 7: "N", 5: "T"}


@dataclass
class Part:
    """A box of the diagram: `count` equal parts one after another are one box."""

    name: str
    kind: str
    parameters: int
    shapes: str = ""
    gives: str = ""
    count: int = 1
    inside: list[Part] = field(default_factory=list)
    residual: str = ""  # of a norm around a part: which one a residual connection goes around


def parts_of(
    module: nn.Module, shapes: dict[str, str], path: str = "", depth: int = 0
) -> list[Part]:
    """The children that have parameters; those with numbers for names that are alike become one."""
    found: list[Part] = []
    # a norm around a part comes before that part
    names = [name for name, _ in module.named_children()]
    place = lambda one: (names.index(one.removeprefix("around_")), not one.startswith("around_"))
    for name in sorted(names, key=place):
        child = getattr(module, name)
        size = sum(one.numel() for one in child.parameters())
        whole = f"{path}{name}"
        # a mixer is not called itself: the sum behind it is
        gives = shapes.get(whole) or shapes.get(f"{path}around_{name}", "")
        if not size and name != "head":  # one without parameters has the input's table
            continue
        alike = found and (found[-1].kind, found[-1].parameters) == (type(child).__name__, size)
        if name.isdigit() and alike:
            found[-1].count += 1
            found[-1].gives = gives
            continue
        shallow = depth == 0 or (depth < MAX_DEPTH and name.isdigit())
        expands = shallow and len(list(child.children())) > 1 and not is_input(child)
        inside = parts_of(child, shapes, f"{whole}.", depth + 1) if expands else []
        matrices = [" × ".join(map(str, one.shape)) for one in child.parameters() if one.dim() > 1]
        shown = ", ".join(
            f"{matrices.count(one)} of {one}" if matrices.count(one) > 1 else one
            for one in dict.fromkeys(matrices)
        )
        one = Part(name, type(child).__name__, size, "" if inside else shown, gives, 1, inside)
        if isinstance(child, Residual) and not isinstance(child, NoResidual):
            one.residual = name.removeprefix("around_")
        found.append(one)
    return found


def is_input(module: nn.Module) -> bool:
    """Whether a part reads token ids."""
    return hasattr(module, "tokens") or hasattr(module, "reads_bytes")


def output_shapes(model: nn.Module) -> dict[str, str]:
    """The output shape of each part for a batch of texts, or of pictures of 32 × 32, with letters for the sizes of the batch.
    Empty for a model that needs other inputs."""
    text, target = (
        torch.ones(11, size, dtype=torch.long, device=next(model.parameters()).device)
        for size in (7, 5)
    )
    given: dict[str, Any] = {"source": text, "tokens": text, "target": target}
    given["lengths"] = text.sum(1)
    given["images"] = torch.zeros(11, 3, 32, 32, device=text.device)
    if getattr(model, "reads", "") == "images":
        given["source"] = given["images"]
    wanted = inspect.signature(model.forward).parameters
    found: dict[str, str] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, out: Any) -> None:
            first = out[0] if isinstance(out, tuple) else out
            if isinstance(first, Tensor):
                found[name] = " × ".join(LETTERS.get(size, str(size)) for size in first.shape)

        return hook

    handles = [
        module.register_forward_hook(keep(name)) for name, module in model.named_modules() if name
    ]
    try:
        with torch.no_grad():
            model.eval()(**{name: given[name] for name in wanted if name in given})
    except Exception:  # a family that reads bytes or trees: drawn without output shapes
        found.clear()
    finally:
        for handle in handles:
            handle.remove()
    return found


def load_model(name: str) -> tuple[nn.Module, str]:
    """The model of a run folder, or of a recipe: with the vocabulary of generated data, else with one of the recipe's largest size."""
    if Path(name).is_dir():
        return api.load(name, "cpu").model, "a trained model"
    recipe = recipes.read_recipe(name)
    if is_generated(recipe.data.train) and recipe.data.train:
        return api.build(recipe).model.cpu(), f"the recipe {name}"
    size = resolve(recipe.vocabulary.size, 0)
    tokens = Vocabulary.train([" ".join(f"w{n}" for n in range(size))], "words").to_json()
    with torch.device("meta"), NoInit():
        known = {
            "text": tokens,
            "joint": tokens,
            "source": tokens,
            "target": tokens,
            "labels": ["a", "b"],
            "several": False,
        }
        model = recipe.kind.restore(recipe, known).build(recipes.Builder(recipe.model))
    return model, f"the recipe {name}; {size:,} tokens assumed"


def draw(names: list[str]) -> Drawing:
    """The block diagram of a recipe or a run folder."""
    if len(names) != 1:
        raise SaccadeError(
            "draw model takes one recipe or run folder; write `saccade draw model phrasebook-transformer`",
            code="one-model",
        )
    model, about = load_model(names[0])
    total = sum(one.numel() for one in model.parameters())
    # a classifier around an encoder: its parts beside the encoder's
    if isinstance(body := getattr(model, "body", None), nn.Module):
        shapes = {name.removeprefix("body."): shape for name, shape in output_shapes(model).items()}
        around = [part for part in parts_of(model, shapes) if part.name != "body"]
        parts = [*parts_of(body, shapes), *around]
    else:
        parts = parts_of(model, output_shapes(model))
    names_of_parts = {part.name for part in parts}
    reads = READS if "decoder" in names_of_parts and names_of_parts & {"encoder", "image"} else ()
    columns = [[part for part in parts if (part.name in reads) == left] for left in (True, False)]
    columns = [column for column in columns if column]
    title = f"{type(model).__name__}: {total:,} parameters"
    note = f"{about} · read upward · at the right the output's shape and the parameters; B batch, N source or text, T target · + residual connection"
    rows: Table = [["part", "kind", "matrices", "gives", "count", "parameters"]]
    for part in (part for column in columns for part in column):
        list_rows(part, "", rows)
    figure = boxes(title, note, [[box_of(part) for part in column] for column in columns])
    text = f"Drawn from {about}. Parts without parameters are left out."
    return Drawing(title, text, rows, figure)


def box_of(part: Part) -> Box:
    """A part as a box with its name, its matrices, what it gives and its parameters."""
    total = f"{part.parameters * part.count:,}"
    name = f"{part.name}: {part.kind}"
    if part.name.isdigit():
        name = f"{part.count} × {part.kind}"
    elif part.inside:
        name = part.name
    elif part.name.startswith("around_"):
        name = f"norm around {part.name.removeprefix('around_')}: {part.kind}"
    about = part.shapes or ("" if part.parameters else "(the input's vectors)")
    right = f"{part.gives}   {total}" if part.gives else total
    inside = tuple(map(box_of, part.inside))
    return Box(f"{name}   {about}".rstrip(), right, inside, 2 * bool(part.residual))


def list_rows(part: Part, indent: str, rows: Table) -> None:
    counts = [str(part.count), f"{part.parameters * part.count:,}"]
    rows.append([indent + part.name, part.kind, part.shapes, part.gives, *counts])
    for inner in part.inside:
        list_rows(inner, f"{indent}· ", rows)
