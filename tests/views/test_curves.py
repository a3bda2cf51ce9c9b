"""Pictures of results: every metric of a run has a panel, hostile names stay text, and nothing needs colors."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from saccade.views.curves import confusion, curves, dots, look, png


def rows(count: int = 40, *metrics: str) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    for update in range(1, count + 1):
        found.append({"update": update, "loss": 5 / update + 1, "learning_rate": 1e-3})
        if update % 10 == 0:
            found.append(
                {
                    "update": update,
                    "dev_loss": 5 / update + 2,
                    **{f"dev_{name}": float(update) for name in metrics},
                }
            )
    return found


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize(
    ("metrics", "panels"), [((), 2), (("bleu",), 3), (("perplexity", "accuracy"), 4)]
)
def test_a_panel_for_each_metric(metrics: tuple[str, ...], panels: int) -> None:
    figure = curves({"run": rows(40, *metrics)})
    assert len(figure.axes) == panels
    names = ["loss", *(f"dev {name}" for name in metrics), "learning rate"]
    assert [text for text in texts(figure) if text != "updates"] == names
    training, dev = figure.axes[0].lines
    assert training.get_xdata().tolist() == list(range(1, 41))
    assert dev.get_ydata().tolist() == [5 / n + 2 for n in (10, 20, 30, 40)]
    assert (training.get_marker(), bool(dev.get_marker())) == ("", True), (
        "they differ without colors too"
    )
    assert Image.open(io.BytesIO(png(figure))).width > 600


def test_several_runs_differ_without_colors() -> None:
    looks = [(look(n)["linestyle"], look(n)["marker"]) for n in range(8)]
    assert len(set(looks)) == 8
    figure = curves({"a": rows(), "b $x$ </script>": rows(20)}, "two")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b $x$ </script>"]
    assert png(figure)[:4] == b"\x89PNG"


@pytest.mark.parametrize("log", [[], [{"update": 1}], [{"update": 1, "dev_loss": 2.0}], rows(5000)])
def test_any_log_can_be_drawn(log: list[dict[str, Any]]) -> None:
    figure = curves({"run": log})
    assert (
        max((len(line.get_xdata()) for axes in figure.axes for line in axes.lines), default=0)
        <= 300
    )
    assert png(figure)[:4] == b"\x89PNG"


def test_dots_are_seeds_and_bars_are_means() -> None:
    figure = dots({"one": [70.0, 72.0], "two": [80.0]}, "accuracy")
    drawn = [
        (line.get_marker(), np.asarray(line.get_xdata()).tolist()) for line in figure.axes[0].lines
    ]
    assert drawn == [("|", [71.0]), ("o", [70.0, 72.0]), ("|", [80.0]), ("o", [80.0])]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["one", "two"]


def test_a_confusion_matrix_shows_shares_of_the_right_label() -> None:
    figure = confusion(["good", "b$a$d", "never"], [[3, 1, 0], [0, 8, 0], [0, 0, 0]])
    shares = np.asarray(figure.axes[0].images[0].get_array())
    assert shares.tolist() == [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == [
        "good",
        "b$a$d",
        "never",
    ]
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "darker = a larger share of the right label's examples" in texts.replace("\n", " ")
    assert "weight" not in texts
    assert (
        png(confusion([f"label {n}" for n in range(24)], np.eye(24, dtype=int).tolist()))[:4]
        == b"\x89PNG"
    )
