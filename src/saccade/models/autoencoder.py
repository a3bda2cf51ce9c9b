"""Image autoencoders. B batch, H × W pixels, N positions of the encoder's grid, L latent width."""

import math

from torch import Tensor, nn

from ..errors import SaccadeError
from .protocols import ImageEncoder

DOUBLINGS = 3  # of rows and columns in the decoder
MAX_MATRIX_NUMBERS = 2**28


class Autoencoder(nn.Module):
    """z = W [x₁; …; x_N] + b of the encoder's vectors, then x̂ = decode(z) (Hinton & Salakhutdinov 2006)."""

    def __init__(self, body: ImageEncoder, size: tuple[int, int], latent: int, width: int) -> None:
        super().__init__()
        given, rows, columns = (
            math.prod(body.grid(*size)) * body.dim,
            *(-(-side // 2**DOUBLINGS) for side in size),
        )
        largest = latent * max(given, (width << DOUBLINGS) * rows * columns)
        if largest > MAX_MATRIX_NUMBERS:
            what = f"pictures of {size[0]} × {size[1]} pixels and autoencoding.latent={latent} make a matrix of {largest:,} numbers"
            raise SaccadeError(
                f"{what}, at most {MAX_MATRIX_NUMBERS:,} fit; choose a smaller latent, width or data.image_size",
                code="model-too-large",
            )
        self.body, self.squeeze = body, nn.Linear(given, latent)
        self.decoder = PixelDecoder(latent, width, rows, columns)
        self.size = size

    def latent(self, images: Tensor) -> Tensor:
        """B L"""
        return self.squeeze(self.body(images).flatten(1))

    def forward(self, images: Tensor) -> Tensor:
        """B 3 H W"""
        return self.from_latent(self.latent(images))

    def from_latent(self, latent: Tensor) -> Tensor:
        """B L → B 3 H W"""
        return self.decoder(latent)[:, :, : self.size[0], : self.size[1]]


class PixelDecoder(nn.Module):
    """B L → B 3 8R 8C: a map of R × C positions, then three times a convolution whose channels become 2 × 2 pixels (Shi et al. 2016)."""

    def __init__(self, latent: int, width: int, rows: int, columns: int) -> None:
        super().__init__()
        channels = width << DOUBLINGS
        self.start = nn.Linear(latent, channels * rows * columns)
        self.shape = (channels, rows, columns)
        layers: list[nn.Module] = []
        for _ in range(DOUBLINGS):
            layers += [
                nn.Conv2d(channels, 2 * channels, 3, padding=1),
                nn.PixelShuffle(2),
                nn.GELU(),
            ]
            channels //= 2
        last = nn.Conv2d(channels, 3, 3, padding=1)
        nn.init.constant_(last.bias, 0.5)  # type: ignore[arg-type]  # a gray picture to begin with
        self.layers = nn.Sequential(*layers, last)

    def forward(self, latent: Tensor) -> Tensor:
        return self.layers(self.start(latent).unflatten(1, self.shape))
