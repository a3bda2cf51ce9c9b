"""Regenerates the result files of texts and pictures from data under `data/`: trains what a result needs, several trainings side by side,
and then judges them all by one `saccade compare`.

python benchmarks/text.py                      # says what there is
python benchmarks/text.py sst2 ud-ewt-upos --together 2 --seconds 3600 [KEY=VALUE …]

`data/` holds the sets that docs/results.md names. What is stopped by `--seconds` writes a checkpoint and continues the next time.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One result file: the recipes it compares, how many seeds of each, further options of `saccade compare` (peers are published
    results, with their sources), and a recipe whose model those called -pretrained, -hard or -reward start from."""

    recipes: list[str]
    seeds: int
    words: str = ""
    first: str = ""


# where published results are from
TRANKIT = "Trankit documentation, performance page, UD 2.5 from raw text"
AWD = "github.com/salesforce/awd-lstm-lm, README, WikiText-2 validation without fine-tuning"
NANO_GPT = "--peer 'nanoGPT:val_loss=1.4697@github.com/karpathy/nanoGPT, README'"

JOBS: dict[str, Job] = {
    "multi30k-en-de": Job(["multi30k-en-de"], 3, "--beam 5 --moses de"),
    "multi30k-en-fr": Job(["multi30k-en-fr"], 1, "--beam 5 --moses fr"),
    "multi30k-de-en": Job(
        ["multi30k-de-en", "multi30k-de-en-bahdanau", "multi30k-de-en-fixed-context"],
        1,
        "--beam 5 --moses en --lengths",
    ),
    "multi30k-seconds": Job(["multi30k-en-de-quick"], 3, "--beam 5 --moses de"),
    "gnmt-reward": Job(["phrasebook-gnmt", "phrasebook-gnmt-reward"], 3, first="phrasebook-gnmt"),
    "tatoeba-de-en": Job(["tatoeba-de-en"], 1, "--beam 5 --moses en"),
    "ud-ewt-upos": Job(
        ["ud-ewt-upos"],
        3,
        f"--peer 'Stanza:accuracy=95.40@{TRANKIT}' --peer 'UDPipe:accuracy=93.26@{TRANKIT}'",
    ),
    "ud-ewt-syntax": Job(["ud-ewt-syntax", "ud-ewt-plain"], 3),
    "sst2": Job(
        [
            "sst2-mean",
            "sst2-tf-idf",
            "sst2-static",
            "sst2-rnn",
            "sst2-transformer",
            "sst2-pretrained",
        ],
        3,
        "--peer 'CNN-random:accuracy=83.5@github.com/harvardnlp/sent-conv-torch, README, SST2 rand'",
        "wikitext-2-masked",
    ),
    "tinyshakespeare": Job(["tinyshakespeare", "tinyshakespeare-rotary"], 1, NANO_GPT),
    "tinyshakespeare-xl": Job(["tinyshakespeare-xl"], 1, NANO_GPT),
    "wikitext-2-permutation": Job(["wikitext-2-permutation"], 1),
    "shapes-questions": Job(["shapes-questions"], 3),
    "easy-vqa": Job(
        ["easy-vqa"],
        3,
        "--peer 'easy-VQA-keras-doubled-data:accuracy=99.5@github.com/vzhou842/easy-VQA-keras, README'",
    ),
    "wikitext-2": Job(["wikitext-2"], 1, f"--peer 'AWD-LSTM:perplexity=68.7@{AWD}'"),
}


@dataclass
class Step:
    """One command, with a name for its log; it waits for the steps `after` which it comes."""

    name: str
    command: str
    after: list[Step] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def ended(self) -> int | None:
        return None if self.process is None else self.process.poll()

    @property
    def ready(self) -> bool:
        return self.process is None and all(step.ended == 0 for step in self.after)

    @property
    def hopeless(self) -> bool:
        return any(step.ended not in (None, 0) or step.hopeless for step in self.after)

    def begin(self) -> None:
        """In a process of its own; its words go to runs/NAME.log."""
        with (Path("runs") / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                shlex.split(f"{sys.executable} -m saccade {self.command}"),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        print(f"{self.name}: begun, see runs/{self.name}.log", flush=True)

    def stop(self) -> None:
        if self.process is not None and self.ended is None:
            subprocess.run(["pkill", "-INT", "-s", str(self.process.pid)], check=False)


def steps(name: str, job: Job, settings: str) -> Iterator[Step]:
    """The trainings of a result, and the comparison after them all, which finds them done."""
    trainings: dict[tuple[str, int], Step] = {}
    for recipe in dict.fromkeys([*filter(None, [job.first]), *job.recipes]):
        follows = job.first and recipe.endswith(("-pretrained", "-hard", "-reward"))
        for seed in range(job.seeds):
            # as `compare` has it
            start = f"start_from=runs/{name}/{job.first}-{seed}" if follows else ""
            words = f"train {recipe} --out runs/{name}/{recipe}-{seed} --resume seed={seed} {start} {settings}"
            trainings[recipe, seed] = Step(
                f"{recipe}-{seed}", words, [trainings[job.first, seed]] if follows else []
            )
    yield from trainings.values()
    words = f"{' '.join(job.recipes)} --seeds {job.seeds} {job.words} --out runs/{name} --result {name} {settings}"
    yield Step(name, f"compare {words}", [*trainings.values()])


def main(jobs: dict[str, Job], about: str | None) -> int:
    """Makes the results that the command line names, or says what there is."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="result files to make")
    parser.add_argument("--together", type=int, default=1, help="trainings at a time")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="stop all after this time, with checkpoints"
    )
    chosen, settings = parser.parse_known_args()
    names = [name for name in chosen.names if "=" not in name]
    settings += [name for name in chosen.names if "=" in name]
    wrong = [name for name in names if name not in jobs]
    if chosen.together < 1:
        parser.error(f"--together is {chosen.together}; at least one training must run")
    if wrong:
        print(f"no result named '{wrong[0]}'; there are:", file=sys.stderr)
    if wrong or not names:
        print(
            "\n".join(
                f"{name:<18} saccade compare {' '.join(job.recipes)} {job.words}"
                for name, job in jobs.items()
            )
        )
        return 2 if wrong else 0
    Path("runs").mkdir(exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1" if chosen.together > 1 else str(os.cpu_count()))
    until, every = (
        time.monotonic() + chosen.seconds,
        [step for name in names for step in steps(name, jobs[name], " ".join(settings))],
    )
    reported: set[str] = set()
    while time.monotonic() < until:
        for step in every:
            if step.ended is not None and step.name not in reported:
                print(f"{step.name}: ended with {step.ended}", flush=True)
                reported.add(step.name)
        running = [step for step in every if step.process is not None and step.ended is None]
        waiting = [step for step in every if step.process is None and not step.hopeless]
        if not running and not waiting:
            break
        for step in [step for step in waiting if step.ready][: chosen.together - len(running)]:
            step.begin()
        time.sleep(0.5)
    running = [step for step in every if step.process is not None and step.ended is None]
    for step in running:
        step.stop()
        print(f"{step.name}: stopped, the next call continues it", flush=True)
    for step in running:
        assert step.process is not None
        try:
            step.process.wait(30)
        except subprocess.TimeoutExpired:
            step.process.kill()
    return 0 if all(step.ended == 0 for step in every) else 1


if __name__ == "__main__":
    sys.exit(main(JOBS, __doc__))
