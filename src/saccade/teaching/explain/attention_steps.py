"""The steps of a self-attention in words: inputs, queries, keys and values, scores, mask, weights, sums; one head, or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import masks, normalizers, scores
from ...views.worked_steps import (
    How,
    Matrix,
    Step,
    Worked,
    few,
    number,
    numbered,
    product,
    quote,
    row,
)
from .worked_attention import AttentionNumbers, Parts

NO_BRACES = str.maketrans("", "", "{}")  # which would be read as a template


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def formula(table: Any, chosen: Any) -> str:
    """The formula of a part, with which its summary in the catalogue begins."""
    summary: str = next(entry.summary for entry in table if entry.make is chosen.make)
    return summary.partition("; ")[0].rstrip(".")


class Writer:
    """Writes the steps of an attention. With `only`, one query is shown; else all are shown and `focus` is explained."""

    def __init__(
        self, tokens: Sequence[str], found: AttentionNumbers, parts: Parts, query: int | None
    ) -> None:
        self.tokens, self.found, self.parts = list(tokens), found, parts
        self.only = query is not None
        self.focus = 0 if query is None else query - 1
        self.asking = [self.tokens[self.focus]] if self.only else self.tokens
        self.row = 0 if self.only else self.focus  # of the focus in matrices with one row per query
        self.steps: list[Step] = []

    def add(self, title: str, text: str, *matrices: Matrix) -> None:
        self.steps.append(Step(f"{len(self.steps) + 1}. {title}", text, list(matrices)))

    def asked(self, matrix: Tensor) -> np.ndarray:
        """The rows of the queries that are shown."""
        return array(matrix[self.focus : self.focus + 1] if self.only else matrix)

    def per_query(self, name: str, matrix: Tensor, how: Any, letter: str = "") -> Matrix:
        """A matrix with one row per query that is shown, and one column per token where no letter names the columns."""
        columns = numbered(letter, matrix.shape[1]) if letter else self.tokens
        return Matrix(name, self.asked(matrix), self.asking, columns, how)

    def per_key(self, name: str, matrix: Tensor, how: Any, letter: str) -> Matrix:
        return Matrix(name, array(matrix), self.tokens, numbered(letter, matrix.shape[1]), how)

    # --- what comes before the scores

    def inputs(self) -> None:
        x = self.found.x
        count = f"{len(self.tokens)} token{'s' * (len(self.tokens) > 1)}"
        text = f"{count}, each a vector of {x.shape[1]} numbers. The same word has the same vector at every position: "
        how = {"text": "{row} has {value} as its number {column}"}
        self.add(
            "Inputs", text + "so far no word has looked at another.", self.per_key("x", x, how, "x")
        )

    def projections(self, heads: Sequence[int]) -> None:
        """Queries, keys and values of these heads."""
        found, shown, made = self.found, list[Matrix](), list[Matrix]()
        several = len(heads) > 1
        for name, values in (("q", found.q), ("k", found.k), ("v", found.v)):
            for head in heads:
                of = f" of head {head + 1}" if several else ""
                at: Any = self.focus if name == "q" and self.only else "i"
                width, start = values.shape[2], head * values.shape[2]
                if found.learned:
                    matrix = found.learned[f"W_{name}"][:, start : start + width]
                    learned = {
                        "text": f"a learned number: how much {{row}} counts for {{column}}{of}"
                    }
                    rows, columns = numbered("x", len(matrix)), numbered(name, width)
                    shown.append(Matrix(f"W_{name}{of}", array(matrix), rows, columns, learned))
                    how: Any = product("x", f"W_{name}{of}")
                    how["uses"][0][1] = at
                else:
                    copied = "{column} of {row} is its {x}: {value}"
                    how = [
                        {"text": copied, "uses": [["x", at, start + n]], "x": f"x{start + n + 1}"}
                        for n in range(width)
                    ]
                if name == "q":
                    made.append(self.per_query(f"q{of}", values[head], how, "q"))
                else:
                    made.append(self.per_key(f"{name}{of}", values[head], how, name))
        self.add("Queries, keys, values", self.projection_text(several), *shown, *made)

    def projection_text(self, several: bool) -> str:
        found, at, first = self.found, self.focus, quote(self.tokens[self.focus])
        if not found.learned:
            divided = f", divided among {self.parts.heads} heads" * several
            return f"Nothing is learned: W = I, so that each input is its own query, key and value{divided}: q = k = v = x."
        text = (
            "Three matrices, which a model would learn, make three vectors of each input: a query (what it looks for), a key (what it "
            "can be found by) and a value (what it passes on). "
        )
        if several:
            wide = found.q.shape[2]
            if wide == 1:
                return (
                    text
                    + "Head 1 is the first column of each, head 2 the second …: in a head, a query, a key and a value are one number each."
                )
            return (
                text + f"Each of {self.parts.heads} heads has its own columns of them, {wide} wide."
            )
        if found.q.shape[2] == 1:
            text += "Each matrix is one column, so that a query, a key and a value are one number each. "
        q, k, v = (row(one[0, at].tolist()) for one in (found.q, found.k, found.v))
        return (
            text
            + f"For {first}: q = x W_q = {row(found.x[at].tolist())} W_q = {q}, k = x W_k = {k}, v = x W_v = {v}."
        )

    # --- scores, mask, weights

    def parameters(
        self, part: torch.nn.Module, owner: str, head: int, of: str
    ) -> dict[str, Matrix]:
        """A part's own numbers, for one head, as matrices."""
        made = {}
        for name, value in [*part.named_parameters(), *part.named_buffers(recurse=False)]:
            if name in ("mean_loss", "mean_weight", "share"):  # of training alone
                continue
            mine = value
            if value.dim() == 3 and len(value) == self.parts.heads:
                mine = value[head]
            elif value.dim() == 2 and len(value) == self.parts.heads and name != "omega":
                mine = value[head : head + 1]
            matrix = array(mine.reshape(-1, mine.shape[-1]) if mine.dim() else mine.reshape(1, 1))
            rows, columns = numbered("", len(matrix)), numbered("", matrix.shape[1])
            how = {
                "text": f"a number that a model would learn, drawn here by a fixed seed: {{value}} of {name}"
            }
            made[name] = Matrix(f"{name} of the {owner}{of}", matrix, rows, columns, how)
        return made

    def projected(
        self, head: int, of: str, own: dict[str, Matrix]
    ) -> tuple[list[Matrix], str, str]:
        """Queries and keys as the score projects them, if it does, and the names of the matrices that it compares."""
        found, shown, names = self.found, list[Matrix](), []
        for name, plain, made in (
            ("q", found.q[head], found.query[head]),
            ("k", found.k[head], found.key[head]),
        ):
            if plain.shape == made.shape and torch.equal(plain, made):
                names.append(f"{name}{of}")
                continue
            fits = (one for one in own.values() if len(one.matrix) == plain.shape[1])
            same = (one for one in fits if _same(array(plain) @ one.matrix, array(made)))
            matrix = next(same, None)
            how: How = {"text": "{column} of {row} = {value}, made of {0}"}
            how["uses"] = [[f"{name}{of}", "i", None]]
            if matrix is not None:
                how = product(f"{name}{of}", matrix.name)
            names.append(f"{name}′{of}")
            per = self.per_query if name == "q" else self.per_key
            shown.append(per(names[-1], made, how, f"{name}′"))
        return shown, names[0], names[1]

    def score_text(self, own: dict[str, Matrix]) -> tuple[str, list[list[Any]]]:
        """The origin of a score as a template, and the matrices that it uses besides query and key."""
        score = self.found.mechanism.score
        if isinstance(score, scores.Additive):
            return "{2·tanh(0+1)}", [[own["v"].name, 0, None]]
        if score.dot:
            factor = score.scale(self.found.query.shape[-1])
            if self.parts.scaled or factor == 1:
                return "{0·1}", []
            root = isinstance(score, scores.ScaledDot)
            by = f" / √{self.found.query.shape[-1]}" if root else f" · {number(factor)}"
            return f"({{0·1}}){by}", []
        rule = formula(scores.table, self.parts.score).translate(NO_BRACES)
        return f"a number made of {{0}} and {{1}} by {rule}", []

    def scores_of(self, head: int, of: str) -> tuple[list[Matrix], str]:
        """Everything up to the scores of a head, and the name of the matrix that is normalized."""
        found = self.found
        own = self.parameters(found.mechanism.score, "score", head, of)
        made, q, k = self.projected(head, of, own)
        text, more = self.score_text(own)
        how = {
            "text": f"the query of {{row}} with the key of {{column}} = {text} = {{value}}",
            "uses": [[q, "i", None], [k, "j", None], *more],
        }
        raw = found.q[head] @ found.k[head].T if self.parts.scaled else found.scores[head]
        shown = [*own.values(), *made, self.per_query(f"scores{of}", raw, how)]
        name = f"scores{of}"
        if self.parts.scaled:
            root = f"√{found.k.shape[2]}"
            divided = {"text": f"{{0}} / {root} = {{value}}", "uses": [[name, "i", "j"]]}
            name = f"scores / {root}{of}"
            shown.append(self.per_query(name, found.scores[head], divided))
        if found.allowed is not None:
            allowed = found.allowed[head]
            rule = "1 where the row may look at the column, 0 where not"
            may = {"text": f"{rule}: {{row}} and {{column}}: {{value}}"}
            hidden: How = {"text": "{0} where the mask is 1, −∞ where it is 0"}
            hidden["uses"] = [[name, "i", "j"], [f"mask{of}", "i", "j"]]
            seen = found.scores[head].masked_fill(~allowed, float("-inf"))
            shown += [
                self.per_query(f"mask{of}", allowed.double(), may),
                self.per_query(f"masked scores{of}", seen, hidden),
            ]
            name = f"masked scores{of}"
        return shown, name

    def weights_of(self, head: int, of: str, source: str) -> Matrix:
        """The weights of a head, from the matrix of this name."""
        if type(self.found.mechanism.normalize) is normalizers.Softmax:
            text = "{row} looks at {column} with e^({1}) / ({e0}) = {value}"
        else:
            rule = formula(normalizers.table, self.parts.normalize).translate(NO_BRACES)
            text = f"{{row}} looks at {{column}} with {{value}}, made of the scores {{0}} by {rule}"
        how = {"text": text, "uses": [[source, "i", None], [source, "i", "j"]]}
        return self.per_query(f"weights{of}", self.found.weights[head], how)

    def each_score(self, shown: Sequence[Matrix], worked: Worked) -> str:
        """The scores of the focus with each key."""
        matrix = next(one for one in shown if one.name == "scores")
        before, each = f"the query of {quote(self.tokens[self.focus])} with the key of ", []
        for j, token in enumerate(map(quote, self.tokens)):
            made = worked.arithmetic(matrix, self.row, j).removeprefix(f"{before}{token} = ")
            each.append(f"with {token}: {made}")
        return few(each, len(each) if self.only else 5)

    def mask_text(self) -> str:
        assert self.parts.mask is not None
        assert self.found.allowed is not None
        allowed = zip(self.tokens, self.found.allowed[0, self.focus], strict=True)
        hidden = " and ".join(quote(token) for token, seen in allowed if not seen)
        rule, first = formula(masks.table, self.parts.mask), quote(self.tokens[self.focus])
        what = f"{first} may look at {f'all but {hidden}' if hidden else 'all inputs'}"
        return f"{rule}. What may not be looked at gets −∞ for a score, and so no weight. {what}."

    def divide_text(self) -> str:
        width = self.found.k.shape[2]
        return f"First divide the scores by √{width} = {width**0.5:.4f}, so that wide keys do not make them large. "

    def winners(self, mine: Tensor) -> str:
        """Which inputs a row of weights looks at most; several where they are equal."""
        most = zip(self.tokens, torch.isclose(mine, mine.max()), strict=True)
        return " and ".join(dict.fromkeys(quote(token) for token, one in most if one))

    def weight_text(self, weights: Tensor, logits: Tensor) -> str:
        """From scores to weights, for the focus."""
        first, mine, found = quote(self.tokens[self.focus]), weights[self.focus], self.found
        most = f"most at {self.winners(mine)}" if mine.max() > 0 else "at nothing"
        most = f"It looks {most}."
        width = found.k.shape[2]
        if type(found.mechanism.normalize) is not normalizers.Softmax:
            rule = formula(normalizers.table, self.parts.normalize)
            total = number(float(mine.sum()))
            made = f"{row(logits[self.focus].tolist())} becomes {row(mine.tolist())}, the sum of which is {total}"
            return f"The normalizer makes weights of each row of scores s: {rule}. For {first}: {made}. {most}"
        late = self.parts.scaled and found.allowed is None  # else divided before the mask
        raw = found.q[0, self.focus] @ found.k[0].T if late else logits[self.focus]
        root = f" / √{width}" if late else ""
        return (
            f"{self.divide_text() if late else ''}Softmax makes weights of each row of scores: take e to the power of each and divide "
            f"by their sum, so that all are positive and add up to 1. For {first}: softmax({row(raw.tolist())}{root}) = "
            f"{row(mine.tolist())}. {most}"
        )


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-12, atol=1e-12))
