"""Model folders that an attacker wrote, or that rotted: refused with a sentence or used, within the memory and the time, and without a look
outside the folder. Every case is a process of its own (attempts.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from attempts import Attempts, Outcome
from hostile_cases import all_cases, command, crafted, make_folders, make_inputs, mutated
from record import record

SHARES = 20  # tests that divide the work, for as many processes as there are
MUTATIONS = int(os.environ.get("MUTATIONS", "10000"))
HARMLESS = (
    "config-seed", "config-block", "config-dropout", "config-start-from", "config-version-1", "config-long-key", "tok-kind", "tok-ansi",
    "tok-outputs", "tok-added", "tok-bpe-unk_token", "labels-13", "tags-13", "labels-15", "tags-15", "language-several", "st-torch",
    "pic-size-1", "nodes-kinds", "segments-memory-2", "segments-memory-3",
)  # fmt: skip
# one of each kind, quick: they run with every `make test`
SAMPLE = (
    "config-dim-0", "config-depth-0", "config-part-1", "config-part-6", "config-family-bahdanau", "config-ansi-key", "config-nested",
    "config-surrogate", "tok-regex-0", "tok-regex-6", "tok-normalizer-0", "tok-normalizer-6", "tok-padding-0", "tok-decoder-0", "tok-added-2",
    "tok-vocabulary-4", "tok-merges-0", "tok-ansi", "tok-ansi-label", "tok-long-token", "tok-surrogate", "tok-outputs-2", "labels-0", "tags-0",
    "labels-9", "st-value-0-words", "st-value-2-tags", "st-header-size-1", "st-facts-0", "file-fifo-manifest.json",
    "file-link-manifest.json-zero", "file-fifo-config.json", "file-outside-model.safetensors", "file-folder-config.json", "manifest-0",
    "manifest-6", "manifest-7", "pic-size-0-pictures", "pic-size-1-captions", "pic-latent-0", "segments-memory-0", "nodes-labels-0",
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def attempts() -> Iterator[Attempts]:
    with Attempts() as found:
        yield found


def use(attempts: Attempts, kind: str, folder: Path) -> tuple[Outcome, str]:
    """What the command of this kind does with a folder, and what is wrong with that."""
    given = make_inputs(folder.parent)
    outcome = attempts.run(*command(kind, folder))
    known = Outcome(
        outcome.code,
        outcome.text,
        outcome.seconds,
        outcome.megabytes,
        tuple({*outcome.opened} - given),
    )
    return known, known.fault(folder)


def check_crafted(names: object, attempts: Attempts, good: dict[str, Path], into: Path) -> None:
    cases = [case for case in all_cases() if case[0] in names]  # type: ignore[operator]
    faults = {}
    for case in cases:
        outcome, fault = use(attempts, case[1], crafted(case, good, into))
        if not fault and outcome.code == 0 and not case[0].startswith(HARMLESS):
            fault = f"used: {outcome.text[-200:]}"
        if fault:
            faults[case[0]] = fault
    record("crafted model folders", len(cases), len(faults), faults or None)
    assert not faults


def test_a_good_folder_of_each_kind_is_used(attempts: Attempts, good: dict[str, Path]) -> None:
    for kind, folder in good.items():
        outcome, fault = use(attempts, kind, folder)
        assert (outcome.code, fault) == (0, ""), outcome.text


@pytest.mark.parametrize("part", range(2))
def test_a_crafted_folder_of_each_kind_is_refused(
    part: int, attempts: Attempts, good: dict[str, Path], tmp_path: Path
) -> None:
    check_crafted(SAMPLE[part::2], attempts, good, tmp_path)


@pytest.mark.robust
@pytest.mark.parametrize("share", range(SHARES))
def test_every_crafted_folder_is_refused(
    share: int, attempts: Attempts, good: dict[str, Path], tmp_path: Path
) -> None:
    check_crafted([name for name, _, _ in all_cases()][share::SHARES], attempts, good, tmp_path)


def check_mutations(
    numbers: range, attempts: Attempts, good: dict[str, Path], folder: Path
) -> None:
    """Random changes: nothing crashes, hangs or takes too much, and where the manifest does not fit the files, nothing is used."""
    faults, used = {}, 0
    for number in numbers:
        kind, sealed = mutated(good, folder, number)
        outcome, fault = use(attempts, kind, folder)
        used += outcome.code == 0
        if not fault and outcome.code == 0 and not sealed and not same_files(folder, good[kind]):
            fault = "used, though its files are not those of the manifest"
        if fault:
            faults[str(number)] = f"{kind}: {fault}"
    record("mutated model folders", len(numbers), len(faults), faults or None)
    assert not faults


def same_files(folder: Path, other: Path) -> bool:
    """Whether all files but the manifest are as they were: white space in the manifest changes nothing."""
    names = ("config.json", "vocabularies.json", "model.safetensors")
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.parametrize("part", range(2))
def test_mutated_folders_are_refused_or_used(
    part: int, attempts: Attempts, good: dict[str, Path], tmp_path: Path
) -> None:
    check_mutations(range(part, 100, 2), attempts, good, tmp_path / "folder")


@pytest.mark.robust
@pytest.mark.parametrize("share", range(SHARES))
def test_ten_thousand_mutated_folders(
    share: int, attempts: Attempts, good: dict[str, Path], tmp_path: Path
) -> None:
    check_mutations(range(share, MUTATIONS, SHARES), attempts, good, tmp_path / "folder")
