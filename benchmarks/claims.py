"""Write docs/claims.md from the result files `claim-*.json` of `saccade table NAME --result claim-NAME`."""

from __future__ import annotations

import textwrap
from pathlib import Path

from saccade.experiments.results import Table
from saccade.studies.tables import STUDIES
from saccade.studies.tables.lecture_claims import Claim

# measured on a shared machine, or implied by another column
NOISY = ("updates_per_second", "operations_per_update", "seconds", "seconds_masked")
HEAD = """# Claims, measured

The claims of the lectures, each tested by one command, with mean ± standard deviation over seeds.
Made by `python benchmarks/tables.py` from the files that the commands wrote.
`saccade table NAME` makes a smaller one in about a minute; [tables](tables.md) describes options.
All were measured on one core of a shared CPU. Losses, scores, parameters and operations do not
depend on that. Seconds do, so they are only in the result files, except for the table about them."""
# the claim, and what the numbers show
FINDINGS: dict[str, tuple[str, str]] = {
    "heads": (
        "Several heads at equal parameters",
        "Parameters and operations are the same for every number of heads, as claimed. "
        "Several heads are not *better* than one here: from 1 to 8 heads loss and BLEU "
        "agree within their ±. 16 heads of width 4 are worse.",
    ),
    "barriers": (
        "Barriers and solutions: the role of each part",
        "Without residuals nothing is learned. Without positions the source order is "
        "unknown and BLEU is lower. Without the MLP the same updates reach less. Without "
        "the causal mask the loss is as low as any, but the translations are worthless: "
        "the decoder has learned to copy the next word, which is missing at inference. The "
        "claim that a norm is needed does *not* hold for two blocks: without norms this "
        "model learns faster (the table of norms has eight blocks).",
    ),
    "scores": (
        "Scores of attention and their width",
        "Additive scores gain with their width, and a multiplicative score through two "
        "learned projections (reduced-rank) loses with it. Wide products without a scale "
        "are large at first, and a softmax of large scores has little gradient: the reason "
        "why dot products are divided by √D. That additive scores are better than "
        "multiplicative ones holds for wide ones. The best here is the narrowest "
        "multiplicative score, within the ± of two seeds. `dot` has a learned projection "
        "too, since states and memory differ in width: it is `bilinear` with another "
        "initialization.",
    ),
    "norms": (
        "Layer norm, batch norm, none",
        "With two blocks all norms, before or after each part, learn about equally fast, "
        "and no norm at all fastest: there the claim that a norm is needed does not hold. "
        "With eight blocks it does. Without a norm every training ended with a NaN loss "
        "within some twenty updates (the empty cells). A layer norm after each part learns "
        "nothing in so few updates, while one before each part does. The claim that layer "
        "norm is better than batch norm is not supported: on these short sentences of "
        "similar length batch norm learns fastest of all norms, though it sees later words "
        "in training.",
    ),
    "hard": (
        "Hard attention is cheaper, and harder to learn",
        "Harder to learn: yes. After the same updates the loss of hard attention is "
        "higher, and one of three seeds reaches the loss that soft attention reaches in "
        "165 updates. Without soft rows it hardly learns to align. Cheaper: not in "
        "training, where an update has the same operations. At inference both compute the "
        "scores of all positions, and only the work after the scores is less "
        "(`hard.json`). Sparse attention learns as soft attention does.",
    ),
    "lstm": (
        "An LSTM is still useful with little data",
        "At 60,000 parameters it holds: with fewer operations the LSTM has the lower loss "
        "and the higher BLEU after equal updates, and the lower loss after equal seconds. "
        "At 240,000 it no longer holds for equal updates: the losses are equal, and the "
        "Transformer's BLEU is higher. The LSTM translates one sentence in fewer "
        "milliseconds on average, but by less than the ± of a shared machine; the seconds "
        "of this table show no more than that.",
    ),
    "shuffle": (
        "Attention reads an unordered set",
        "With a shuffled memory all translations stay the same, and log p differs only by "
        "rounding, for Bahdanau, Luong, ConvS2S and the Transformer. Luong's local window "
        "attends by position and notices. The order of the *source* matters to every "
        "reader that knows it: recurrences, convolutions, and a Transformer with "
        "positions. A Transformer without positions cannot know it and translates every "
        "order of the words alike.",
    ),
    "entailment": (
        "Pretraining helps pairs of sentences",
        "A little: with 500 labels and with 4,000 the pretrained Transformer is two points "
        "of accuracy above the one from scratch. This is about the ± of two seeds, so it "
        "shows only a direction. An LSTM from scratch is as good or better. No model has "
        "learned the logic in so few updates (a guess gives 33); the masked model read no "
        "more texts than were labeled.",
    ),
    "tasks": (
        "Each task its own architecture; now all is Transformers",
        "One architecture does every task, which is the claim. That it is better at equal "
        "updates does not hold everywhere: the Transformer is ahead in translation, senses "
        "and language modelling, the LSTM in sentiment and entailment, and in tagging and "
        "captions they are equal. The Transformers have 1.0 to 1.7 times as many "
        "parameters here.",
    ),
}


def wrapped(text: str) -> str:
    """A paragraph at 100 columns."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def page(root: Path) -> str:
    """Every claim with a result file: the claim, its table, findings and limits."""
    parts = [HEAD]
    for name, study in STUDIES.items():
        path = root / "benchmarks" / "results" / f"claim-{name}.json"
        if issubclass(study, Claim) and path.exists():
            parts += section(study, Table.read(path))
    return "\n\n".join(parts) + "\n"


def section(study: type[Claim], result: Table) -> list[str]:
    claim, shows = FINDINGS[study.name]
    titles = study("small", Path()).rows()
    result.rows = {title: result.rows.get(row, {}) for row, title in titles.items()}
    columns = [
        one
        for one in study.columns
        if one.key not in NOISY and any(row.get(one.key) for row in result.rows.values())
    ]
    seeds = f"{len(result.seeds)} seeds, {result.about['device']}"
    source = f"`{result.about['command']}` ({seeds}; [all numbers](../benchmarks/results/{result.name}.json))"
    return [
        f"## {claim}",
        source,
        result.to_markdown(columns),
        *map(wrapped, (shows, f"*{study.honest}*")),
    ]
