"""What pyproject.toml cannot say: the folder `recipes`, beside `src`, is installed inside the package."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages("src"), "saccade.recipes"],
    package_dir={"": "src", "saccade.recipes": "recipes"},
)
