"""The command `info`."""

from ..errors import SaccadeError
from ..system.run_summary import bytes_in, summarize
from .common_options import Json, Model
from .shared import load, print_json, size_of, write
from .train import usage


def info(model: Model, json_: Json = False) -> None:
    """Describe a run or a model: task, size, data, metrics, use.

    Examples:
        saccade info runs/mine
        saccade info runs/mine --json
    """
    from ..system import run_report
    from ..training.logs import format_metric

    run = model.absolute().parent if model.name in ("best", "last") else model
    read = run_report.read_run(run) if (run / "recipe.json").is_file() else None
    facts: dict[str, object] = {}
    if read is not None:
        found = summarize(run)
        facts = {"task": found.task, "family": found.family, "updates": found.progress}
    try:
        system = load(model, "cpu")
        facts |= system.facts()
        recipe = system.recipe
    except SaccadeError:
        if read is None or read.best:
            raise
        recipe = read.recipe  # nothing was evaluated yet, so there is no model to load
    data = {name: getattr(recipe.data, name) for name in ("train", "dev", "test")}
    facts |= {f"data.{name}": value for name, value in data.items() if value}
    metrics = read.best if read is not None else {}
    size, use = bytes_in(model), usage(recipe, model).partition(": ")[2]
    if json_:
        print_json({**facts, "metrics": metrics, "bytes": size, "use": use})
        return
    rows = {
        **facts,
        **{name.replace("_", " "): format_metric(name, one) for name, one in metrics.items()},
    }
    rows |= {"size": size_of(size), "use": use}
    width = max(map(len, rows)) + 2
    for name, value in rows.items():
        write(f"{name:<{width}}{value}")
