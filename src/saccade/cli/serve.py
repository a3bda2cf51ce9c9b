"""The command serve."""

import contextlib
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Device, Options, Precision, flag, option, takes
from .completion import run_folders
from .shared import note, print_json

MODELS = "Model or run folders; NAME=FOLDER names one, and a name such as en-fr its languages."
KEYS = "A file with keys, one per line, of which every request must send one."
QUEUE = "Let so many texts wait; more are refused with 429 at once."


SETTINGS: Options = {
    "host": option(
        str, "Listen at this address; others than this machine's need a key.", default="127.0.0.1"
    ),
    "port": option(int, "Listen at this port; 0 takes a free one.", default=8080, min=0, max=65535),
    "workers": option(
        int,
        "Run so many processes, each with its own copy of the models.",
        default=1,
        min=1,
        max=256,
    ),
    "open": option(bool, "Let anybody in without a key, from other machines too.", "--open"),
    "reload": option(bool, "Load a model again when its folder changes.", "--reload"),
    "device": (Device, "auto"),
    "precision": (Precision, "float32"),
}
LIMITS: Options = {
    "queue": option(int, QUEUE, default=256, min=1, max=100_000),
    "seconds": option(float, "Limit the time of one request.", default=30.0, min=0.1, max=3600),
    "most_tokens": option(int, "Limit the tokens of one output.", default=1024, min=1, max=100_000),
    "longest_text": option(
        int, "Limit the characters of one text.", default=5000, min=1, max=50_000
    ),
}


@takes(*SETTINGS, *LIMITS, of=SETTINGS | LIMITS)
def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL…", help=MODELS, autocompletion=run_folders)
    ],
    key_file: Annotated[Path | None, typer.Option(help=KEYS)] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Allow a further name of this service; repeatable."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="Allow pages of this origin (https://example.org); repeatable."),
    ] = None,
    json_: Annotated[
        bool, flag("--json", "Print the address as one JSON object on stdout.")
    ] = False,
    **given: Any,
) -> None:
    """Serve models over HTTP.

    Translates, tags, classifies, generates, captions and answers; requests are batched across clients. Ctrl-C ends it. Clients of
    LibreTranslate and of OpenAI's completions work too. /openapi.json describes all routes.

    Examples:
        saccade serve runs/demo/bahdanau
        saccade serve en-fr=runs/mine runs/shakespeare --port 9000 --reload
        saccade serve runs/mine --host 0.0.0.0 --key-file keys.txt --workers 2
    """
    names_of = {"most_tokens": "tokens", "longest_text": "text"}
    limits = {names_of.get(name, name): given.pop(name) for name in LIMITS}
    known = {"hosts": tuple(names or ()), "origins": tuple(cors or ())}
    with contextlib.ExitStack() as stack:
        if (
            given["workers"] > 1
        ):  # where they count together; read when prometheus_client is imported
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="saccade-"))
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        raise typer.Exit(run(models, limits, key_file, json_, **given, **known))


def run(
    models: list[str], limits: dict[str, Any], key_file: Path | None, as_json: bool, **given: Any
) -> int:
    """Serves until a signal comes; the exit code."""
    if not hasattr(os, "fork"):
        raise SaccadeError(
            "serve does not run on this system; use Linux or macOS, on Windows in WSL or in a container",
            code="system-not-supported",
        )
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise SaccadeError(
            f"serve needs the package {error.name}; install it with: pip install 'saccade-attention[serve]'",
            code="package-missing",
        ) from None
    from ..serving.served_models import name_models
    from ..serving.service_settings import Limits, Settings, read_keys

    keys = () if key_file is None else read_keys(key_file)
    settings = Settings(name_models(models), keys=keys, limits=Limits(**limits), **given)
    from ..serving.server import serve as serve_models

    def say(where: str) -> None:
        if as_json:
            print_json({"url": where, "models": list(settings.models)})
            sys.stdout.flush()
        else:
            note(f"serving {', '.join(settings.models)} at {where}")

    logging.basicConfig(format="saccade: %(message)s", level=logging.WARNING)
    logging.getLogger("saccade.serving").setLevel(logging.INFO)
    if settings.open and not keys:
        note("note: anybody who reaches this address may use the models; --key-file limits that")
    return serve_models(settings, say)
