"""Augmentation: seeded, exact where it only moves pixels, and every option changes something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import raises
from torch import Tensor

from saccade.data.augment import Augment, rotate
from saccade.errors import SaccadeError

OPTIONS: dict[str, Any] = {"flip": True, "crop": 3, "warp": 0.2, "jitter": 0.4, "erase": 0.9}
MIXES = {"mixup": 0.9, "cutmix": 0.9}


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def images(channels: int = 3, count: int = 16) -> Tensor:
    return torch.rand(count, channels, 12, 18, generator=seeded(9))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_changes_something_and_the_seed_decides(name: str) -> None:
    batch = images()
    change = Augment(**{name: OPTIONS[name]})
    first, same, other = (change(batch, seeded(n)) for n in (1, 1, 2))
    assert first.shape == batch.shape
    assert first.dtype == batch.dtype
    assert torch.equal(first, same)
    assert not torch.equal(first, batch)
    assert not torch.equal(first, other)
    assert torch.equal(batch, images()), "the batch itself is not changed"
    assert float(first.min()) >= 0
    assert float(first.max()) <= 1


def test_without_options_nothing_changes() -> None:
    assert torch.equal(Augment()(images(), seeded()), images())
    mixed = Augment().mix(images(), seeded())
    assert torch.equal(mixed.images, images())
    assert mixed.share.tolist() == [1.0] * 16


def test_flips_are_exact() -> None:
    batch = images()
    flipped = [
        torch.equal(new, old.flip(-1))
        for new, old in zip(Augment(flip=True)(batch, seeded()), batch, strict=True)
    ]
    kept = [
        torch.equal(new, old)
        for new, old in zip(Augment(flip=True)(batch, seeded()), batch, strict=True)
    ]
    assert [a != b for a, b in zip(flipped, kept, strict=True)] == [True] * 16
    assert 3 < sum(flipped) < 13


def test_crops_are_exact_and_reach_every_side() -> None:
    position = (
        torch.stack(torch.meshgrid(torch.arange(12.0), torch.arange(18.0), indexing="ij")).expand(
            64, 2, 12, 18
        )
        / 18
    )
    found = (Augment(crop=2)(position, seeded()) * 18).round()
    middle = found[:, :, 6, 9]
    assert set(middle[:, 0].tolist()) == {4.0, 5.0, 6.0, 7.0, 8.0}
    assert set(middle[:, 1].tolist()) == {7.0, 8.0, 9.0, 10.0, 11.0}
    inner = found[:, :, 3:-3, 3:-3]
    assert torch.equal(inner - inner[:, :, :1, :1], (position * 18).round()[:, :, :6, :12])


def test_erasing_hits_a_box_and_leaves_the_rest() -> None:
    batch = torch.full((200, 3, 20, 20), 2.0)
    changed = Augment(erase=0.5)(batch, seeded())[:, 0] != 2
    share = changed.float().mean((1, 2))
    assert 0.35 < (share > 0).float().mean() < 0.65
    assert float(share.max()) < 0.3
    for one in changed[share > 0]:
        rows, columns = one.any(1), one.any(0)
        assert torch.equal(one, rows[:, None] & columns[None, :]), "a rectangle"


def test_small_jitter_and_warps_are_small() -> None:
    smooth = torch.linspace(0.2, 0.8, 18).expand(8, 3, 12, 18)
    for name in ("jitter", "warp"):
        change = (Augment(**{name: 0.02})(smooth, seeded()) - smooth).abs()
        assert 0 < float(change.mean()) < 0.03, name


def test_grayscale_works_and_stays_gray() -> None:
    every = Augment(**OPTIONS)
    assert every(images(1), seeded()).shape == (16, 1, 12, 18)
    gray = images(1).expand(16, 3, 12, 18)
    found = Augment(flip=True, crop=2, warp=0.1, jitter=0.5)(gray, seeded())
    assert torch.allclose(found[:, 0], found[:, 1])
    assert torch.allclose(found[:, 0], found[:, 2])


@pytest.mark.parametrize("name", MIXES)
def test_labels_count_as_much_as_their_pixels(name: str) -> None:
    values = torch.arange(32.0).view(32, 1, 1, 1).expand(32, 3, 10, 10) / 32
    found = Augment(**{name: MIXES[name]}).mix(values, seeded())
    labels = torch.arange(32.0) / 32
    expected = found.share * labels + (1 - found.share) * labels[found.other]
    assert torch.allclose(found.images.mean((1, 2, 3)), expected, atol=1e-5)
    assert 0 < int((found.share < 1).sum()) <= 32
    assert int((found.share == 1).sum()) > 0
    assert torch.equal(found.images, Augment(**{name: MIXES[name]}).mix(values, seeded()).images)
    assert not torch.equal(
        found.images, Augment(**{name: MIXES[name]}).mix(values, seeded(1)).images
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"filp": True}, "no setting named 'augment.filp'; did you mean 'flip'?"),
        ({"flip": 2}, "augment.flip is 2; it must be true or false"),
        ({"crop": -1}, "augment.crop is -1; it must lie between 0 and 64"),
        ({"crop": 1.5}, "augment.crop is 1.5; it must be a whole number"),
        ({"erase": 1.5}, "augment.erase is 1.5; it must lie between 0 and 1"),
        ({"jitter": "much"}, "augment.jitter is 'much'; it must be a number"),
        ({"warp": float("nan")}, "augment.warp is nan; it must be a finite number"),
        (
            {"mixup": 0.6, "cutmix": 0.6},
            "together more than 1; an image is mixed in one way, so lower one of them",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        Augment.of(options)
    assert sentence in str(error.value)


def test_wrong_images_are_refused() -> None:
    for batch in (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(3, 4, 4)):
        with raises(
            "image-shape", match="expected images B C H W as floats from 0 to 1, got torch"
        ):
            Augment(flip=True)(batch, seeded())
    with raises(
        "out-of-range", match=r"augment.crop is 12, but the images are 12 × 18; expected less"
    ):
        Augment(crop=12)(images(), seeded())


def test_options_of_a_recipe() -> None:
    assert Augment.of({"flip": True, "erase": 1}) == Augment(flip=True, erase=1)


def test_moved_images_lie_in_memory_as_they_did() -> None:
    images = torch.rand(3, 3, 16, 16)
    made = Augment(crop=2, flip=True, jitter=0.1)(images, torch.Generator().manual_seed(0))
    assert made.stride() == images.stride(), (
        "convolutions on CPUs damage memory where colors come last"
    )


def test_rotations_are_those_of_pillow_and_quarter_turns_are_exact() -> None:
    x = torch.rand(1, 1, 21, 15, generator=seeded())
    for degrees in (30, 77, 200.5):
        with Image.fromarray(x[0, 0].numpy()) as image:
            wanted = torch.tensor(
                np.array(image.rotate(degrees, Image.Resampling.BILINEAR, fillcolor=-1.0))
            )
        inside = wanted >= 0  # elsewhere corners come in
        assert inside.sum() > 100
        torch.testing.assert_close(
            rotate(x, degrees)[0, 0][inside], wanted[inside], atol=1e-4, rtol=0
        )
    corners = torch.arange(6).view(1, 1, 2, 3).byte()
    assert rotate(corners, 90)[0, 0].tolist() == [[2, 5], [1, 4], [0, 3]], "counterclockwise"
    assert rotate(corners, 270)[0, 0].tolist() == [[3, 0], [4, 1], [5, 2]]
    square = x[..., :15, :]
    torch.testing.assert_close(rotate(square, 90.0001), rotate(square, 90), atol=1e-4, rtol=0)
    assert rotate(x, 45).min() >= 0
    assert rotate(x, 45).max() <= 1
