"""What pyproject.toml cannot say: the folder `recipes`, beside `src`, is installed inside the package; a wheel built twice is the same."""

import os

from setuptools import find_packages, setup

os.environ.setdefault(
    "SOURCE_DATE_EPOCH", "1767225600"
)  # the date of all files in a wheel; `make wheel` sets the commit's

setup(
    packages=[*find_packages("src"), "saccade.recipes"],
    package_dir={"": "src", "saccade.recipes": "recipes"},
)
