"""Tasks: what is learned, one file each. Every module here is imported, so that a new task needs no list of tasks."""

from importlib import import_module
from pkgutil import iter_modules

from .task import Task, table

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Task", "table"]
