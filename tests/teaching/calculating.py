"""Reads the sentences of an explanation as arithmetic: `2·1 + 0·2 = 2` is true, or a test fails."""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import Any

from saccade.views.worked_steps import Worked

SIGNS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
FUNCTIONS = {"tanh": math.tanh, "sqrt": math.sqrt, "log": math.log}
TERM = re.compile(r"[\d\s.+\-*/()e]|exp|tanh|sqrt|log")


def value_of(text: str) -> float | None:
    """The value of an expression as it is printed, or None where there are words in it."""
    plain = (
        text.replace("·", "*")
        .replace("−∞", "nan")
        .replace("−", "-")
        .replace("√(", "sqrt(")
        .replace("e^(", "E**(")
    )
    plain = re.sub(r"√([\d.]+)", r"sqrt(\1)", plain)
    if re.sub(r"E\*\*|tanh|sqrt|log|[\d\s.+\-*/()]|e-", "", plain):
        return None
    return evaluate(ast.parse(plain.strip(), mode="eval").body)


def evaluate(node: ast.AST) -> float:
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return {"E": math.e}[node.id]
    if isinstance(node, ast.UnaryOp):
        return -evaluate(node.operand)
    if isinstance(node, ast.BinOp):
        return float(SIGNS[type(node.op)](evaluate(node.left), evaluate(node.right)))
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return FUNCTIONS[node.func.id](evaluate(node.args[0]))


def check_every_number(worked: Worked, tolerance: float = 4e-3) -> int:
    """Every matrix fits its names, every number has a sentence, and every sentence that calculates is right; how many of them calculate."""
    counted = 0
    for step in worked.steps():
        for matrix in step.matrices:
            assert matrix.matrix.shape == (len(matrix.row_names), len(matrix.column_names))
            for i in range(len(matrix.row_names)):
                for j in range(len(matrix.column_names)):
                    sentence = worked.arithmetic(matrix, i, j)
                    assert sentence, matrix.name
                    counted += is_calculated(sentence, float(matrix.matrix[i, j]), tolerance)
    return counted


def is_calculated(sentence: str, expected: float, tolerance: float) -> bool:
    before, equals, _ = sentence.rpartition(" = ")
    if not equals:
        return False
    text = re.split(r" = |: | with (?=e\^)", before)[-1]
    found = value_of(text)
    if found is None:
        return False
    scale = max(1.0, abs(expected))
    assert abs(found - expected) <= tolerance * scale, sentence
    return True
