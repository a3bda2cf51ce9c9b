"""A service in this process, over small models that are trained once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx")

from serving_helpers import CONLLU, REVIEWS, SMALL, TEXT, opened

from saccade import api
from saccade.serving.service import Service
from saccade.serving.service_settings import Limits, Settings
from saccade.training.checkpoints import RunFolder
from support import tiny_recipe


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models: two that translate (one by the fast decoder), two of language, one of labels, of tags, captions, questions."""
    root = tmp_path_factory.mktemp("served")
    (root / "text.txt").write_text(TEXT)
    (root / "reviews.tsv").write_text(REVIEWS)
    (root / "words.conllu").write_text(CONLLU)
    book = {"data": {"options": {"train": 120, "dev": 4, "test": 4}}}
    learn = {
        "updates": 80,
        "tokens": 500,
        "learning_rate": 0.01,
        "warmup": 10,
        "smoothing": 0.0,
        "evaluate_every": 80,
    }
    language = {"task": "language-modelling", "language": {"block": 8}}
    recipes: dict[str, dict[str, Any]] = {
        "en-fr": tiny_recipe(
            **book, model={"family": "transformer", **SMALL, "dim": 32}, training=learn
        ),
        "gru": tiny_recipe(
            **book, model={"family": "bahdanau", "dim": 16, "hidden": 16, "dropout": 0.0}
        ),
        "words": {
            **language,
            "data": "text.txt",
            "model": {"family": "transformer-decoder", **SMALL},
        },
        "lstm": {
            **language,
            "data": "text.txt",
            "model": {"family": "rnn-decoder", "dim": 8, "hidden": 8},
        },
        "labels": {
            "task": "classification",
            "data": "reviews.tsv",
            "model": {"family": "transformer-encoder", **SMALL},
        },
        "tags": {
            "task": "tagging",
            "data": "words.conllu",
            "model": {"family": "rnn-encoder", "dim": 8, "hidden": 8, "depth": 1},
        },
    }
    for name, made in recipes.items():
        if isinstance(made["data"], str):
            where = str(root / made.pop("data"))
            made |= {"data": {"train": where, "dev": where}, "vocabulary": {"kind": "words"}}
        recipes[name] = made
    api.fit(recipes.pop("en-fr"), root / "en-fr")
    seen = {"family": "cnn", "dim": 8, "depths": [1], "stem_stride": 4}
    decoder = {
        "vocabulary": {"kind": "words"},
        "model": {"family": "transformer", **SMALL, "image_encoder": seen},
    }
    reader = {
        "vocabulary": {"kind": "words"},
        "model": {"family": "transformer-encoder", **SMALL, "image_encoder": seen},
    }
    drawn = {"data": {"train": "shapes:train", "options": {"train": 20}}}
    pictures: dict[str, dict[str, Any]] = {
        "captions": {"task": "captioning", **decoder},
        "questions": {"task": "questions", **reader},
        "shapes": {
            "task": "image-classification",
            "model": {"family": "vit", **SMALL, "patch": 16},
        },
    }
    for name, made in (
        recipes | {name: {**made, **drawn} for name, made in pictures.items()}
    ).items():
        built = api.build({**made, "device": "cpu"})
        RunFolder(root, api.model_files(built)).save(name, built.model)
    return root


@pytest.fixture
def settings(models: Path) -> Callable[..., Settings]:
    def make(*names: str, **more: Any) -> Settings:
        limits = Limits(**more.pop("limits", {}))
        return Settings(
            {name: models / name for name in names}, device="cpu", limits=limits, **more
        )

    return make


@pytest.fixture
def ask(settings: Callable[..., Settings]) -> Callable[..., Any]:
    """Runs an async function with a client of a service over some models."""

    def run(
        names: list[str],
        work: Callable[[Any, Service], Any],
        headers: Any = None,
        base: str = "",
        **more: Any,
    ) -> Any:
        service = Service(settings(*names, **more))

        async def whole() -> Any:
            how = {"headers": headers} if headers else {}
            async with opened(service, **how, **({"base_url": base} if base else {})) as client:
                return await work(client, service)

        return asyncio.run(whole())

    return run
