"""Converts the choices of each step on a device to search results."""

from typing import Any

from .searches import Beam, Sample, Search


def collect(search: Search, here: Any, slots: set[int]) -> None:
    """Writes the choices of some sentences to the search's results."""
    chosen = here.chosen[: here.reached].cpu().numpy()
    values = here.values[: here.reached].cpu().numpy()
    for slot in sorted(slots):
        sentence = here.sentences[slot]
        if isinstance(search, Beam):
            collect_beams(
                search, sentence, chosen[:, :, slot].tolist(), values[:, :, slot].tolist()
            )
            continue
        assert isinstance(search, Sample)
        tokens = chosen[: search.limits[sentence], 0, slot, 0].tolist()
        search.finished[sentence] = here.eos in tokens
        count = tokens.index(here.eos) + 1 if here.eos in tokens else len(tokens)
        search.outputs[sentence] = tokens[: count - search.finished[sentence]]
        search.log_probs[sentence] = sum(values[:count, 0, slot, 0].tolist())


def collect_beams(search: Beam, sentence: int, chosen: list[Any], values: list[Any]) -> None:
    """Like `Beam.advance`, step by step, from tokens, parents and scores."""

    def prefix(at: int, beam: int) -> list[int]:
        found = []
        while at >= 0:
            tokens, parents, _ = chosen[at]
            found.append(tokens[beam])
            at, beam = at - 1, parents[beam]
        return found[::-1]

    ended, nothing = search.ended[sentence], float("-inf")
    for at, (scores, ends) in enumerate(values):
        for rank, log_prob in enumerate(ends):
            if log_prob > nothing:
                search._take(sentence, prefix(at - 1, chosen[at][2][rank]), log_prob, True, 0)
        last = at + 1 >= search.limits[sentence]
        if last and not ended:
            for beam, score in enumerate(scores):
                if score > nothing:
                    search._take(sentence, prefix(at, beam), score, False, 0)
        if last or scores[0] == nothing or search.settled(sentence, scores[0], at + 1):
            return
