"""A disk that is full or broken, and kills, at each call that changes a file: of a training, of `average` and of `convert`."""

from __future__ import annotations

from pathlib import Path

import faults
import pytest
from record import record

# each third call of a training, in the time there is
EVERY = {"train": 3, "average": 1, "convert": 1}


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = faults.build(tmp_path_factory.mktemp("shim"))
    if made is None:
        pytest.skip("the shim needs Linux and a C compiler")
    return made


def test_a_sample_of_faults_costs_nothing(shim: Path) -> None:
    found = faults.attack(shim, "average", "full", 5)
    assert found["failed"] == {}, found["examples"]
    assert found["tried"] >= 6


@pytest.mark.robust
@pytest.mark.parametrize("fault", sorted(faults.FAULTS))
@pytest.mark.parametrize("work", sorted(EVERY))
def test_a_fault_at_any_call_costs_nothing(work: str, fault: str, shim: Path) -> None:
    found = faults.attack(shim, work, fault, EVERY[work], timeout=900)
    record(
        f"disk, {work}, {fault}",
        found["tried"],
        sum(found["failed"].values()),
        {"calls": found["calls"], **found["failed"]},
    )
    assert found["failed"] == {}, found["examples"]
