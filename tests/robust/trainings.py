"""A tiny training of every task and objective, made from the catalogue, and of what else is carried from update to update.

Run as a program, it trains one of them in processes that it forks, and kills these at random moments until the counted kills are done;
what was left and what it became are printed as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from saccade import api, tasks
from saccade.files import broken, settle
from saccade.tasks import objectives
from saccade.training.checkpoints import RunFolder
from saccade.training.loop import Watcher
from saccade.training.signals import Stopped

UPDATES = 24
SIZES = {
    "phrasebook": {"train": 40, "dev": 4, "test": 4},
    "dates": {"train": 40, "dev": 4, "test": 4},
    "reviews": {"train": 40, "dev": 4, "test": 4},
    "shapes": {"train": 16, "dev": 2, "test": 2, "size": 32},
    "graphs": {"train": 40, "dev": 4, "test": 4},
}
SMALL = {"dim": 8, "hidden": 8, "depth": 1, "heads": 2, "dropout": 0.2}
CNN = {"family": "cnn", "dim": 4, "depths": [1, 1], "stem_stride": 2}
# the model of a task by the kind of model that it needs
MODELS: dict[str, dict[str, Any]] = {
    "Seq2Seq": {"family": "transformer", **SMALL},
    "Encoder": {"family": "transformer-encoder", **SMALL},
    "AttendingEncoder": {"family": "transformer-encoder", **SMALL},
    "CausalLM": {"family": "transformer-decoder", **SMALL},
    "ImageEncoder": CNN,
}
# what a task needs besides
MORE: dict[str, dict[str, Any]] = {
    "captioning": {
        "model": {"family": "bahdanau", "dim": 8, "hidden": 8, "dropout": 0.2, "image_encoder": CNN}
    },
    "questions": {"model": {"family": "transformer-encoder", **SMALL, "image_encoder": CNN}},
    "open-questions": {
        "model": {"family": "bahdanau", "dim": 8, "hidden": 8, "dropout": 0.2, "image_encoder": CNN}
    },
    "text-autoencoding": {
        "model": {"family": "fixed-context", "dim": 8, "hidden": 8, "dropout": 0.2},
        "autoencoding": {"latent": 6, "drop": 0.1},
    },
    "node-classification": {
        "model": {
            "family": "transformer-encoder",
            **SMALL,
            "mixer": "graph-attention",
            "position": "edges",
            "position_embedding": "none",
        }
    },
    "image-classification": {"data": {"augment": {"flip": True, "crop": 2, "mixup": 0.2}}},
    "autoencoding": {"autoencoding": {"latent": 6, "width": 2, "noise": 0.1}},
}
STREAM = {"task": "language-modelling", "vocabulary": {"kind": "words"}}
# what happens to a training: the settings of the training, and the signal by which it ends before its time
HAPPENINGS: dict[str, tuple[dict[str, Any], int]] = {
    "kill": ({"checkpoint_every": 5}, signal.SIGKILL),
    "terminate": ({"checkpoint_every": 1000}, signal.SIGTERM),
    "epochs": ({"checkpoint_every": 1}, signal.SIGKILL),
    "accumulate": ({"checkpoint_every": 3, "accumulate": 2}, signal.SIGKILL),
    "average": ({"checkpoint_every": 5, "average": 2}, signal.SIGKILL),
    "patience": (
        {"checkpoint_every": 3, "patience": 1, "learning_rate": 0.3, "evaluate_every": 3},
        signal.SIGKILL,
    ),
}


def cases() -> dict[str, dict[str, Any]]:
    """Name → recipe: every task of the catalogue, every objective of language models, and training settings that draw or carry."""
    found: dict[str, dict[str, Any]] = {}
    for entry in tasks.table:
        if entry.name == "language-modelling":
            for objective in objectives.table:
                language = {"objective": objective.name, "block": 8}
                model = MODELS[objective.make.needs.__name__]
                found[f"language-{objective.name}"] = recipe(
                    "phrasebook", {**STREAM, "language": language, "model": model}
                )
            continue
        given = MORE.get(entry.name, {})
        found[entry.name] = recipe(
            entry.make.data.generated[0],
            {"task": entry.name, "model": MODELS.get(entry.make.needs.__name__, {}), **given},
        )
    carried = {**STREAM, "language": {"carry": True, "block": 8}}
    recurrent = {"family": "rnn-decoder", "dim": 8, "hidden": 8, "depth": 2, "dropout": 0.2}
    found["language-carry"] = recipe("phrasebook", {**carried, "model": recurrent})
    memory = {"family": "transformer-xl", **SMALL, "memory": 11}
    found["language-carry-xl"] = recipe("phrasebook", {**carried, "model": memory})
    rewarded = {"task": "translation", "model": {"family": "bahdanau", "dim": 8, "hidden": 8}}
    found["translation-reward"] = recipe(
        "phrasebook", {**rewarded, "training": {"reward": "gleu", "reward_samples": 2}}
    )
    found["translation-agreement"] = recipe(
        "phrasebook", {**rewarded, "training": {"agreement": 1.0}}
    )
    hard = {"family": "bahdanau", "dim": 8, "hidden": 8, "normalize": "hard"}
    found["translation-hard"] = recipe("phrasebook", {"task": "translation", "model": hard})
    return found


def recipe(corpus: str, given: dict[str, Any]) -> dict[str, Any]:
    wordless = given["task"] in ("image-classification", "autoencoding")
    training = {
        "updates": UPDATES,
        "tokens": 4 if wordless else 100,
        "learning_rate": 0.02,
        "warmup": 4,
        "log_every": 2,
    }
    if given["task"] in ("captioning", "questions"):
        training["tokens"] = 150
    return {
        **({} if wordless else {"vocabulary": {"kind": "words"}}),
        "device": "cpu",
        "seed": 3,
        **given,
        "data": {
            "train": f"{corpus}:train",
            "dev": f"{corpus}:dev",
            "options": SIZES[corpus],
            **given.get("data", {}),
        },
        "training": {**training, "evaluate_every": 6, "threads": 1, **given.get("training", {})},
    }


def changed(made: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {**made, "training": {**made["training"], **settings}}


def left(run: Path) -> dict[str, Any]:
    """All that a finished training leaves: tensors, how far it came, the rows of its log; without seconds and what they change."""
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*.safetensors")):
        found |= {
            f"{path.relative_to(run)}:{name}": tensor for name, tensor in load_file(path).items()
        }
    progress = json.loads((run / "last" / "training.json").read_text())
    found["progress"] = {
        name: value for name, value in progress.items() if name not in ("seconds", "costs")
    }
    rows = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    found["log"] = [
        {name: one for name, one in row.items() if "second" not in name} for row in rows
    ]
    found["files"] = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names under which two trainings differ in a bit."""
    equal: Callable[[Any, Any], bool] = lambda a, b: (
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    )
    return [
        name
        for name in sorted({*one, *other})
        if name not in one or name not in other or not equal(one[name], other[name])
    ]


def start(made: dict[str, Any], run: Path) -> int:
    """A training in a process of its own; 3 is its code when a signal stopped it with a checkpoint."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        api.fit(made, run, resume=True, watcher=Watcher())
        code = 0
    except Stopped:
        code = 3
    finally:
        os._exit(code)


def hurry(reports: bool) -> None:
    """Leaves out what takes half a second in each process: measuring what an update costs and, on demand, reports. No machine dies here,
    so that files need not reach the disk."""
    from saccade.system import run_report
    from saccade.training import cost, loop

    def estimate(model: torch.nn.Module, loss: object, updates: int, *_: object) -> cost.Cost:
        return cost.Cost(
            sum(one.numel() for one in model.parameters()), 1e6, 1e-3, updates, slowest=1e-3
        )

    loop.measure = estimate
    os.fsync = lambda handle: None
    if not reports:
        run_report.finish = lambda *_, **__: None


def wait_for(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def unreadable(run: Path) -> list[str]:
    """What is wrong with the models that are there after a kill."""
    found = []
    for inner in ("last", "best"):
        settle(run / inner)
        if (run / inner).exists() and (wrong := broken(run / inner)):
            found.append(f"{inner}: {wrong}")
    return found


def attack(case: str, happening: str, kills: int, root: Path, seed: int = 0) -> dict[str, Any]:
    """One whole training, then others that are ended again and again until `kills` of them were; what failed, in words."""
    settings, number = HAPPENINGS[happening]
    made, chance = changed(cases()[case], settings), random.Random(f"{case} {happening} {seed}")
    # what is imported now need not be in every process
    api.fit(changed(made, {"updates": 1}), root / "warm", watcher=Watcher())
    began = time.monotonic()
    assert wait_for(start(made, root / "whole")) == 0
    length, whole = time.monotonic() - began, left(root / "whole")
    failed: list[str] = []
    done, runs, back = 0, 0, 0
    while done < kills:
        runs += 1
        run, code, reached = root / f"run-{runs}", -1, 0
        while code != 0:
            child = start(made, run)
            if done < kills:
                time.sleep(chance.uniform(0.0, 0.9 * length))
                os.kill(child, number)
            code = wait_for(child)
            if code not in (0, 3, -number):
                failed.append(f"{run.name}: a resumed training ended with {code}")
                break
            if code:
                done += 1
                failed += [f"{run.name}: {wrong}" for wrong in unreadable(run)]
                at = RunFolder(run, {}).progress()
                back += (at.update if at else 0) < reached
                reached = at.update if at else 0
        if code == 0 and (wrong := differences(whole, left(run))):
            failed.append(f"{run.name}: differs from the whole training in {', '.join(wrong[:5])}")
    failed += [f"{back} checkpoints went back"] * bool(back)
    return {
        "kills": done,
        "runs": runs,
        "failed": failed,
        "early": whole["progress"]["update"] < UPDATES,
        "seconds": length,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    hurry(reports=sys.argv[2] == "kill")
    print(json.dumps(attack(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))))
