"""The version of the package, which any module may import."""

__version__ = "0.3.0"
