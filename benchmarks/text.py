"""Regenerates the result files of text: each is one `saccade compare` on real data under `data/`, several of them side by side.

python benchmarks/text.py                      # says what there is
python benchmarks/text.py sst2 ud-ewt-upos --together 2 --seconds 3600 [KEY=VALUE …]

`data/` holds the sets that docs/results.md names. A job that is stopped by `--seconds` writes a checkpoint and goes on the next time.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

# result file → what `saccade compare` is told; peers are who stands where, as the sets' own pages quote them
JOBS: dict[str, str] = {
    "multi30k-en-de": "multi30k-en-de --seeds 3 --beam 5 --moses de --peer Transformer-Tiny:bleu_tok_lc=41.02",
    "multi30k-en-fr": "multi30k-en-fr --seeds 3 --beam 5 --moses fr --peer Transformer-Tiny:bleu_tok_lc=61.80",
    "multi30k-de-en": "multi30k-de-en multi30k-de-en-bahdanau multi30k-de-en-fixed-context --seeds 1 --beam 5 --moses en --lengths "
    "--peer pytorch-seq2seq-attention:bleu=28.11 --peer pytorch-seq2seq-transformer:bleu=36.52",
    "tatoeba-de-en": "tatoeba-de-en --seeds 1 --beam 5 --moses en",
    "ud-ewt-upos": "ud-ewt-upos --seeds 3 --peer Stanza:accuracy=95.40 --peer UDPipe:accuracy=93.26",
    "sst2": "sst2-mean sst2-tf-idf sst2-static sst2-rnn sst2-transformer sst2-pretrained --seeds 3 --peer CNN-random:accuracy=83.5",
    "tinyshakespeare": "tinyshakespeare tinyshakespeare-rotary --seeds 1 --peer nanoGPT:val_loss=1.4697",
    "wikitext-2": "wikitext-2 --seeds 1 --peer AWD-LSTM:perplexity=68.7",
}
BEFORE = {"sst2": "train wikitext-2-masked --out runs/wikitext-2-masked --resume"}  # what must be there first


def begin(name: str, settings: list[str]) -> subprocess.Popen[bytes]:
    """One job in a process of its own; its words go to runs/NAME.log."""
    log = Path("runs") / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    command = f"{sys.executable} -m saccade compare {JOBS[name]} --out runs/{name} --result {name} {' '.join(settings)}"
    if name in BEFORE:
        command = f"{sys.executable} -m saccade {BEFORE[name]} && {command}"
    with log.open("ab") as file:
        return subprocess.Popen(["bash", "-c", command], stdout=file, stderr=file, start_new_session=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="result files to make")
    parser.add_argument("--together", type=int, default=1, help="jobs at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop all jobs after this time, with checkpoints")
    chosen, settings = parser.parse_known_args()
    names = [name for name in chosen.names if "=" not in name]
    settings += [name for name in chosen.names if "=" in name]
    wrong = [name for name in names if name not in JOBS]
    if wrong or not names:
        print("\n".join(f"{name:<18} saccade compare {words}" for name, words in JOBS.items()))
        return 2 if wrong else 0
    until, waiting, running = time.monotonic() + chosen.seconds, list(names), dict[str, subprocess.Popen[bytes]]()
    while (waiting or running) and time.monotonic() < until:
        while waiting and len(running) < chosen.together:
            running[waiting[0]] = begin(waiting[0], settings)
            print(f"{waiting.pop(0)}: begun, see runs/*.log", flush=True)
        time.sleep(1)
        for name, job in list(running.items()):
            if job.poll() is not None:
                print(f"{name}: ended with {running.pop(name).returncode}", flush=True)
    for name, job in running.items():
        subprocess.run(["pkill", "-INT", "-s", str(job.pid)], check=False)
        print(f"{name}: stopped, the next call goes on with it")
    for job in running.values():
        try:
            job.wait(30)
        except subprocess.TimeoutExpired:
            job.send_signal(signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
