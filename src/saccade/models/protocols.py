"""Kinds of models: what a task may ask of one, and a family can build. B batch, N source tokens, T target tokens, V vocabulary."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..core import State
from ..core.masks import Mask
from ..errors import SaccadeError

# mean and deviation of red, green and blue in photographs
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Encoder(nn.Module):
    """Reads one sequence: one vector per token, B N dim, in which padding is invisible.

    The input is what its embedding takes: token ids (B N), ids with bytes (B N 1+C). Its parameters are named `embedding.…` and
    `encoder.…` or `decoder.…`, whatever is built on it.
    """

    title = "an encoder"
    reads = "texts"  # a family whose encoders read something else builds none where a reader of texts is asked for
    dim: int  # of what comes out
    sees_ahead = True  # a token's vector depends on what follows it
    needs_relation = (
        False  # its positions ask for what the tokens are to each other, such as a parse tree
    )
    embedding: Any

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        raise NotImplementedError

    def separate(self, number: Callable[[str], int | None]) -> int | None:
        """Takes and returns the number of the token that separates segments, if the encoder has segments. `number` knows it: None where
        a text is not one token."""
        return None

    def add_token(self) -> None:
        """Adds a class token in front of the positions: a learned vector that every layer sees."""
        raise SaccadeError(
            "model.pool=token reads a class token, which only the family vit has; choose another pool",
            code="pool-not-supported",
        )


class AttendingEncoder(Encoder):
    """An encoder that takes a mask, positions and a pairwise relation of its tokens."""

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        relation: Tensor | None = None,
        depth: Tensor | None = None,
    ) -> Tensor:
        """`mask` is added to the padding's; `positions` (N or B N) are 0, 1, 2 … by default; `relation` (B N N): of each pair of tokens;
        `depth` (B N): of each token in its tree."""
        raise NotImplementedError


class ImageEncoder(Encoder):
    """Reads images (B 3 H W, numbers from 0 to 1, or bytes): one vector per position of a grid, row by row, B N dim.

    A class token, where one was added, comes before the positions: B 1+N dim. `lengths` says nothing, since every position counts: what is
    built on an encoder of texts may pass it. What is subtracted and divided by belongs to the model, as the buffers `mean` and `std`.
    """

    title = "an image encoder"
    reads = "images"
    leans = 0  # where strided convolutions look within a position's part of the image: -1 at its first pixel, 1 at its last, 0 at its middle
    mean: Tensor
    std: Tensor

    def __init__(
        self, mean: tuple[float, ...] = IMAGENET[0], std: tuple[float, ...] = IMAGENET[1]
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, images: Tensor, lengths: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of positions for an image of this size."""
        raise NotImplementedError

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        """The feature map of each resolution, from fine to coarse, B D R C; the last one is the output."""
        grid = self.grid(*images.shape[2:])
        return [self(images)[:, -math.prod(grid) :].mT.unflatten(2, grid)]

    def offset(self, height: int, width: int, rows: int, columns: int) -> tuple[float, float]:
        """How far below and right of the middle of its part a position of a feature map looks, in heights and widths of the image."""
        down, across = (
            self.leans * (1 / count - 1 / size) / 2
            for size, count in ((height, rows), (width, columns))
        )
        return down, across

    def normalized(self, images: Tensor) -> Tensor:
        """(x − mean) / std for each color."""
        if images.dim() != 4 or images.shape[1] != 3 or 0 in images.shape[2:]:
            got = f"got shape {tuple(images.shape)}"
            raise SaccadeError(
                f"expected images as batch × 3 × height × width, {got}; convert them to RGB and add the batch",
                code="image-shape",
            )
        if images.dtype == torch.uint8:
            images = images.to(self.std.dtype) / 255
        return (images - self.mean.view(3, 1, 1)) / self.std.view(3, 1, 1)


def maps_of(layers: Iterable[nn.Module], x: Tensor) -> list[Tensor]:
    """The last feature map of each resolution (B D R C) that x goes through."""
    found: list[Tensor] = []
    for layer in layers:
        x = layer(x)
        found = [*(one for one in found if one.shape[2:] != x.shape[2:]), x]
    return found


class GraphLabeler(nn.Module):
    """Labels nodes that are bags of words: tokens B N W and edges B E 2 → logits B N C."""

    title = "a network that labels the nodes of graphs"
    reads = "bags of words in graphs"


class MeshLabeler(nn.Module):
    """Labels vertices of meshes: vectors B N 2, edges B E 2 and angles B E 2 → logits B N C."""

    title = "a network that labels the vertices of meshes"
    reads = "vectors on meshes"


class Decodable(nn.Module):
    """Generates one token after another. `step` never changes the state it was given."""

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """The state after reading sources (or prompts), B N."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One token per row (B) → logits (B V) and the state after it."""
        raise NotImplementedError


class Seq2Seq(Decodable):
    """Reads one sequence and generates another."""

    title = "an encoder–decoder"
    shares_embedding = False  # one embedding for source and target

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits for the token after each of `target`: B T V."""
        raise NotImplementedError


class TextAutoencoder(Seq2Seq):
    """Reads a text into one vector, and generates the text from that vector alone."""

    title = "a model whose decoder reads one vector"
    reads = "texts"

    def latent(self, source: Tensor, lengths: Tensor) -> Tensor:
        """The vector of each source: B L."""
        raise NotImplementedError

    def start_from(self, latent: Tensor) -> State:
        """The state of the decoder that has read these vectors."""
        raise NotImplementedError

    def start(self, source: Tensor, lengths: Tensor) -> State:
        return self.start_from(self.latent(source, lengths))


class ImageToText(Seq2Seq):
    """Looks at an image and generates a text: the source are images, B 3 H W, and `lengths` say nothing."""

    title = "a model that describes images"
    reads = "images"
    image: ImageEncoder


class LookingEncoder(Encoder):
    """Reads a text that looks at an image: one vector per token, B N dim.

    Several texts may look at one image, which is read once: `which` (B) is the number of each text's image; by default each has its own.
    """

    title = "an encoder whose text looks at an image"
    reads = "texts and images"
    image: ImageEncoder
    bridge: nn.Module

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        images: Tensor | None = None,
        which: Tensor | None = None,
    ) -> Tensor:
        raise NotImplementedError

    def memory(self, images: Tensor | None, which: Tensor | None = None) -> Tensor:
        """What each text attends to, B M dim."""
        assert images is not None, "a text that looks at an image needs one"
        found: Tensor = self.bridge(self.image(images), self.image.grid(*images.shape[2:]))
        return found if which is None else found[which]


class CausalLM(Decodable):
    """Continues a sequence."""

    title = "a causal language model"
    attends = True  # takes a mask and positions

    def forward(
        self, tokens: Tensor, mask: Mask | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """Logits for the token after each: B N V. `mask` (packed documents, say) and `positions` are for models that attend."""
        raise NotImplementedError


class Carrying(nn.Module):
    """Reads a long text in pieces, with a state of fixed size."""

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """The state before the first piece of B texts; `source` (B 0)."""
        raise NotImplementedError

    def forward_from(self, *args: Any, **kwargs: Any) -> tuple[Tensor, State]:
        """What `forward` answers to a piece that follows those the state has read, which comes last; and the state after the piece.
        Gradients stop at the given state."""
        raise NotImplementedError


class CarryingLM(CausalLM, Carrying):
    """A language model with a state of fixed size, which reads a long text in pieces."""

    title = "a recurrent language model"

    def forward_from(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (B N V) for tokens that follow those the state has read, and the state after them. Gradients stop at the given state."""
        raise NotImplementedError
