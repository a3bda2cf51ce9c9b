"""Models from a recipe's `model`: a family's settings are filled in, and a model of the kind that a task needs is built from them."""

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as registered
from torch.overrides import TorchFunctionMode

from .. import models
from ..errors import SaccadeError, did_you_mean
from ..layers.pooling import Pool
from ..settings import AUTO, fill, spell_all
from .modifications import modified_recipe

T = TypeVar("T", bound=nn.Module)
NAMES = ("family", "size", "modification")  # of a recipe's `model`: what is written out as settings
IMAGES = (
    "image_encoder"  # of a recipe's `model`: the settings of a model inside it, which reads images
)
DEFAULT_IMAGES = {"family": "cnn", "size": "medium"}
# numbers in the matrices of all layers, above which a model is measured before it is made
MAX_UNMEASURED_NUMBERS = 2**27


class NoInit(TorchFunctionMode):
    """Within the `with`, nothing is drawn: for parameters without memory PyTorch would load its compiler, which takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            func.__name__.endswith("_")
            and not func.__name__.startswith("_")
            and hasattr(nn.init, func.__name__)
        ):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def limit_size(numbers: int, parts: int) -> Iterator[None]:
    """Within the `with`, a model of more numbers, or more parts, is refused as soon as they are too many: settings in a file that somebody
    else wrote must not ask for more memory than the parameters beside them need."""
    seen: dict[int, Any] = {}  # kept, so that no number of an object is used twice
    mine = threading.get_ident()
    total = {"numbers": 0, "parts": 0}

    def count(_: nn.Module, name: str, one: Any) -> None:
        if threading.get_ident() != mine or one is None or id(one) in seen:
            return
        seen[id(one)] = one
        total["parts"] += 1
        total["numbers"] += one.numel() if isinstance(one, torch.Tensor) else 0
        if total["numbers"] > numbers or total["parts"] > parts:
            raise SaccadeError(
                "its settings describe a larger model than its parameters are; copy the model folder again",
                code="model-too-large",
            )

    kinds = (
        registered.register_module_parameter_registration_hook,
        registered.register_module_buffer_registration_hook,
        registered.register_module_module_registration_hook,
    )
    with ExitStack() as stack:
        for register in kinds:
            stack.callback(register(count).remove)
        yield


class TrackedSettings:
    """Settings that notice which of them are read: one that nothing reads has no effect, and is refused."""

    def __init__(self, settings: Any) -> None:
        self._settings, self._read = settings, set[str]()

    def __getattr__(self, name: str) -> Any:
        self._read.add(name)
        return getattr(self._settings, name)


class Builder:
    """Builds what a recipe's `model` names, for a task that knows how many tokens and labels there are."""

    def __init__(self, values: Mapping[str, Any], where: str = "model") -> None:
        self.name, self.where = values.get("family"), where
        if not isinstance(self.name, str):
            raise SaccadeError(
                f"{where}.family is {self.name!r}; choose one of: {', '.join(models.table.names())}",
                code="unknown-family",
            )
        self.family = models.table[self.name]
        self.images: Any = values.get(IMAGES, DEFAULT_IMAGES)
        self.inner: Builder | None = None
        given = {name: value for name, value in values.items() if name not in (*NAMES, IMAGES)}
        known = [f.name for f in dataclasses.fields(self.family.config)]
        wrong = next((name for name in given if name not in known), None)
        if wrong is not None:
            hint = RENAMED.get(wrong) or did_you_mean(wrong, known, setting=True)
            raise SaccadeError(
                f"no setting named '{where}.{wrong}' for {self.name}{hint}", code="unknown-setting"
            )
        complete: Callable[[Mapping[str, Any]], dict[str, Any]] = getattr(
            self.family.config, "complete", dict
        )
        sizes: Mapping[Any, Any] = {None: {}, **getattr(self.family.config, "sizes", {})}
        if (size := values.get("size")) not in list(sizes):
            raise SaccadeError(
                f"{where}.size is {size!r}, and a size of {self.name} is one of: {', '.join([*sizes][1:])}, {AUTO}",
                code="unknown-size",
            )
        chosen = {**sizes[size], **given}
        if (modification := values.get("modification")) is not None:
            chosen = modified_recipe(str(modification), self.family.config, chosen)
        self.settings: Any = fill(self.family.config, complete(chosen), where)
        self.config = TrackedSettings(self.settings)

    def make(self, kind: type[T], *facts: Any) -> T:
        """A model of a kind, for vocabularies of these sizes, or around an image encoder."""
        build = self.family.build(kind)
        if build is None:
            able = ", ".join(
                entry.name for entry in models.table if entry.make.build(kind) is not None
            )
            title = getattr(kind, "title", kind.__name__)
            raise SaccadeError(
                f"{self.where}.family is '{self.name}', which is not {title}; choose one of: {able}",
                code="family-not-supported",
            )
        made = self.checked(lambda: build(*facts, self.config))
        if isinstance(made, models.Decodable) and any(
            getattr(part, "reads_bytes", False) for part in made.modules()
        ):
            wrong = f"model.embedding reads a token's bytes, and this {self.name} generates token ids alone"
            raise SaccadeError(
                f"{wrong}; choose model.embedding=tokens", code="embedding-not-supported"
            )
        return made  # type: ignore[return-value]

    def image_encoder(self) -> models.ImageEncoder:
        """The model inside that reads images, by the settings `image_encoder`."""
        if not isinstance(self.images, Mapping):
            raise SaccadeError(
                f"model.{IMAGES} is {self.images!r}; expected settings such as {{family: cnn, size: small}}",
                code="not-settings",
            )
        self.inner = Builder(self.images, f"{self.where}.{IMAGES}")
        return self.inner.make(models.ImageEncoder)

    def pool(self, dim: int, vocab: int) -> Pool:
        """How the vectors of a text, `dim` wide, become one."""
        return self.checked(lambda: self.config.pool(dim=dim, vocab=vocab))

    @property
    def dropout(self) -> float:
        return float(self.config.dropout)

    def checked(self, make: Callable[[], T]) -> T:
        """What `make` makes, if its parameters fit this machine; a large model is first built without memory, to be counted."""
        sizes = [int(getattr(self.settings, name, 1)) for name in ("dim", "hidden", "depth")]
        # how many experts, or keys of a memory
        options = getattr(getattr(self.settings, "feedforward", None), "options", {})
        count = max([1, *(value for value in options.values() if type(value) is int)])
        try:
            if (
                sizes[0] * max(sizes[:2]) * sizes[2] * count**2 > MAX_UNMEASURED_NUMBERS
                and torch.empty(0).device.type != "meta"
            ):
                with torch.device("meta"), NoInit():
                    check_fits(make(), str(self.name))
            return make()
        except (RuntimeError, ArithmeticError, ValueError) as error:
            why = str(error).split("\n")[0][:200]
            wrong = f"{self.name} cannot be built with these settings ({why})"
            raise SaccadeError(
                f"{wrong}; change model.* sizes or options", code="cannot-build"
            ) from None


# where settings of earlier versions went
RENAMED = {
    "places": "; it is called model.position_embedding",
    "words": "; it is called model.embedding",
    "activation": "; write model.feedforward.activation",
    "entry": "; write model.position_embedding.join",
    "max_len": "; write model.position_embedding={name: learned, max_len: …}",
    "token": "; write model.pool=token",
}


def memory_here() -> float:
    """The bytes of memory of this machine; without a limit where the system does not say."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return float("inf")


def check_fits(model: nn.Module, name: str) -> None:
    """Raises when the parameters of a model (built without memory) are more than this machine can hold."""
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    there = memory_here()
    if size > there:
        wrong = f"the parameters of this {name} alone take {size / 2**30:,.0f} GiB, and this machine has {there / 2**30:,.0f}"
        raise SaccadeError(f"{wrong}; choose smaller model.* sizes", code="model-too-large")


def to_settings(builder: Builder, values: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    """The settings that were read when a builder made its model; a given one that was not is refused, where `strict`."""
    every, used, inner = spell_all(builder.settings), builder.config._read, builder.inner
    unused = [
        name
        for name in values
        if name not in NAMES and name not in used and (name != IMAGES or inner is None)
    ]
    if unused and strict:
        raise SaccadeError(
            f"{builder.where}.{unused[0]} has no effect on this {builder.name}; leave it out",
            code="setting-without-effect",
        )
    found = {
        "family": builder.name,
        **{name: value for name, value in every.items() if name in used},
    }
    return found if inner is None else {**found, IMAGES: to_settings(inner, builder.images, strict)}


def complete(
    values: Mapping[str, Any], sketch: Callable[[Builder], Any], strict: bool = True
) -> dict[str, Any]:
    """The model's settings with every default written out, but for those that `sketch`, which builds the task's model without memory,
    does not read; such a one that was given is refused, where `strict`. The settings of an automatic size are left out."""
    auto = values.get("size") == AUTO
    builder = Builder({**values, "size": "small"} if auto else values)
    with torch.device("meta"), NoInit():
        check_fits(sketch(builder), str(builder.name))
    found = to_settings(builder, values, strict)
    if not auto:
        return found
    if "modification" in values:  # it scales sizes that are still open
        return dict(values)
    left_open = {*builder.family.config.sizes["small"]} - {*values}  # type: ignore[attr-defined]
    return {"family": builder.name, "size": AUTO} | {
        name: value for name, value in found.items() if name not in left_open
    }
