"""A table: the names of one slot and what they make. Adding a variant is one decorator in the slot's file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .errors import SaccadeError, did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One row of a table: the name, what it makes, where it comes from, and options with which tests can build it."""

    name: str
    make: T
    paper: str = ""
    example: dict[str, Any] = field(default_factory=dict)
    per_batch: bool = (
        False  # made from each batch's own lengths or trees, so that a recipe cannot name it
    )

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (getattr(self.make, "__doc__", None) or "").strip().split("\n")[0]


class Table(Generic[T]):
    """Names → classes or functions of one slot, in order. `facts`: arguments that whoever builds a member fills in (widths, heads …)."""

    def __init__(self, slot: str, singular: str, facts: tuple[str, ...] = ()) -> None:
        self.slot, self.singular, self.facts = slot, singular, facts
        self._entries: dict[str, Entry[T]] = {}

    def add(
        self,
        name: str,
        paper: str = "",
        example: dict[str, Any] | None = None,
        per_batch: bool = False,
    ) -> Callable[[T], T]:
        """Decorator: puts what it decorates under `name`."""

        def put(make: T) -> T:
            if name in self._entries:
                raise SaccadeError(
                    f"{self.singular} '{name}' is already in the table; choose another name",
                    code="name-taken",
                )
            self._entries[name] = Entry(name, make, paper, example or {}, per_batch)
            return make

        return put

    def entry(self, name: str) -> Entry[T]:
        """The row under `name`, or an error that knows the nearest name."""
        if name not in self._entries:
            raise SaccadeError(
                f"no {self.singular} named '{name}'{did_you_mean(name, self._entries)}",
                code="unknown-name",
            )
        return self._entries[name]

    def __getitem__(self, name: str) -> T:
        return self.entry(name).make

    def name_of(self, thing: Any) -> str:
        """The name of a member, or of the class of `thing`; its class name when it is not in the table."""
        for entry in self._entries.values():
            if entry.make is thing or entry.make is type(thing):
                return entry.name
        return type(thing).__name__

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        return list(self._entries)
