"""Parts with parameters."""

from . import convolutions, evolved, funnel, product_keys, universal, weighted  # noqa: F401  # files whose members enter tables of other files
