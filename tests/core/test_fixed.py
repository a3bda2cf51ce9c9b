"""What a pass keeps: made once for all layers, never across the border of a recording, nothing in compiled code and inference."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from saccade.core import Mechanism, attend, masks, positions
from saccade.core.fixed import MOST, constant, made_of, recording, written_down
from saccade.core.normalizers import Softmax
from saccade.core.places import Places, in_line
from saccade.core.scores import ScaledDot
from saccade.layers.attention import MultiHeadAttention


class Maker:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> torch.Tensor:
        self.asked += 1
        return torch.full((2,), float(self.asked))


def test_a_constant_is_made_once() -> None:
    make = Maker()
    assert constant("once", make) is constant("once", make)
    assert make.asked == 1


def test_a_recording_takes_nothing_from_outside_and_leaves_nothing() -> None:
    make = Maker()
    outside = constant("border", make)
    with recording():
        assert written_down()
        inside = constant("border", make)
        assert inside is not outside
        assert constant("border", make) is inside
    assert constant("border", make) is outside
    with recording():
        assert constant("border", make) is not inside
    assert not written_down()


def test_a_recording_ends_with_an_error_too() -> None:
    with pytest.raises(ValueError, match="no"), recording():
        raise ValueError("no")
    assert not written_down()


def test_inference_keeps_nothing() -> None:
    make = Maker()
    with torch.inference_mode():
        assert constant("inference", make) is not constant("inference", make)
    kept = constant("inference", make)
    (kept * torch.ones(2, requires_grad=True)).sum().backward()  # a tensor of inference could not be saved for this


def test_tensors_that_are_no_real_ones_are_not_kept() -> None:
    mechanism = Mechanism(position=positions.Rotary())
    with FakeTensorMode():
        q = torch.randn(1, 1, 6, 8)
        assert tuple(attend(q, q, q, mechanism, masks.causal()).shape) == (1, 1, 6, 8)
    q = torch.randn(1, 1, 6, 8)
    assert bool(attend(q, q, q, mechanism, masks.causal()).isfinite().all())


def test_what_was_made_of_a_tensor_is_made_anew_when_it_changed() -> None:
    make, source = Maker(), torch.arange(3)
    first = made_of(source, "key", make)
    assert made_of(source, "key", make) is first
    assert made_of(source, "other", make) is not first
    assert made_of(source.clone(), "key", make) is not first
    source[0] = 7
    assert made_of(source, "key", make) is not first


def test_only_the_last_ones_are_kept() -> None:
    make = Maker()
    for n in range(MOST + 1):
        constant(("many", n), make)
    constant(("many", MOST), make)
    assert make.asked == MOST + 1
    constant(("many", 0), make)
    assert make.asked == MOST + 2


def test_places_in_line_are_one_tensor_for_all_layers() -> None:
    assert Places.in_line(4, 4).i is Places.in_line(4, 4).j is in_line(0, 4, "cpu")
    assert Places.in_line(1, 4).i.tolist() == [3]


@pytest.mark.parametrize("mask", [masks.causal(), masks.padding([2, 5]), masks.padding([0, 5]) & masks.causal()], ids=str)
def test_a_mask_is_made_once_for_a_pass_and_again_for_a_recording(mask: masks.Mask) -> None:
    def made() -> Any:
        return mask.dense(2, 1, 5, 5), mask.added(2, 1, 5, 5, "cpu", torch.float32)

    (dense, added), again = made(), made()
    assert again[0] is dense
    assert again[1] is added
    with recording():
        (inside, inside_added), twice = made(), made()
        assert inside is not dense
        assert twice[0] is inside
        assert twice[1] is inside_added
        torch.testing.assert_close(inside, dense)
    assert made()[0] is not inside


def test_what_a_mask_adds_by_hand() -> None:
    added, empty = masks.padding([2, 0]).added(2, 1, 3, 3, "cpu", torch.bfloat16)
    assert added.dtype == torch.bfloat16
    assert added[:, 0, 0].tolist() == [[0.0, 0.0, float("-inf")], [0.0, 0.0, 0.0]]
    assert empty[:, 0, 0, 0].tolist() == [False, True]


def test_rotary_angles_of_one_length_do_not_serve_another() -> None:
    mechanism = Mechanism(position=positions.Rotary())
    for size in (3, 5, 3):
        q = torch.randn(1, 1, size, 8, dtype=torch.float64)
        k = torch.randn(1, 1, size, 8, dtype=torch.float64)
        places = Places(torch.arange(size), torch.arange(size))  # tensors of its own
        torch.testing.assert_close(attend(q, k, k, mechanism), attend(q, k, k, mechanism, places=places))


@pytest.mark.parametrize("combined", [False, True])
def test_a_mask_is_made_anew_when_what_it_looks_up_was_changed(combined: bool) -> None:
    lengths, q = torch.tensor([3, 3]), torch.randn(2, 1, 3, 4)
    mask = masks.padding(lengths) & masks.causal() if combined else masks.padding(lengths)
    attend(q, q, q, mask=mask)
    before = mask.key
    lengths[0] = 1
    fresh = masks.padding(torch.tensor([1, 3]))
    expected = attend(q, q, q, mask=fresh & masks.causal() if combined else fresh)
    torch.testing.assert_close(attend(q, q, q, mask=mask), expected)
    assert mask.key != before


def test_a_large_tensor_that_was_changed_is_another_mask() -> None:
    allowed = torch.ones(80, 80, dtype=torch.bool)
    mask = masks.matrix(allowed)
    before = mask.key
    assert mask.key == before
    allowed[0, 0] = False
    assert mask.key != before


def test_a_layer_with_a_mask_of_its_own_can_be_copied_after_a_pass() -> None:
    layer, x = MultiHeadAttention(16, 2, None, Mechanism(ScaledDot(), Softmax(), masks.window(1))), torch.randn(2, 5, 16)
    expected = layer(x)
    torch.testing.assert_close(copy.deepcopy(layer)(x), expected)


def test_what_inference_made_can_be_read_outside_of_it() -> None:
    with torch.inference_mode():
        at, lengths = torch.arange(5), torch.tensor([2, 3])
    rotary = positions.table["rotary"]()
    x = torch.randn(1, 2, 5, 8)
    torch.testing.assert_close(rotary.turn(x, at), rotary.turn(x, torch.arange(5)))
    mask, other = masks.padding(lengths), masks.padding(torch.tensor([2, 3]))
    assert torch.equal(mask.dense(2, 1, 3, 3), other.dense(2, 1, 3, 3))
