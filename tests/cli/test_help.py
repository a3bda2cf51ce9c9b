"""The list of commands: groups, one short line each, and words that people type by habit."""

import inspect

import pytest

from saccade.cli import COMMANDS, ENTRIES, HABITS, NAMES, run
from saccade.cli.common_options import Family


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_help_line_is_one_short_sentence(command: object) -> None:
    line = (inspect.getdoc(command) or "").split("\n")[0]
    assert len(line) <= 80
    assert line[0].isupper()
    assert line.endswith(".")


def test_help_lists_every_command_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for title in ("Train", "Use", "Look inside", "Compare", "Learn", "Data", "Serve"):
        assert f" {title} " in text
    assert all(f" {name} " in text for name in NAMES)
    families = [one.help for one in ENTRIES.values() if isinstance(one, Family)]
    assert families
    assert all(f" {help} " in text for help in families)


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("val", "evaluate"),
        ("infer", "predict"),
        ("export", "consolidate"),
        ("convert", "consolidate"),
        ("rm", "runs remove"),
        ("Plot", "draw"),
        ("download", "fetch"),
    ],
)
def test_a_wrong_command_leads_to_the_right_one(
    typed: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([typed]) == 2
    assert f"did you mean {right}" in capsys.readouterr().err


def test_a_misspelled_command_leads_to_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trian"]) == 2
    assert "'train'" in capsys.readouterr().err


def test_habits_name_commands_that_exist_and_are_no_commands_themselves() -> None:
    for right, habits in HABITS.items():
        assert all(
            name in (*NAMES, *COMMANDS) for name in right.replace(" or ", ", ").split(", ") if name
        )
        assert not set(habits.split()) & set(NAMES)
