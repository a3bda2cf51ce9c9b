"""saccade: one toolkit for attention, from the first alignment models to today's Transformers."""

from .api import build, decode, fit, load, show
from .core import Mechanism, attend, masks, record
from .core import explain as explain
from .layers.attention import MultiHeadAttention

__version__ = "0.1.0"
__all__ = ["Mechanism", "MultiHeadAttention", "attend", "build", "decode", "fit", "load", "masks", "record", "show"]
