"""`python -m saccade`"""

from .cli import main

main()
