"""Tables as Markdown, LaTeX, CSV and text: what a form could take for its own signs is escaped."""

from __future__ import annotations

from saccade.views.text_table import Bold, csv_text, latex, markdown, terminal

ROWS = [["", "a|b", "50 %"], ["x_1 & {y}", "1.0 ± 0.1", Bold("2.0*")]]


def test_markdown() -> None:
    assert markdown(ROWS).splitlines() == [
        "|  | a\\|b | 50 % |",
        "|---|---|---|",
        "| x_1 & {y} | 1.0 ± 0.1 | **2.0\\*** |",
    ]


def test_latex() -> None:
    assert latex(ROWS).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\hline",
        r" & a\textbar{}b & 50 \% \\",
        r"\hline",
        r"x\_1 \& \{y\} & 1.0 $\pm$ 0.1 & \textbf{2.0$^{*}$} \\",
        r"\hline",
        r"\end{tabular}",
    ]
    assert latex([["\\~^#$"]]).splitlines()[2] == (
        r"\textbackslash{}\textasciitilde{}\textasciicircum{}\#\$ \\"
    )


def test_csv() -> None:
    assert csv_text([["a,b", 1.5], ['"', 2]]) == '"a,b",1.5\n"""",2\n'


def test_terminal() -> None:
    lines = terminal([["", "longest"], ["first", "1"], ["x" * 50, "漢字"]], longest=10).splitlines()
    assert lines == ["            longest", "first             1", "xxxxxxxxx…     漢字"]
