"""The steps from weights to outputs: of one head, and of several that are mixed; and all numbers of an explanation together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import masks, normalizers, scores
from ...settings import spell
from ...views.worked_steps import How, Matrix, Step, Worked, few, numbered, product, quote, row
from .attention_steps import Writer, array, formula
from .worked_attention import AttentionNumbers, Parts


class Outputs(Writer):
    """Writes down whole explanations."""

    def one_head(self) -> None:
        found, first = self.found, quote(self.tokens[self.focus])
        self.inputs()
        self.projections([0])
        shown, name = self.scores_of(0, "")
        last = next(n for n, one in enumerate(shown) if one.name == "scores") + 1
        so_far = Worked("", [*self.steps, Step("", "", shown)])
        q = row(found.q[0, self.focus].tolist())
        rule = formula(scores.table, self.parts.score)
        if self.found.mechanism.score.dot and len(shown[:last]) == 1:
            rule = "their dot product: multiply number by number and add. The more alike they point, the greater it is"
        text = f"The score of a query and a key is {rule}. The query of {first} is {q}; {self.each_score(shown, so_far)}."
        masked = [one for one in shown if one.name.startswith("mask")]
        divided = [one for one in shown if one.name.startswith("scores /")]
        plain = [one for one in shown if not one.name.startswith(("mask", "scores /"))]
        self.add("Scores: each query with all keys", text, *plain)
        logits = found.scores[0]
        if found.allowed is not None:
            about = (self.divide_text() if divided else "") + self.mask_text()
            self.add("Mask: who may look at whom", about, *divided, *masked)
            divided = []
            logits = logits.masked_fill(~found.allowed[0], float("-inf"))
        soft = type(found.mechanism.normalize) is normalizers.Softmax
        title = "Softmax: weights" if soft else "From scores to weights"
        own = self.parameters(found.mechanism.normalize, "normalizer", 0, "").values()
        weights = self.weights_of(0, "", name)
        self.add(title, self.weight_text(found.weights[0], logits), *own, *divided, weights)
        self.sums(weights)

    def sums(self, weights: Matrix) -> None:
        """From the weights of one head to its outputs."""
        found, first = self.found, quote(self.tokens[self.focus])
        mine = found.weights[0, self.focus]
        weighted = mine.unsqueeze(1) * found.v[0]
        each = [
            f"{w:.4f} · {row(v.tolist())} = {row(s.tolist())}"
            for w, v, s in zip(mine, found.v[0], weighted, strict=True)
        ]
        taken = {
            "text": "{query} takes {0} of {1} from {row}: {value}",
            "uses": [["weights", self.row, "i"], ["v", "i", "j"]],
            "query": first,
        }
        which = "the first query" if self.focus == 0 else f"query {self.focus + 1}"
        text = f"Each value is multiplied by the weight that {first} gives it: {few(each, len(each) if self.only else 5)}."
        shares = self.per_key("weight · v", weighted, taken, "v")
        self.add(f"Weighted values of {which}", text, shares)
        output = row(found.outputs[self.focus].tolist())
        text = f"Their sum is the new vector of {first}: {output}. It contains much of what was looked at and little of the rest."
        summed = {"text": "{column} of {row} = {+0} = {value}", "uses": [["weight · v", None, "j"]]}
        mine = found.outputs[self.focus : self.focus + 1]
        letters = numbered("o", found.outputs.shape[1])
        one = Matrix("output", array(mine), [self.tokens[self.focus]], letters, summed)
        which = f"output {self.focus + 1}" if self.focus else "the first output"
        self.add(f"Their sum: {which}", text, one)
        if self.only:
            return
        values = next(one for one in self.steps[1].matrices if one.name == "v")
        soft = type(found.mechanism.normalize) is normalizers.Softmax
        usual = soft and self.parts.score.make in (scores.Dot, scores.ScaledDot)
        root = f" / √{found.k.shape[2]}" if self.parts.score.make is scores.ScaledDot else ""
        hidden = " under the mask" if found.allowed is not None else ""
        rule = f"softmax(Q Kᵀ{root}{hidden}) V" if usual else f"normalize(score(Q, K){hidden}) V"
        text = f"All tokens at once, as products of matrices: outputs = {rule}, each row by itself."
        outputs = self.per_query("outputs", found.outputs, product("weights", "v"), "o")
        self.add("All outputs at once", text, weights, values, outputs)

    def several_heads(self) -> None:
        found, heads = self.found, self.parts.heads
        self.inputs()
        self.projections(range(heads))
        for head in range(heads):
            of = f" of head {head + 1}"
            shown, name = self.scores_of(head, of)
            logits = found.scores[head]
            if found.allowed is not None:
                logits = logits.masked_fill(~found.allowed[head], float("-inf"))
            rule, first = formula(scores.table, self.parts.score), quote(self.tokens[self.focus])
            mine = found.weights[head, self.focus]
            text = f"Scores by {rule}; weights; and the values by these weights. For {first}: {row(logits[self.focus].tolist())} becomes "
            text += f"{row(mine.tolist())}: in this head it looks most at {self.winners(mine)}."
            how = product(f"weights{of}", f"v{of}")
            outputs = self.per_query(f"outputs{of}", found.found[head], how, "o")
            self.add(f"Head {head + 1}", text, *shown, self.weights_of(head, of, name), outputs)
        side, width = found.found.transpose(0, 1).flatten(1), found.q.shape[2]
        copied: list[How] = [
            {
                "text": "{value}, as in head {head}",
                "uses": [[f"outputs of head {n // width + 1}", "i", n % width]],
                "head": n // width + 1,
            }
            for n in range(heads * width)
        ]
        equal = side.shape[1] == found.x.shape[1]
        same = "is as wide as an input" if equal else f"has {side.shape[1]} numbers"
        text = f"What the heads found, side by side, {same}."
        self.add("All heads side by side", text, self.per_query("side by side", side, copied, "o"))
        if "W_o" in found.learned:
            learned, given = found.learned["W_o"], found.x.shape[1]
            columns = numbered("y", learned.shape[1])
            mixing = {
                "text": "a learned number: how much {row} of the heads counts for {column} of the output"
            }
            w_o = Matrix("W_o", array(learned), numbered("o", len(learned)), columns, mixing)
            one = 3 * given * heads * width
            every = f"; with W_o all are {one + learned.numel()}."
            text = "A fourth matrix mixes the heads. "
            if self.parts.dim is None:
                text += f"The number of parameters does not depend on the number of heads: {heads} heads of width {width} have {heads} · 3 · "
                text += f"{given} · {width} = {one} numbers, one head of width {given} has 3 · {given} · {given} = {one}{every}"
            else:
                text += f"Each output is as wide as an input again. {heads} heads of width {width} have {heads} · 3 · {given} · {width} = {one} "
                text += f"numbers{every}"
            how = product("side by side", "W_o")
            outputs = self.per_query("outputs", found.outputs, how, "y")
            self.add("Output: W_o mixes the heads", text, w_o, outputs)


def explain_numbers(
    tokens: Sequence[str], found: AttentionNumbers, parts: Parts, query: int | None = None
) -> Worked:
    """The steps of some numbers, and the numbers themselves, without the axis of heads where there is one."""
    writer = Outputs(tokens, found, parts, query)
    if parts.heads > 1:
        writer.several_heads()
    else:
        writer.one_head()
    squeeze = (lambda one: array(one[0])) if parts.heads == 1 else array
    raw = found.q @ found.k.transpose(1, 2) if parts.scaled else found.scores
    facts: dict[str, Any] = {"tokens": list(tokens), "x": array(found.x)}
    facts |= {name: array(one) for name, one in found.learned.items()}
    headed = {"q": found.q, "k": found.k, "v": found.v, "scores": raw}
    facts |= {name: squeeze(one) for name, one in headed.items()}
    facts |= {"scaled": parts.scaled, "weights": squeeze(found.weights)}
    facts["outputs"] = array(found.outputs)
    facts |= {"heads": parts.heads, "plain": parts.plain, "score": spell(scores.table, parts.score)}
    facts |= {"normalize": spell(normalizers.table, parts.normalize), "query": query}
    facts |= {"mask": None if parts.mask is None else spell(masks.table, parts.mask)}
    facts |= {"allowed": None if found.allowed is None else squeeze(found.allowed.double())}
    score, normalize = found.mechanism.score, found.mechanism.normalize
    own = [*score.named_parameters(), *score.named_buffers(), *normalize.named_parameters()]
    facts["parameters"] = {name: array(one) for name, one in own}
    return Worked(" ".join(tokens), writer.steps, **facts)
