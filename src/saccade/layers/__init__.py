"""Parts with parameters."""

# files whose members enter tables of other files
from . import (  # noqa: F401
    convolution_mixers,
    evolved_transformer,
    funnel_transformer,
    graph_mixers,
    linformer,
    product_keys,
    synthesizers,
    universal_transformer,
    weighted_transformer,
)
