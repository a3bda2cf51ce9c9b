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
from .common_options import Device, Precision, flag
from .completion import run_folders
from .shared import note, print_json

MODELS = "Model or run folders; NAME=FOLDER names one, and a name such as en-fr its languages."
KEYS = "A file with keys, one per line, of which every request must send one."
QUEUE = "Texts that may wait; more are refused with 429 at once."


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL…", help=MODELS, autocompletion=run_folders)
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen at; others than this machine's need a key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)
    ] = 8080,
    workers: Annotated[
        int, typer.Option(help="Processes, each with its own copy of the models.", min=1, max=256)
    ] = 1,
    key_file: Annotated[Path | None, typer.Option(help=KEYS)] = None,
    open_: Annotated[
        bool, flag("--open", "Let anybody in without a key, from other machines too.")
    ] = False,
    names: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A further name of this service; repeatable."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="An origin whose pages may ask (https://example.org); repeatable."),
    ] = None,
    reload: Annotated[
        bool, flag("--reload", "Load a model again when its folder changes.")
    ] = False,
    queue: Annotated[int, typer.Option(help=QUEUE, min=1, max=100_000)] = 256,
    seconds: Annotated[
        float, typer.Option(help="The longest time of one request.", min=0.1, max=3600)
    ] = 30.0,
    most_tokens: Annotated[
        int, typer.Option(help="The most tokens of one output.", min=1, max=100_000)
    ] = 1024,
    longest_text: Annotated[
        int, typer.Option(help="The most characters of one text.", min=1, max=50_000)
    ] = 5000,
    device: Device = "auto",
    precision: Precision = "float32",
    json_: Annotated[
        bool, flag("--json", "Print the address as one JSON object on stdout.")
    ] = False,
) -> None:
    """Serve models over HTTP.

    Translates, tags, classifies, generates, captions and answers; requests are batched across clients. Ctrl-C ends it. Clients of
    LibreTranslate and of OpenAI's completions work too. /openapi.json describes all routes.

    Examples:
        saccade serve runs/demo/bahdanau
        saccade serve en-fr=runs/mine runs/shakespeare --port 9000 --reload
        saccade serve runs/mine --host 0.0.0.0 --key-file keys.txt --workers 2
    """
    limits = {"queue": queue, "seconds": seconds, "tokens": most_tokens, "text": longest_text}
    given = {
        "host": host,
        "port": port,
        "workers": workers,
        "open": open_,
        "reload": reload,
        "device": device,
        "precision": precision,
    }
    known = {"hosts": tuple(names or ()), "origins": tuple(cors or ())}
    with contextlib.ExitStack() as stack:
        if workers > 1:  # where they count together; read when prometheus_client is imported
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="saccade-"))
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        raise typer.Exit(run(models, limits, key_file, json_, **given, **known))


def run(
    models: list[str], limits: dict[str, Any], key_file: Path | None, as_json: bool, **given: Any
) -> int:
    """Serves until a signal comes; the exit code."""
    if not hasattr(os, "fork"):
        raise SaccadeError(
            "serve does not run on this system; use Linux or macOS, on Windows in WSL or in a container"
        )
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise SaccadeError(
            f"serve needs the package {error.name}; install it with: pip install 'saccade-attention[serve]'"
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
