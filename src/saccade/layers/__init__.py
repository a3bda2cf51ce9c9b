"""Parts with parameters."""

# files whose members enter tables of other files
from . import convolution_mixers, evolved, funnel, graphs, linformer, product_keys, synthesizers, universal, weighted  # noqa: F401
