"""The page of claims, docs/claims.md, from the result files `claim-*.json` that `saccade table NAME --result claim-NAME` wrote."""

from __future__ import annotations

from pathlib import Path

from saccade.experiments.results import Table
from saccade.studies.tables import STUDIES
from saccade.studies.tables.lecture_claims import Claim

# of a machine that others used, or said by another column
NOISY = ("updates_per_second", "operations_per_update", "seconds", "seconds_masked")
HEAD = """# Claims, measured

What the lectures claim, each by one command, with the mean ± the standard deviation over seeds. Made by `python benchmarks/tables.py` from
the files that the commands wrote; `saccade table NAME` makes a smaller one in about a minute, and [tables](tables.md) says how they are run,
continued and put side by side. All were measured on one core of a CPU that others used too: losses, scores, parameters and operations
do not depend on that; seconds do, and are in the result files alone, but for the table that is about them."""
# claim, as it is said, and what the numbers say to it
FINDINGS: dict[str, tuple[str, str]] = {
    "heads": (
        "Several heads at equal parameters",
        "Parameters and operations are the same for every number of heads, as claimed. That several heads are *better* than one does not show "
        "here: from 1 to 8 heads loss and BLEU agree within their ±. What shows is the other end: 16 heads of width 4 are worse.",
    ),
    "barriers": (
        "Barriers and solutions: what each part is for",
        "Without residuals nothing is learned; without positions the order of the source is unknown and BLEU is lower; without the MLP the same "
        "updates reach less. Without the causal mask the loss is as low as any and the translations are worthless: the decoder has learned to "
        "copy the next word, which is not there in use. The claim that a norm is needed does *not* hold for two blocks: without norms this model "
        "learns faster (eight blocks are in the table of norms).",
    ),
    "scores": (
        "Scores of attention and their width",
        "Additive scores gain with their width, as a multiplicative score through two learned projections (reduced-rank) loses with it: wide "
        "products without a scale are large at first, and a softmax of such has little gradient: the reason why dot products are divided by √D. That "
        "additive scores are better than multiplicative ones holds for wide ones; the best here is the narrowest multiplicative score, within "
        "the ± of two seeds. `dot` has a learned projection too, since states and memory differ in width: it is `bilinear` with another beginning.",
    ),
    "norms": (
        "Layer norm, batch norm, none",
        "With two blocks all norms, before or after each part, learn about equally fast, and none at all fastest: there the claim that a norm is "
        "needed does not hold. With eight blocks it does: without a norm every training ended with a loss that is not a number within some twenty "
        "updates (the empty cells), and a layer norm after each part learns nothing in so few updates, while one before each part does. That "
        "layer norm is better than batch norm does not show: on these short sentences of much the same length batch norm learns fastest of all "
        "norms, though it sees later words in training.",
    ),
    "hard": (
        "Hard attention is cheaper, and harder to learn",
        "Harder to learn: yes. After the same updates the loss of hard attention is higher, one of three seeds reaches the loss that soft "
        "attention reaches in 165 updates, and where nothing is read softly it hardly learns to align. Cheaper: not in training, where an update "
        "has the same operations; in use the scores of all positions are computed in both, and only what follows is less work (`hard.json`). "
        "Sparse attention learns as soft attention does.",
    ),
    "lstm": (
        "An LSTM is still useful where little is available",
        "At 60,000 parameters it holds: with fewer operations the LSTM has the lower loss and the higher BLEU after equal updates, and the lower "
        "loss after equal seconds. At 240,000 it does not hold any more for equal updates: the losses are equal, and the Transformer's BLEU is "
        "higher. The LSTM's one sentence takes fewer milliseconds in the mean, but by less than the ± of a shared machine; seconds of this "
        "table say no more than that.",
    ),
    "shuffle": (
        "Attention reads an unordered set",
        "With a shuffled memory all translations stay the same, and log p differs by rounding alone: for Bahdanau, Luong, ConvS2S and the "
        "Transformer. Not so where the decoder looks by position: Luong's local window notices. The order of the *source* matters to every reader "
        "that knows it: recurrences, convolutions, and a Transformer with positions; without positions a Transformer cannot know it, and "
        "translates every order of the words alike.",
    ),
    "entailment": (
        "Pretraining helps pairs of sentences",
        "A little: with 500 labels and with 4,000 the pretrained Transformer is two points of accuracy above the one from scratch, about the ± of "
        "two seeds, so that this shows no more than a direction. An LSTM from scratch is as good or better. "
        "No model has learned the logic in so few updates (a guess gives 33); the masked model read no more texts than were labeled.",
    ),
    "tasks": (
        "Each task its own architecture; now all is Transformers",
        "One architecture does every task, which is the claim. That it is the better one at equal updates does not hold everywhere: the "
        "Transformer is ahead in translation, senses and language modelling, the LSTM in sentiment and entailment, and in tagging and captions "
        "they are equal. The Transformers have 1.0 to 1.7 times as many parameters here.",
    ),
}


def page(root: Path) -> str:
    """Every claim that has a result file: what is claimed, its table, what it shows and what it cannot show."""
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
        shows,
        f"*{study.honest}*",
    ]
