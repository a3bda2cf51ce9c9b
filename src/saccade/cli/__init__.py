"""The command `saccade`: thin over the API. Results go to stdout, progress and errors to stderr; a mistake ends with code 2."""

import inspect
import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import SaccadeError
from ..training.signals import Stopped
from ..version import __version__
from .common_options import Family, flag
from .shared import rank, visible

# in the order of a first visit; each command is what its module of the same name defines
GROUPS = {
    "Train": "demo train consolidate average runs",
    "Use": "predict translate generate tag classify caption answer reconstruct",
    "Look inside": "info show heads evaluate report",
    "Compare": "compare table bench reproduce",
    "Learn": "explain draw symmetry lecture",
    "Data": "list config check fetch",
    "Serve": "serve",
}


def entry(name: str) -> Any:
    """A command, or a family of them."""
    own = {"list": "list_"}.get(name, name)
    return getattr(import_module(f".{own}", __name__), own)


def name_of(command: Callable[..., object]) -> str:
    return command.__name__.rstrip("_").replace("_", "-")


ENTRIES = {name: entry(name) for names in GROUPS.values() for name in names.split()}
NAMES = list(ENTRIES)
# every command by all its words
COMMANDS = {
    f"{name} {name_of(part)}" if isinstance(one, Family) else name: part
    for name, one in ENTRIES.items()
    for part in (one.commands if isinstance(one, Family) else (one,))
}

# what people type by habit, and the commands that do it here
HABITS = {
    "evaluate": "eval val validate validation test score metrics",
    "train": "fit finetune fine-tune resume learn",
    "predict": "infer inference run use output",
    "show": "attention visualize view look inspect attend",
    "draw": "plot figure",
    "compare": "sweep tune grid search ablate",
    "bench": "benchmark speed profile",
    "reproduce": "repeat rerun verify",
    "table": "study paper",
    "fetch": "download get dataset datasets",
    "list": "ls recipes models",
    "serve": "server start api web",
    "info": "summary describe stats",
    "report": "page",
    "consolidate": "convert export merge",
    "runs remove": "rm remove delete",
}


# options of `explain` that are commands of its own now
EXPLAINED = {
    "--lookup": "lookup",
    "--shuffle": "order",
    "--norm": "norm NORM",
    "--tf-idf": "tf-idf FILE",
    "--similar": "similar WORD WORD",
    "--quiz": "quiz",
    "--answers": "quiz --answers",
    **dict.fromkeys(("--target", "--step", "--layer", "--head"), "step MODEL TEXT"),
}


class PlainFlags:
    """Mixed into typer's classes: the help of an option without a value, such as --help, shows no <bool>."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            one.metavar = " " if getattr(one, "is_flag", False) else one.metavar
        return found


class Command(PlainFlags, TyperCommand):
    """A command."""


class Group(PlainFlags, TyperGroup):
    """The command `saccade` itself."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=NAMES.index)


class FamilyGroup(PlainFlags, TyperGroup):
    """A command with sub-commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = (*self.commands, "--help")
        first = [] if args and args[0] in known else [next(iter(self.commands))]
        return super().parse_args(ctx, [*first, *args])


app = typer.Typer(
    cls=Group, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


def version(wanted: bool) -> None:
    if wanted:
        print(f"saccade {__version__}")
        raise typer.Exit


@app.callback()
def top(
    wanted: Annotated[
        bool, flag("--version", "Print the version.", callback=version, is_eager=True)
    ] = False,
) -> None:
    """Train, use, compare and look into sequence models with attention. Start with: saccade demo"""


def add(to: typer.Typer, command: Callable[..., object], group: str | None = None) -> None:
    """Adds a command with the examples of its docstring to a group of `saccade --help`."""
    description, _, examples = (inspect.getdoc(command) or "").partition("Examples:\n")
    epilog = "Examples:\n\n" + "\n\n".join(f"    {line.strip()}" for line in examples.splitlines())
    to.command(
        name_of(command), help=description, epilog=epilog, cls=Command, rich_help_panel=group
    )(command)


for group, names in GROUPS.items():
    for name in names.split():
        command = ENTRIES[name]
        if not isinstance(command, Family):
            add(app, command, group)
            continue
        family = typer.Typer(cls=FamilyGroup, rich_markup_mode="markdown")
        for one in command.commands:
            add(family, one)
        app.add_typer(family, name=name, help=command.help, rich_help_panel=group)


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Runs one command; returns its exit code: 0, 2 for a mistake, 130 or 143 for a signal."""
    open_streams()
    if sys.stdout is None:  # closed by whoever called
        return complain(
            "stdout is closed, so nothing can be printed; open it, or send it to /dev/null", 2
        )
    try:
        if words[:1] not in (["train"], ["compare"], ["demo"]) and rank() > 0:
            return 0  # torchrun starts several processes, and only training needs all of them
        code = int(app(words, standalone_mode=False, prog_name="saccade") or 0)
        # typer makes a code of Ctrl-C, and prints nothing
        return complain("stopped", code) if code == 130 else code
    except (SaccadeError, Stopped) as error:
        code = error.code if isinstance(error, Stopped) else 2
        text = getattr(error, "shell", str(error))
        if "WORLD_SIZE" in os.environ:  # of several processes under torchrun one prints
            from ..training.distributed import prints

            return complain(text, code) if prints(error) else code
        return complain(text, code)
    except (KeyboardInterrupt, EOFError):
        return complain("stopped", 130)
    except BrokenPipeError:  # the reader of a pipe has gone: there is nobody to print for
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a folder that may not be written to
        where = f"{error.filename}: " if error.filename else ""
        return complain(
            f"{where}{error.strerror or error}; check the path, its permissions and the free space",
            2,
        )
    except (
        Exception
    ) as error:  # typer's own errors carry a message and an exit code; anything else is a defect
        full = isinstance(error, RuntimeError) and re.search(
            "allocate memory|out of memory", str(error)
        )
        if full or isinstance(error, MemoryError):
            return complain("there is not enough memory for this; use smaller sizes", 2)
        if type(error).__name__ == "Abort":
            return complain("stopped", 130)
        if not hasattr(error, "exit_code"):
            raise
        return complain(explain_usage(error), int(error.exit_code) or 2)


def open_streams() -> None:
    """Gives stderr something to write to, where it is closed: a file that is opened later would get its number, and all errors. Where stdout
    cannot spell a character, its number is printed, as on stderr."""
    if sys.stderr is None:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != 2:
            os.dup2(null, 2)
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 – as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in (
        "strict",
        "surrogateescape",
    ):
        sys.stdout.reconfigure(errors="backslashreplace")


def explain_usage(error: Any) -> str:
    """Typer's own error as one sentence that ends in the help of the command; a setting that was written as an option is named."""
    path = getattr(getattr(error, "ctx", None), "command_path", "saccade")
    if (option := getattr(error, "option_name", "")) and path in (
        "saccade train",
        "saccade compare",
    ):
        from ..config.index import keys
        from ..errors import synonym

        name = option.strip("-").replace("-", "_")
        found = next((key for key, _ in keys() if key.rpartition(".")[2] == name), None) or synonym(
            name
        )
        if found:
            return f"no option {option}; settings are written without dashes: {found}=…; see {path} --help"
    if path == "saccade explain attention" and option in EXPLAINED:
        return f"no option {option}; write: saccade explain {EXPLAINED[option]}"
    if path == "saccade explain attention" and type(error).__name__ == "UsageError":
        return "one text was expected; quote it, or to explain a model: saccade explain step MODEL TEXT"
    message = (
        error.format_message() if hasattr(error, "format_message") else str(error)
    ) or "no command was given"
    wrong = re.match(r"No such command '(.*?)'", message)
    usual = next(
        (right for right, habits in HABITS.items() if wrong and wrong[1].lower() in habits.split()),
        "",
    )
    if wrong and usual:
        return f"No such command '{wrong[1]}'; did you mean {usual}? see {path} --help"
    text = " ".join(message.split()).rstrip(".")
    return f"{text} See {path} --help" if text.endswith("?") else f"{text}; see {path} --help"


def complain(text: str, code: int) -> int:
    with suppress(OSError):  # nobody reads it any more
        if sys.stderr is not None:
            print(f"saccade: {visible(text)}", file=sys.stderr, flush=True)
    return code
