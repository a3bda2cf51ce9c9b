"""Norms worked out on a small batch: means over the width of each input against means over the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import SaccadeError, did_you_mean
from ...layers import norms
from ...views.worked_steps import How, Matrix, Step, Worked, in_order, number, numbered, quote, row
from .attention_steps import array
from .worked_attention import inputs

# the slide's LayerNorm: what it says, and what is right
SLIPS = (
    "Where the slide slips: it says unit mean, and the mean becomes 0 (the standard deviation 1); its μ is a sum without 1/d; and it divides "
    "by √(σ + ε), where σ is already a root: right is √(σ² + ε)."
)
STANDARD = "mean 0 and deviation 1 (0 where all its numbers are equal)"
PROPERTIES = {
    "layer": f"Every row has {STANDARD}, columns need not. A row alone gives the same: no batch is needed. {SLIPS}",
    "batch": f"Every column has {STANDARD}, rows need not. In use, running averages of the means of training are taken instead.",
    "rms": "The mean of the squares of every row is 1; its mean need not be 0. A row alone gives the same: no batch is needed.",
}
FORMULAS = {
    "layer": "(x − μ) / √(σ² + ε) · γ + β, with μ and σ² the mean and the variance of the numbers of one input",
    "batch": "(x − μ) / √(σ² + ε) · γ + β, with μ and σ² the mean and the variance of one feature over the batch",
    "rms": "x / √(mean(x²) + ε) · γ, with the mean over the numbers of one input; nothing is subtracted",
}
LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "layer": lambda dim: norms.table["layer"](dim),
    "batch": lambda dim: nn.BatchNorm1d(dim),
    "rms": lambda dim: norms.table["rms"](dim),
}


@torch.no_grad()
def explain_norm(name: str, words: Sequence[str] | None = None) -> Worked:
    """A norm of the lectures' inputs or of the given words as a batch, by the live layer at the start of training (γ = 1, β = 0)."""
    if name not in LAYERS:
        raise SaccadeError(
            f"no norm to explain named '{name}'{did_you_mean(name, LAYERS)}", code="unknown-name"
        )
    tokens, x = inputs(words)
    if name == "batch" and len(tokens) < 2:
        raise SaccadeError(
            f"expected at least 2 inputs for a norm over the batch, got {len(tokens)}; give more words",
            code="too-few-words",
        )
    layer = LAYERS[name](x.shape[1]).double().train()
    out, eps, letters = layer(x), float(layer.eps), numbered("x", x.shape[1])  # type: ignore[arg-type]
    over = 0 if name == "batch" else 1
    mean, variance, square = x.mean(over), x.var(over, unbiased=False), x.square().mean(over)
    about = f"{len(tokens)} inputs, the rows, of {x.shape[1]} features, the columns."
    batch = Matrix("x", array(x), tokens, letters, {"text": "{column} of {row} = {value}"})
    text = (
        f"{name} norm is {FORMULAS[name]}; ε = {eps:g} keeps the root above 0. At the start of a training γ = 1 and β = 0: they change "
        "nothing yet."
    )
    outputs = Matrix("out", array(out), tokens, letters, normalized(name, eps))
    steps = [
        Step("A batch of inputs", about, [batch]),
        *spread_steps(name, tokens, x, mean, variance, square),
        Step("Normalize", text, [outputs]),
        check_step(name, tokens, out),
        compare_step(name, tokens, x),
    ]
    facts = {"tokens": tokens, "norm": name, "eps": eps, "x": array(x), "outputs": array(out)}
    means = {"mean": mean, "variance": variance} if name != "rms" else {"mean_square": square}
    facts |= {"slips": SLIPS, **{what: array(one) for what, one in means.items()}}
    return Worked(f"{name} norm of {' '.join(tokens)}", in_order(steps), **facts)


def spread_steps(
    name: str, tokens: list[str], x: Tensor, mean: Tensor, variance: Tensor, square: Tensor
) -> list[Step]:
    """The means that a norm needs, of rows or of columns."""
    count = x.shape[0] if name == "batch" else x.shape[1]
    which: list[object] = ["x", None, "j"] if name == "batch" else ["x", "i", None]
    letters = numbered("x", x.shape[1])

    def shown(title: str, values: Tensor, text: str, *more: list[object]) -> list[Matrix]:
        how: How = {"text": text, "uses": [which, *more]}
        if name == "batch":
            return [Matrix(title, array(values[None]), [title], letters, how)]
        return [Matrix(title, array(values.unsqueeze(1)), tokens, [title], how)]

    first = x[:, 0] if name == "batch" else x[0]
    of = "the first feature" if name == "batch" else quote(tokens[0])
    if name == "rms":
        sums = " + ".join(f"{number(float(one))}²" for one in first)
        text = f"For {of}: ({sums}) / {count} = {number(float(square[0]))}."
        rule = f"the squares of {{0}}, their sum divided by {count} = {{value}}"
        means = shown("mean square", square, rule)
        return [Step("Mean of the squares of each input", text, means)]
    sums = " + ".join(number(float(one)) for one in first)
    far = " + ".join(f"({number(float(one))} − {number(float(mean[0]))})²" for one in first)
    each = "feature, over the batch" if name == "batch" else "input, over its numbers"
    at: list[object] = ["μ", 0, "j"] if name == "batch" else ["μ", "i", 0]
    means = shown("μ", mean, f"({{+0}}) / {count} = {{value}}")
    rule = f"the squares of {{0}} − {{1}}, their sum divided by {count} = {{value}}"
    spreads = shown("σ²", variance, rule, at)
    found = f"For {of}: μ = ({sums}) / {count} = {number(float(mean[0]))}."
    spread = f"For {of}: σ² = ({far}) / {count} = {number(float(variance[0]))}."
    return [
        Step(f"Mean of each {each}", found, means),
        Step(f"Variance of each {each}", spread, spreads),
    ]


def normalized(name: str, eps: float) -> How:
    if name == "rms":
        return {
            "text": f"{{0}} / √({{1}} + {eps:g}) = {{value}}",
            "uses": [["x", "i", "j"], ["mean square", "i", 0]],
        }
    at = [0, "j"] if name == "batch" else ["i", 0]
    return {
        "text": f"({{0}} − {{1}}) / √({{2}} + {eps:g}) = {{value}}",
        "uses": [["x", "i", "j"], ["μ", *at], ["σ²", *at]],
    }


def check_step(name: str, tokens: list[str], out: Tensor) -> Step:
    """What is true of the result, on the axis of the norm and on the other."""
    of_columns, of_rows = (
        [array(out.mean(over)), array(out.std(over, unbiased=False))] for over in (0, 1)
    )
    rows, columns = np.stack(of_rows, 1), np.stack(of_columns)
    letters, of = numbered("x", out.shape[1]), ["mean", "deviation"]
    by_row: list[How] = [
        {"text": f"the {one} of {{0}} = {{value}}", "uses": [["out", "i", None]]} for one in of
    ]
    by_column: How = {"text": "the {row} of {0} = {value}", "uses": [["out", None, "j"]]}
    shown = [
        Matrix("rows", rows, tokens, of, by_row),
        Matrix("columns", columns, of, letters, by_column),
    ]
    return Step("What is true of it", PROPERTIES[name], shown)


def compare_step(name: str, tokens: list[str], x: Tensor) -> Step:
    """The first input under all three norms, and alone: what depends on the batch."""
    made, lines = {}, []
    for other, make in LAYERS.items():
        if other == "batch" and len(tokens) < 2:
            continue
        made[other] = make(x.shape[1]).double().train()(x)[0]
        lines.append(f"{other}: {row(made[other].tolist())}")
    matrix = np.stack([array(one) for one in made.values()])
    text = f"{quote(tokens[0])} = {row(x[0].tolist())} becomes, by {'; '.join(lines)}. Only that of the batch norm depends on other inputs."
    how: How = {"text": "{column} of the first input by {row} norm = {value}"}
    shown = Matrix("by each norm", matrix, list(made), numbered("x", x.shape[1]), how)
    return Step("Beside the others", text, [shown])
