"""What is right where a slide slips; lectures.yaml names these tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.layers.norms import LayerNorm
from saccade.studies.tables.translation_systems import Translation
from saccade.teaching.explain.worked_attention import worked_example, worked_sentence


def test_layer_norm_gives_mean_zero_and_deviation_one() -> None:
    out = LayerNorm(64, eps=0.0)(torch.randn(5, 64) * 3 + 7)
    torch.testing.assert_close(out.mean(-1), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std(-1, unbiased=False), torch.ones(5))


def test_weights_of_one_query_over_all_keys_sum_to_one_and_columns_do_not() -> None:
    weights = worked_sentence(["This", "is", "a", "cat"], False).weights
    np.testing.assert_allclose(weights.sum(1), 1)
    assert abs(weights.sum(0) - 1).max() > 0.1
    assert weights.shape == (4, 4), "a score is one number"


def test_the_correlation_of_dog_and_cat() -> None:
    dog, cat = (
        np.array([0.3645, 0.9507, 0.7320, 0.5987]),
        np.array([0.2949, 0.7559, 0.6172, 0.4943]),
    )
    assert np.corrcoef(dog, cat)[0, 1] == pytest.approx(0.9968, abs=5e-5)
    assert dog @ cat / np.linalg.norm(dog) / np.linalg.norm(cat) == pytest.approx(0.9997, abs=5e-5)


def test_the_table_has_the_published_value_and_names_the_other() -> None:
    study = Translation("tiny", Path())
    assert 41.8 in study.in_paper("transformer-big").values()
    assert "41.0" in study.paper


def test_there_are_as_many_weights_as_inputs() -> None:
    worked = worked_example(False)
    assert len(worked.weights[0]) == len(worked.x) == 3
