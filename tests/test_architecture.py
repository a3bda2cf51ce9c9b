"""The shape of the tree: imports point one way, files, functions and the whole have a budget, and nothing runs what a stranger wrote."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "saccade"
FILES = sorted(ROOT.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
# Imports point to the left: a room may import the base and every room before it.
BASE = ("errors", "version", "files", "registry", "settings", "recipe")
ROOMS = (
    "core",
    "layers",
    "models",
    "decoding",
    "tasks",
    "config",
    "system",
    "api",
    "experiments",
    "teaching",
    "serving",
    "studies",
    "cli",
)
# Rooms beside that line, and what they may import besides the base. They are used from `tasks` on.
BESIDE = {"data": set(), "training": {"core"}, "views": set(), "interop": {"core", "views"}}
TOP = {"__init__": {"api", "core", "interop", "layers", "teaching"}, "__main__": {"cli"}}


def may_import(here: str) -> set[str]:
    """The rooms that a room may import."""
    if here in BASE:
        return set(BASE[: BASE.index(here)])
    if here not in ROOMS:
        return {*BASE, *(BESIDE | TOP)[here]}
    before = ROOMS[: ROOMS.index(here)]
    beside = BESIDE.keys() - {"interop"} if "decoding" in before else set()
    apart = {"serving"} if here == "studies" else set()
    return {*BASE, *before, *beside, *({"interop", "__init__"} if here == "cli" else set())} - apart


def part_of(parts: tuple[str, ...]) -> str:
    """The folder or top-level file that a path inside the package belongs to."""
    return parts[0].removesuffix(".py") if parts else "__init__"


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """What a file imports from the package, inside functions too, as paths below the package."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "saccade":
                    yield tuple(name.name.split(".")[1:])
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".") if node.module else []
            if node.level:
                base = (*package[: len(package) - node.level + 1], *module)
            elif module[:1] == ["saccade"]:
                base = tuple(module[1:])
            else:
                continue
            for name in node.names:
                below = ROOT.joinpath(*base, name.name)
                yield (
                    (*base, name.name)
                    if below.is_dir() or below.with_suffix(".py").is_file()
                    else base
                )


@functools.cache
def edges() -> dict[str, set[str]]:
    """Part → the parts it imports."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        here = part_of(path.relative_to(ROOT).parts)
        found.setdefault(here, set()).update(part_of(target) for target in imported(path))
    return {here: there - {here} for here, there in found.items()}


@pytest.mark.parametrize("here", sorted(edges()))
def test_a_room_imports_only_what_is_below_it(here: str) -> None:
    assert here in {*BASE, *ROOMS, *BESIDE, *TOP}, (
        f"'{here}' is new: a room, or a module of the base?"
    )
    assert edges()[here] <= may_import(here)


def test_nothing_but_the_command_line_imports_studies() -> None:
    assert [here for here, there in edges().items() if "studies" in there] == ["cli"]


def test_only_the_plots_import_matplotlib() -> None:
    found = {
        path.parent.relative_to(ROOT).as_posix() for path in FILES if "matplotlib" in packages(path)
    }
    assert found == {"views/plots"}


def packages(path: Path) -> set[str]:
    """The top-level packages that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def test_no_two_modules_share_a_stem() -> None:
    stems = Counter(path.stem for path in FILES if path.stem not in ("__init__", "__main__"))
    assert [stem for stem, count in stems.items() if count > 1] == []


def test_there_are_parts_and_imports_to_look_at() -> None:
    found = edges()
    assert {
        "core",
        "layers",
        "models",
        "data",
        "decoding",
        "training",
        "tasks",
        "views",
        "cli",
        "api",
    } <= set(found)
    assert found["models"] == {"core", "errors", "layers", "registry", "settings"}
    assert "studies" in found["cli"], "imports inside functions are seen"


def test_no_parts_import_each_other_in_a_circle() -> None:
    left = edges()
    while left:
        free = {here for here, there in left.items() if not there & set(left)}
        assert free, f"a circle among {sorted(left)}"
        left = {here: there for here, there in left.items() if here not in free}


def test_data_and_training_take_little_from_the_core() -> None:
    """The costs that layers leave, which join the loss; what a capture of a CUDA graph needs."""
    for path in FILES:
        if part_of(path.relative_to(ROOT).parts) in ("data", "training"):
            taken = {target for target in imported(path) if target[:1] == ("core",)}
            assert taken <= {("core", "auxiliary_losses"), ("core", "cuda_graphs")}, path


def test_the_core_needs_torch_and_numpy_alone() -> None:
    for path in FILES:
        if part_of(path.relative_to(ROOT).parts) in ("core", "layers", "models"):
            for node in ast.walk(TREES[path]):
                names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
                names += (
                    [node.module or ""]
                    if isinstance(node, ast.ImportFrom) and not node.level
                    else []
                )
                outside = {name.split(".")[0] for name in names} - {"torch", "numpy"}
                assert not outside & {
                    "tokenizers",
                    "safetensors",
                    "sacrebleu",
                    "yaml",
                    "typer",
                    "rich",
                    "PIL",
                    "matplotlib",
                }, path


BUDGET = tomllib.loads((Path(__file__).parent / "budget.toml").read_text(encoding="utf-8"))


def test_the_package_keeps_its_budget_of_lines() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert sum(lines.values()) <= BUDGET["package"], (
        f"{sum(lines.values()):,} lines; take some out before adding more"
    )
    for name, most in BUDGET["parts"].items():
        found = sum(
            count for path, count in lines.items() if part_of(path.relative_to(ROOT).parts) == name
        )
        assert found <= most, f"{name} has {found:,} lines"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_keep_their_budget(path: Path) -> None:
    most = BUDGET["exceptions"].get(str(path.relative_to(ROOT)), {"lines": BUDGET["file"]})["lines"]
    assert len(path.read_text(encoding="utf-8").splitlines()) <= most
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = sum(len(ast.unparse(one).splitlines()) for one in body)
            assert lines < BUDGET["function"], f"{node.name} is too long"


def test_every_exception_of_the_budget_is_needed_and_explained() -> None:
    for name, rule in BUDGET["exceptions"].items():
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) > BUDGET["file"], (
            f"{name} needs no exception any more"
        )
        assert len(rule["why"]) > 20


FORBIDDEN_MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
}
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "compile"}
FORBIDDEN_ATTRIBUTES = {
    ("torch", "load"),
    ("torch", "save"),
    ("yaml", "load"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("os", "system"),
}


def forbidden(tree: ast.AST) -> Iterator[str]:
    """Everything by which a file could run what a stranger wrote."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                name.name for name in node.names if name.name.split(".")[0] in FORBIDDEN_MODULES
            )
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
                yield node.module or ""
            yield from (
                name.name for name in node.names if (node.module, name.name) in FORBIDDEN_ATTRIBUTES
            )
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in FORBIDDEN_CALLS
        ):
            yield node.func.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and (node.value.id, node.attr) in FORBIDDEN_ATTRIBUTES
        ):
            yield f"{node.value.id}.{node.attr}"
        elif (
            isinstance(node, ast.keyword)
            and node.arg == "shell"
            and isinstance(node.value, ast.Constant)
            and node.value.value
        ):
            yield "shell=True"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_runs_what_a_file_from_a_stranger_says(path: Path) -> None:
    # an unpickler that admits a few names, and no other use of pickle
    if path.relative_to(ROOT) == Path("training/sharded.py"):
        assert list(forbidden(TREES[path])) == ["pickle"]
        used = [
            node
            for node in ast.walk(TREES[path])
            if isinstance(node, ast.Name) and node.id == "pickle"
        ]
        [reader] = [
            node
            for node in TREES[path].body
            if isinstance(node, ast.ClassDef) and node.name == "MetadataReader"
        ]
        assert [
            base.value
            for base in reader.bases
            if isinstance(base, ast.Attribute) and base.attr == "Unpickler"
        ] == used
        assert [node.name for node in reader.body if isinstance(node, ast.FunctionDef)] == [
            "find_class"
        ]
        return
    # published as a pickle: PyTorch's reader of tensors alone
    if path.relative_to(ROOT) == Path("data/pretrained.py"):
        assert list(forbidden(TREES[path])) == ["torch.load"]
        [call] = [
            node
            for node in ast.walk(TREES[path])
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
        ]
        assert "weights_only=True" in [ast.unparse(keyword) for keyword in call.keywords]
        return
    assert list(forbidden(TREES[path])) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "exec(x)",
        "torch.load(f)",
        "yaml.load(f)",
        "from torch import load",
    ],
)
def test_the_search_for_forbidden_things_finds_them(line: str) -> None:
    assert list(forbidden(ast.parse(line)))
    assert not list(forbidden(ast.parse("model.eval(); yaml.safe_load(f); re.compile(x)")))


def test_every_file_and_public_function_says_what_it_is() -> None:
    silent = []
    for path, tree in TREES.items():
        if (
            any(not isinstance(node, ast.Expr) for node in tree.body)
            and ast.get_docstring(tree) is None
        ):
            silent.append(str(path.relative_to(ROOT)))
        silent += [
            f"{path.relative_to(ROOT)}: class {node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and not node.name.startswith("_")
            and ast.get_docstring(node) is None
        ]
    assert silent == []
