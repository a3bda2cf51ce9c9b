"""The command `config`."""

from typing import Annotated

import typer

from .common_options import Family, Json
from .completion import recipe_names
from .completion import settings as complete_settings
from .shared import report, write


def show(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A YAML file, the name of a recipe, or a run's recipe.json.",
            autocompletion=recipe_names,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings that override the recipe's.",
            autocompletion=complete_settings,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Print a recipe with every default filled in.

    Examples:
        saccade config show translation
        saccade config show phrasebook-bahdanau training.updates=500
    """
    import yaml

    from ..config.recipes import read_recipe

    whole = read_recipe(recipe, settings or []).to_dict()
    report(json_, whole, yaml.safe_dump(whole, sort_keys=False, allow_unicode=True).rstrip())


def schema() -> None:
    """Print the JSON Schema of recipes, for editors.

    Examples:
        saccade config schema > recipe.schema.json
    """
    import json

    from ..config.json_schema import recipe_schema

    write(json.dumps(recipe_schema(), indent=1, ensure_ascii=False))


config = Family("config", "Print a filled-in recipe, or the schema of recipes.", (show, schema))
