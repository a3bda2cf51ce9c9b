"""`python -m saccade`, and the command `saccade`: Ctrl-C ends it from its first moment on, also while everything is still imported."""

import os
import signal


def stop(*_: object) -> None:
    os.write(2, b"saccade: stopped\n")
    os._exit(130)


def main() -> None:
    signal.signal(signal.SIGINT, stop)
    from . import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
