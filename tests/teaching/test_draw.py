"""The numbers behind each drawing against formulas, and the drawings as a user asks for them."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from saccade.config import recipes
from saccade.core import masks as core_masks
from saccade.data.generated import languages
from saccade.layers.feedforward import MLP
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.models.builder import Builder
from saccade.models.protocols import Encoder
from saccade.teaching import draw
from saccade.teaching.draw import (
    cost_curves,
    gradient_distance,
    landscape,
    mask_pictures,
    model_diagram,
    operation_share,
    position_pictures,
    scaling,
    word_map,
    word_orders,
)
from saccade.training.flops import counter
from saccade.views.plots.layout import panels
from saccade.views.plots.panels import Bars, Contours
from support import error_of, run_cli

# --- masks


def test_masks_are_their_predicates() -> None:
    i, j = np.indices((16, 16))
    assert (mask_pictures.mask_matrix("causal", 16) == (j <= i)).all()
    assert (
        mask_pictures.mask_matrix("window", 16, left=3, right=1) == ((j >= i - 3) & (j <= i + 1))
    ).all()
    assert (mask_pictures.mask_matrix("padding", 16, lengths=5) == (j < 5)).all()
    assert (
        mask_pictures.mask_matrix("documents", 4, ids=[0, 0, 1, 1])
        == np.kron(np.eye(2), np.ones((2, 2)))
    ).all()


@pytest.mark.parametrize(
    "name", [one for one in core_masks.table.names() if one not in mask_pictures.NOT_FROM_OPTIONS]
)
def test_every_mask_of_the_catalogue_can_be_drawn(name: str) -> None:
    assert mask_pictures.draw([name], 16).table[1][1:3] == ["16", "16"]


def test_big_bird_has_a_window_globals_and_random_blocks() -> None:
    found = mask_pictures.mask_matrix("big-bird", 32, size=2, random=1)
    blocks = found.reshape(16, 2, 16, 2).any((1, 3))
    assert (found == blocks.repeat(2, 0).repeat(2, 1)).all()
    assert blocks[0].all()
    assert blocks[:, 0].all()
    assert {int(row.sum()) for row in blocks[3:-1]} == {5}  # 3 of the window, 1 global, 1 random


def test_swins_shifted_windows_by_hand() -> None:
    plain, shifted, allowed = mask_pictures.swin_windows(8, 4)
    row, column = np.divmod(np.arange(64), 8)
    part = lambda at: (at + 2) // 4  # windows of 4, shifted by 2: cut at 2 and at 6
    same = (part(row)[:, None] == part(row)) & (part(column)[:, None] == part(column))
    assert (allowed == same).all()
    assert (plain == 2 * (np.arange(8)[:, None] // 4) + np.arange(8) // 4).all()
    assert len(np.unique(shifted)) == 9


def test_a_matrix_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "spaces.txt").write_text("1 0 1\n0 1 0\n")
    (tmp_path / "tight.txt").write_text("101\n010\n")
    (tmp_path / "bad.txt").write_text("1 0\n1 2\n")
    (tmp_path / "long.txt").write_text("1 0\n1\n")
    assert mask_pictures.read_matrix(tmp_path / "spaces.txt").tolist() == [
        [True, False, True],
        [False, True, False],
    ]
    assert (
        mask_pictures.read_matrix(tmp_path / "tight.txt")
        == mask_pictures.read_matrix(tmp_path / "spaces.txt")
    ).all()
    for name in ("bad", "long"):
        assert "row 2 of" in error_of(
            lambda name=name: mask_pictures.read_matrix(tmp_path / f"{name}.txt")
        )
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe1")
    assert "is not a text" in error_of(lambda: mask_pictures.read_matrix(tmp_path / "bytes.txt"))


def test_windows_have_numbers_and_shades_of_their_own() -> None:
    panel = mask_pictures.windows_panel("windows", np.array([[7, 7, 3], [5, 5, 3]]))
    assert panel.text.tolist() == [[1, 1, 2], [3, 3, 2]]
    assert len(np.unique(panel.values)) == 3


# --- positions and scaling


def test_products_of_sinusoids_are_sums_of_cosines_of_the_distance() -> None:
    found = position_pictures.vectors("sinusoidal", 20, 8)
    assert found is not None
    wanted = [
        [sum(math.cos((i - j) * 10000 ** (-2 * k / 8)) for k in range(4)) for j in range(20)]
        for i in range(20)
    ]
    np.testing.assert_allclose(found @ found.T, wanted, atol=1e-5)
    np.testing.assert_allclose(
        position_pictures.scores("rotary", 20, 8), np.array(wanted) / 4, atol=1e-5
    )


def test_alibi_adds_minus_the_slope_times_the_distance() -> None:
    i, j = np.indices((6, 6))
    np.testing.assert_allclose(
        position_pictures.scores("alibi", 6, 4), 1 - abs(i - j) / 256, atol=1e-6
    )


def test_the_binary_table_counts() -> None:
    assert [int("".join(map(str, row)), 2) for row in position_pictures.binary_table()] == list(
        range(16)
    )


def test_learned_positions_are_random_by_their_seed() -> None:
    one, same, other = (position_pictures.vectors("learned", 5, 4, seed) for seed in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()


def test_the_variance_is_the_width_and_one_when_scaled() -> None:
    found = scaling.measure((4, 64), keys=16, trials=2000)
    for width in (4, 64):
        plain, scaled = found[scaling.PLAIN][width], found[scaling.SCALED][width]
        assert plain["variance"] == pytest.approx(width, rel=0.1)
        assert scaled["variance"] == pytest.approx(plain["variance"] / width)
    wide = {name: by[64] for name, by in found.items()}
    assert wide[scaling.PLAIN]["entropy"] < 1 < 3 < wide[scaling.SCALED]["entropy"] < math.log2(16)


def test_the_gradient_is_the_jacobian_of_softmax() -> None:
    chance = torch.Generator().manual_seed(0)
    q, k = (
        torch.randn(1, 1, 3, generator=chance, dtype=torch.float64),
        torch.randn(1, 5, 3, generator=chance, dtype=torch.float64),
    )
    jacobian = torch.autograd.functional.jacobian(
        lambda s: s.softmax(-1), (q @ k.transpose(1, 2)).flatten()
    )
    assert scaling.measure((3,), keys=5, trials=1)[scaling.PLAIN][3]["gradient"] == pytest.approx(
        float(jacobian.norm())
    )


# --- operations


def test_the_share_of_operations_is_what_a_live_block_counts() -> None:
    attention, mlp, x = MultiHeadAttention(16, 2), MLP(16, 64), torch.randn(1, 10, 16)
    with torch.no_grad(), counter() as counted:
        attention(x)
        mlp(x)
    assert counted.get_total_flops() == sum(operation_share.operations(16, 10).values())
    assert operation_share.outside(100, 600) == pytest.approx(0.5)  # N = 6 D


def test_both_panels_of_shares_have_one_scale_from_0_to_100() -> None:
    axes = operation_share.draw([]).figure.axes
    assert [one.get_ylim() for one in axes] == [(0, 100), (0, 100)]


def test_costs_grow_as_they_should() -> None:
    found = cost_curves.measure(("full", "window", "lstm"), (32, 64), paths=(8, 16))
    assert {form: mine["path"] for form, mine in found.items()} == {
        "full": {8: 1, 16: 1},
        "window": {8: 2, 16: 4},
        "lstm": {8: 8, 16: 16},
    }
    assert found["full"]["steps"][8] == found["full"]["steps"][16]
    assert found["lstm"]["operations"][64] / found["lstm"]["operations"][32] == pytest.approx(
        2, rel=0.01
    )
    assert found["full"]["operations"][64] > 2.2 * found["full"]["operations"][32]


def test_gradients_fall_with_distance_through_a_recurrence_alone() -> None:
    found = gradient_distance.measure(20, 1)
    assert all(sum(values) == pytest.approx(1) for values in found.values())
    assert found["fixed context"][19] < 1e-3 * found["fixed context"][0]
    assert found["Transformer"][19] > 0.3 * found["Transformer"][0]
    assert found["attention"][19] > 100 * found["fixed context"][19]


def test_the_text_of_scaling_says_what_its_table_shows() -> None:
    made = scaling.draw([])
    head, rows = made.table[0], {row[0]: row[1:] for row in made.table[1:]}
    gradient = [head.index(f"gradient, {name}") - 1 for name in (scaling.PLAIN, scaling.SCALED)]
    assert float(rows["8"][gradient[0]]) > float(rows["8"][gradient[1]]), (
        "small D: a larger gradient without the scale"
    )
    for name in gradient:
        assert rows["512"][name] in made.text
    larger = [
        int(width)
        for width, row in rows.items()
        if float(row[gradient[0]]) > float(row[gradient[1]])
    ]
    assert f"up to D = {max(larger)} it is larger" in made.text
    assert "almost no" not in made.text


# --- landscape, words, model, orders


def test_directions_are_as_long_as_each_row_and_leave_biases_alone() -> None:
    layer = nn.Linear(5, 3)
    for weight, bias in landscape.directions(layer, 0):
        torch.testing.assert_close(weight.norm(dim=1), layer.weight.norm(dim=1))
        assert not bias.any()


def test_the_surface_of_a_quadratic_is_the_quadratic_and_parameters_stay() -> None:
    layer = nn.Linear(2, 1, bias=False)
    before, at = layer.weight.detach().clone(), np.linspace(-1, 1, 5)
    found = landscape.surface(layer, lambda: float(layer.weight.square().sum()), at)
    one, two = (way[0] for way in landscape.directions(layer, 0))
    wanted = [
        [float((before + a * one + b * two).square().sum()) for a in at.tolist()]
        for b in at.tolist()
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert torch.equal(layer.weight, before)


def test_equal_grays_are_equal_losses_in_all_landscapes(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([0.1, 5.0])
    monkeypatch.setattr(landscape, "train", lambda *_: SimpleNamespace(model=None))
    monkeypatch.setattr(landscape, "loss_of", lambda _: None)
    rim = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    monkeypatch.setattr(landscape, "surface", lambda *_: next(losses) * (1 + rim))
    levels = []
    monkeypatch.setattr(
        Contours, "draw", lambda self, axes, looks: levels.append(list(self.levels))
    )
    landscape.draw([], steps=3)
    assert len(levels) == 2
    assert levels[0] == levels[1]
    assert levels[0][0] == pytest.approx(0.1)
    assert levels[0][-1] == pytest.approx(10.0)


def test_a_flat_landscape_is_drawn() -> None:
    flat = Contours(
        "flat", at=np.linspace(-1, 1, 3), values=np.full((3, 3), 0.5), levels=np.linspace(0, 1, 12)
    )
    assert panels("title", "note", [[flat]]).axes


def test_bars_begin_at_one_and_end_at_their_values() -> None:
    figure = panels("title", "note", [[Bars("name", "x", values={"fast": 4.0, "slow": 0.5})]])
    [axes] = figure.axes
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert ends == [(1, 4.0), (1, 0.5)]
    assert {"4", "0.5"} <= {text.get_text() for text in axes.texts}
    assert [text.get_text() for text in axes.get_yticklabels()] == ["fast", "slow"]


def test_the_map_keeps_the_greatest_variance_and_neighbors_are_by_cosine() -> None:
    points = np.array([[0.0, 0, 0], [10, 0, 0.1], [0, 5, 0], [10, 5, -0.1]])
    found = word_map.project(points)
    np.testing.assert_allclose(np.ptp(found, axis=0), [10, 5], rtol=1e-3)
    assert word_map.nearest(np.array([[1.0, 0], [2, 0.1], [0, 3]]), 1)[0].tolist() == [1]


def test_words_in_the_same_company_are_neighbors() -> None:
    table = word_map.draw([]).table
    near = {row[0]: row[1] for row in table[1:]}
    assert "dog" in near["cat"]
    assert "bird" in near["cat"]


def test_a_diagram_has_every_parameter_once() -> None:
    made = model_diagram.draw(["sst2-transformer"])
    whole, _ = model_diagram.load_model("sst2-transformer")
    total = sum(one.numel() for one in whole.parameters())
    assert made.title.endswith(f"{total:,} parameters")
    top = [int(row[-1].replace(",", "")) for row in made.table[1:] if not row[0].startswith("·")]
    assert sum(top) == total
    head = next(row for row in made.table if row[0] == "head")
    assert head[1] == "Linear"
    assert head[3] == "B × 2"


def test_a_recipe_whose_data_is_not_here_is_drawn_with_its_largest_vocabulary() -> None:
    made = model_diagram.draw(["multi30k-en-de"])
    assert str(recipes.read_recipe("multi30k-en-de").vocabulary.size) in made.table[1][2]


def test_a_diagram_has_a_line_around_each_part_with_a_residual() -> None:
    around = {"pre-norm": ["mixer", "feedforward"], "none": []}
    for residual, wanted in around.items():
        settings = {"family": "transformer-encoder", "depth": 1, "residual": residual}
        made = Builder({**settings, "dim": 16, "hidden": 16, "heads": 2}).make(Encoder, 50)
        parts, found = model_diagram.parts_of(made, {}), []
        while parts:
            part = parts.pop(0)
            parts += part.inside
            found += [part.residual] if part.residual else []
            assert model_diagram.box_of(part).skipped == 2 * bool(part.residual)
        assert found == wanted


def test_links_cross_where_orders_differ() -> None:
    found = {
        to: word_orders.crossings(languages.lecture_sentences(to)[0]) for to in languages.NAMES
    }
    assert found == {"fr": 1, "de": 2, "it": 1, "es": 1, "zh": 0, "hi": 2}


# --- the command

SMALL = {
    "mask": ["causal", "left=1", "window"],
    "positions": ["learned"],
    "desiderata": ["learned", "alibi", "--length", "8"],
    "scaling": ["trials=20"],
    "landscape": ["updates=1", "steps=3", "depth=1"],
    "words": ["cat", "dog", "house"],
    "model": ["tinyshakespeare"],
    "cost": ["full", "--lengths", "16,32"],
    "distance": ["seeds=1", "--length", "6"],
    "orders": ["de", "--seed", "3"],
    "share": ["--lengths", "30,512"],
}


SLOW = ("landscape", "cost", "words")


def test_every_drawing_is_tried_here() -> None:
    assert set(SMALL) == set(draw.FIGURES)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in sorted(SMALL)
    ],
)
def test_a_drawing_is_written_and_its_numbers_printed(what: str, tmp_path: Path) -> None:
    out = tmp_path / ("x.html" if what == "orders" else "x.svg" if what == "share" else "x.png")
    done = run_cli("draw", what, *SMALL[what], "--out", out, "--json")
    assert done.code == 0, done.err
    assert done.json["out"] == str(out)
    assert len({len(row) for row in done.json["table"]}) == 1
    assert out.stat().st_size > 3000
    begins = {".png": b"\x89PNG", ".svg": b"<?xml", ".html": b"<!doctype html>"}[out.suffix]
    assert out.read_bytes()[:15].lower().startswith(begins.lower())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("maks", "no drawing named 'maks'; did you mean 'mask'?"),
        ("mask casual", "no mask or file named 'casual'; did you mean 'causal'?"),
        ("mask causal left=3", "no mask of this drawing has the option 'left'"),
        ("mask causal --length 0", "expected a length from 1 to 1,024, got 0"),
        ("mask padding left=2 window", "no error"),
        (
            "scaling --length 4",
            "draw scaling has no option 'length'; its options: seed, keys, trials",
        ),
        ("scaling trials=many", "draw.trials is 'many'; it must be a whole number"),
        ("positions sinusoidal --dim 1", "expected a dim from 2 to 2,048, got 1"),
        ("positions elsewhere", "no positions named 'elsewhere'"),
        ("cost full --lengths 32", "expected two or more lengths"),
        ("cost nothing", "no form named 'nothing'"),
        ("share --lengths 3,x", "expected lengths such as 64,128,256, got '3,x'"),
        ("model", "draw model takes one recipe or run folder"),
        ("orders xx", "the phrasebook has no language 'xx'"),
        ("words zebra", "'zebra' is neither a run folder nor a word of the phrasebook"),
        ("share --out share.gif", "the name must end in .png, .svg, .pdf, .html"),
        ("mask causal length=4 --length 5", "length is given twice"),
    ],
)
def test_a_mistake_is_answered_with_a_sentence(line: str, sentence: str) -> None:
    done = run_cli("draw", *line.split(), terminal=False)
    if sentence == "no error":
        assert done.code == 0
        return
    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1
