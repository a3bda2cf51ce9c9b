"""What holds for all tests: one thread, the same random numbers in every run, quick property tests."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator

# set before torch is imported: the same kernels on every machine
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ["OMP_NUM_THREADS"] = (
    "1"  # for the processes that tests start: two workers share two cores
)

import pytest
import torch
from hypothesis import HealthCheck, settings

# a shell starts what runs in the background with signals ignored
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

torch.set_num_threads(1)
quick = {
    "deadline": None,
    "derandomize": True,
    "max_examples": 25,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("saccade", **quick)
settings.load_profile("saccade")


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test starts from the same seed, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture
def plain_flex(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """FlexAttention without its compiler: the same arithmetic in a moment."""
    from torch.nn.attention.flex_attention import flex_attention

    from saccade.core.backends import flex, table

    monkeypatch.setattr(flex, "compiled_kernel", lambda device: flex_attention)
    monkeypatch.setattr(table["flex"], "failed", {})
    monkeypatch.setattr(table["flex"], "compiled", set())
    # uncompiled, it would trace itself at every call
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        yield
