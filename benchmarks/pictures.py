"""Reproduce the results on pictures: train in parallel, then evaluate with one `saccade compare`.

python benchmarks/pictures.py                      # says what there is
python benchmarks/pictures.py shapes-captions flickr8k --together 2 --seconds 3600 [KEY=VALUE …]

`shapes` is generated; `data/` holds the other sets, which docs/results.md names. What is stopped by
`--seconds` writes a checkpoint and continues the next time.
"""

import sys

from text import Job, main

CAPTIONERS = ("soft", "hard", "fixed", "transformer")
# BLEU-1 to 4, from whole images
XU_2015 = {"soft": (67.0, 44.8, 29.9, 19.5), "hard": (67.0, 45.7, 31.4, 21.3)}
SOURCE = "Xu et al. 2015, Show Attend and Tell, Table 1"
PEERS = " ".join(
    f"--peer 'Xu-2015-{name}:bleu_{n}={bleu}@{SOURCE}'"
    for name, each in XU_2015.items()
    for n, bleu in enumerate(each, 1)
)

JOBS: dict[str, Job] = {
    "shapes-captions": Job(
        [f"shapes-captions-{name}" for name in CAPTIONERS], 1, first="shapes-captions-soft"
    ),
    "shapes-captions-cpu": Job(
        [f"shapes-captions-{name}" for name in CAPTIONERS[:2]], 1, first="shapes-captions-soft"
    ),
    "flickr8k": Job([f"flickr8k-{name}" for name in CAPTIONERS], 1, f"--beam 5 {PEERS}"),
}

if __name__ == "__main__":
    sys.exit(main(JOBS, __doc__))
