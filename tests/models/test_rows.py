"""Every row of the tables: each modification of Narang et al. 2021, and each family that translates, learns, decodes and is whole."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from model_helpers import stepped
from torch import Tensor, nn

from saccade import models
from saccade.config import recipes
from saccade.core.auxiliary_losses import collect
from saccade.errors import SaccadeError
from saccade.models import Seq2Seq
from saccade.models.builder import Builder, NoInit, complete
from saccade.models.modifications import BASELINE, PAPER_SIZE
from saccade.models.modifications import table as modifications

ROOT = Path(__file__).resolve().parents[2]
V, FIRST = 13, 3  # tokens 3 to 12 occur
SIZES = {"dim": 16, "hidden": 24, "depth": 2, "heads": 2}
ROWS = {
    f"modification {entry.name}": {"family": "transformer", "modification": entry.name}
    for entry in modifications
}
ROWS |= {
    f"family {entry.name}": {"family": entry.name}
    for entry in models.table
    if entry.make.build(Seq2Seq) is not None
}
each = pytest.mark.parametrize("row", ROWS, ids=str)


def settings(row: str) -> dict[str, Any]:
    fields = models.table[ROWS[row]["family"]].config.__dataclass_fields__
    sizes = {name: size for name, size in SIZES.items() if name in fields}
    return {**ROWS[row], **sizes, **{name: 0.0 for name in fields if name.endswith("dropout")}}


def batch(
    generator: torch.Generator, size: int = 24, length: int = 6
) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, lengths, and targets that count on from the source's first token: each token is as frequent as any other."""
    source = torch.randint(FIRST, V, (size, length), generator=generator)
    counted = (source[:, :1] - FIRST + torch.arange(length + 1)) % (V - FIRST) + FIRST
    return source, torch.full((size,), length), counted


ENOUGH = 0.8 * math.log(V - FIRST)  # guessing costs log(V − FIRST)


def trained(row: str, updates: int = 40) -> tuple[nn.Module, list[float], set[str]]:
    """A small model after as many updates as it needs, their losses, and the parameters that no gradient has reached."""
    torch.manual_seed(1)
    model = Builder(settings(row)).make(Seq2Seq, V, V).train()
    optimizer, generator = (
        torch.optim.Adam(model.parameters(), 0.01, fused=True),
        torch.Generator().manual_seed(2),
    )
    parameters = dict(model.named_parameters())
    losses, unreached = [], {name for name in parameters if not name.endswith(".k.bias")}
    for _ in range(updates):
        source, lengths, target = batch(generator)
        with collect() as left:
            logits = model(source, lengths, target[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
            (loss + left.total(torch.ones(len(source))) / len(source)).backward()
        unreached -= {
            name for name in unreached if (grad := parameters[name].grad) is not None and grad.any()
        }
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if not unreached and has_learned(losses):
            break
    return model.eval(), losses, unreached


def has_learned(losses: list[float]) -> bool:
    return sum(losses[-5:]) / 5 < ENOUGH and len(losses) >= 5


@each
def test_a_row_learns_reaches_every_parameter_and_decodes_as_it_reads(row: str) -> None:
    model, losses, unreached = trained(row)
    assert has_learned(losses), (
        f"{losses[0]:.2f} → {losses[-1]:.2f}, and less than {ENOUGH:.2f} is expected"
    )
    assert not unreached
    source, lengths, target = batch(torch.Generator().manual_seed(3), 3)
    double = model.double()
    with torch.no_grad():
        whole = double(source, lengths, target[:, :-1])
        torch.testing.assert_close(stepped(double, target[:, :-1], source, lengths), whole)


def load_operations() -> Any:
    spec = importlib.util.spec_from_file_location(
        "operations", ROOT / "benchmarks" / "operations.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORDED = json.loads((ROOT / "benchmarks/results/operations.json").read_text(encoding="utf-8"))[
    "rows"
]


@pytest.mark.parametrize("entry", modifications, ids=lambda entry: entry.name)
def test_parameters_and_operations_are_the_papers(entry: Any) -> None:
    """Parameters to 1 M: the paper rounds most of its numbers (272.5 is 273) and cuts some (65.9 is 65, 20.8 is 20). Operations to 1.1 %,
    with what the paper is known to count otherwise. What differs by more than 2 % has a reason, and nothing else."""
    found, row = load_operations().measure(entry.name), entry.make
    assert found["parameters"] == pytest.approx(row.paper["parameters"], abs=1.0)
    assert found["operations"] + row.difference == pytest.approx(row.paper["operations"], rel=0.011)
    assert bool(row.why) == any(abs(found[what] / row.paper[what] - 1) > 0.02 for what in found)
    assert RECORDED[entry.name] == found, (
        "docs/operations.md shows what is recorded: run benchmarks/operations.py"
    )


def test_what_the_paper_counts_otherwise_by_formulas() -> None:
    """In T: products with one-hot matrices of experts, a convolution, rare clusters."""
    read, written, dim, hidden = 128 * 512, 128 * 114, 768, 3072  # tokens
    three = 3  # layers with experts in each stack
    group = 1024  # tokens that are sent to experts together

    def sent(tokens: int, capacity: float, here: float, width: int) -> float:
        """To all places of the experts and back; and the places that the experts fill more, or less, than here, per token."""
        places = 32 * int(group * capacity / 32) / group
        return three * tokens * (2 * places * group * dim + (places - here) * 2 * dim * width)

    expected = {
        "mixture-of-experts": sent(read, 2.0, 2.0, hidden // 2)
        + sent(written, 1.25, 2.0, hidden // 2),
        "switch": sent(read, 1.2, 1.2, hidden) + sent(written, 1.25, 1.2, hidden),
        "evolved": -6 * read * 3 * dim * (dim // 2),
        "adaptive-softmax-unprojected": -(written - 128 * math.ceil(114 / 4))
        * (32_128 - 2_500)
        * dim,
        "funnel": -0.75e12 * RECORDED["funnel"]["operations"],
    }
    found = {entry.name: entry.make.difference for entry in modifications if entry.make.difference}
    assert found == pytest.approx(
        {name: value / 1e12 for name, value in expected.items()}, abs=0.006
    )


def shapes(row: str) -> dict[str, tuple[int, ...]]:
    """The parameters of a row at the paper's size, by their names."""
    with torch.device("meta"), NoInit():
        model = Builder({"family": "transformer", **PAPER_SIZE, "modification": row}).make(
            Seq2Seq, 32_128, 32_128
        )
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def test_the_parts_of_rows_have_the_sizes_of_the_authors_configuration() -> None:
    """By gin/models/*.gin; blocks are counted from 0."""
    vanilla = shapes("vanilla")
    assert {name: shape for name, shape in vanilla.items() if "position" in name} == {
        "encoder.positions.0.table": (32, 12),  # relative_attention_type = "bias_shared"
        "decoder.positions.0.table": (32, 12),
    }
    synthesized = shapes("synthesizer-dense-plus")
    assert synthesized["decoder.positions.0.table"] == (32, 8)
    assert synthesized["encoder.11.mixer.mechanism.position.tables.0"] == (128, 512)
    assert synthesized["decoder.0.cross.q.weight"] == (768, 768)
    dynamic, light = shapes("dynamic-convolution"), shapes("light-convolution")
    assert dynamic["decoder.3.mixer.to_kernels.weight"] == (768 * 9, 768)
    assert (
        dynamic["encoder.0.feedforward.inner.weight"],
        light["encoder.0.feedforward.inner.weight"],
    ) == ((512, 768), (3072, 768))
    assert light["decoder.3.mixer.kernel"] == (768, 9)
    assert dynamic["source.position.vectors"] == light["source.position.vectors"] == (512, 768)
    for row, width in (("mixture-of-experts", 1536), ("switch", 3072)):
        experts = {
            name: shape for name, shape in shapes(row).items() if name.endswith("feedforward.inner")
        }
        assert experts == {
            f"{role}.{n}.feedforward.inner": (32, 768, width)
            for role in ("encoder", "decoder")
            for n in (3, 7, 11)
        }
    universal = shapes("universal")
    assert {
        name.split(".")[1] for name in universal if name.startswith(("encoder", "decoder"))
    } == {"0", "norm", "positions", "times"}
    assert universal["decoder.times"] == (24, 768)
    assert universal["encoder.0.around_feedforward.candidate.weight"] == (768, 1536)
    assert universal["head.weight"] == (32_128, 768)
    weighted = shapes("weighted")
    assert weighted["decoder.5.cross.out.inner"] == (1, 768, 3072)
    assert not any("positions" in name for name in weighted)
    keys = {
        name: shape
        for name, shape in shapes("product-key-memory").items()
        if "feedforward.keys" in name
    }
    assert keys == {"decoder.10.feedforward.keys": (4, 2, 512, 128)}
    adaptive = shapes("adaptive-softmax")
    assert [adaptive[f"source.tokens.tables.{n}.weight"] for n in range(3)] == [
        (2500, 768),
        (6000, 256),
        (23_628, 64),
    ]


def test_every_row_has_a_title_and_ten_numbers_and_differs_from_every_other() -> None:
    assert len(modifications) == 52
    assert len({entry.make.title for entry in modifications}) == 52
    made = [{**entry.make.over(PAPER_SIZE)} for entry in modifications]
    assert all(made.count(one) == 1 for one in made)
    assert modifications["vanilla"].over(PAPER_SIZE) == BASELINE


def test_a_modification_is_written_out_sizes_are_the_baselines_and_other_keys_win() -> None:
    def written(**given: Any) -> dict[str, Any]:
        values = {"family": "transformer", "dim": 16, "hidden": 24, "depth": 2, "heads": 4, **given}
        return complete(values, lambda builder: builder.make(Seq2Seq, V, V))

    gated = written(modification="geglu")
    assert "modification" not in gated
    assert gated["feedforward"]["name"] == "geglu"
    assert (gated["hidden"], gated["position"]["name"], gated["shared"]) == (16, "t5", True)
    deep = written(modification="24-layers")
    assert (deep["depth"], deep["hidden"], deep["heads"], deep["head_width"]) == (4, 12, 2, 4)
    assert written(modification="geglu", position="rotary")["position"] != gated["position"]
    assert complete(gated, lambda builder: builder.make(Seq2Seq, V, V)) == gated


def test_a_recipe_needs_no_more_than_the_word() -> None:
    def joint(**given: Any) -> bool:
        model = {"family": "transformer", "size": "tiny", **given}
        return recipes.recipe(
            {"data": {"train": "phrasebook:train"}, "model": model}
        ).vocabulary.joint

    assert joint(modification="geglu"), "the baseline has one embedding, and so one vocabulary"
    assert not joint(modification="untied")
    assert not joint(modification="geglu", shared=False)
    assert not joint()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"modification": "gegl"}, "did you mean 'geglu'"),
        ({"modification": 3}, "no modification named '3'"),
        ({"family": "bahdanau", "modification": "geglu"}, "changes a Transformer"),
    ],
    ids=str,
)
def test_what_is_no_modification_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        Builder({"family": "transformer", **given})
