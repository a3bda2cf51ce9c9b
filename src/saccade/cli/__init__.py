"""The command `saccade`: thin over the API. Results go to stdout, progress and errors to stderr; a mistake ends with code 2."""

from __future__ import annotations

import os
import sys

from ..errors import SaccadeError

NO_MEMORY = "there is not enough memory for this; use smaller sizes"


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Runs one command; returns its exit code: 0, 2 for a mistake, 130 or 143 for a signal."""
    if sys.stdout is None or sys.stderr is None:  # closed by whoever called
        return complain("stdout is closed, so nothing can be printed; open it, or send it to /dev/null", 2)
    from ..training.stopping import Stopped
    from .app import app
    from .shared import is_printed_here, is_run_here

    if not is_run_here(words):
        return 0
    try:
        code = int(app(words, standalone_mode=False, prog_name="saccade") or 0)
        return complain("stopped", code) if code == 130 else code  # typer makes a code of Ctrl-C, and prints nothing
    except (SaccadeError, Stopped) as error:
        code = getattr(error, "code", 2)
        return complain(str(error), code) if is_printed_here(error) else code
    except (KeyboardInterrupt, EOFError):
        return complain("stopped", 130)
    except BrokenPipeError:  # the reader of a pipe has gone: there is nobody to print for
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a folder that may not be written to
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}; check the path, its permissions and the free space", 2)
    except MemoryError:
        return complain(NO_MEMORY, 2)
    except Exception as error:  # typer's own errors carry a message and an exit code; anything else is a defect
        if isinstance(error, RuntimeError) and any(words in str(error) for words in ("allocate memory", "out of memory")):
            return complain(NO_MEMORY, 2)
        if type(error).__name__ == "Abort":
            return complain("stopped", 130)
        if not hasattr(error, "exit_code"):
            raise
        message = (error.format_message() if hasattr(error, "format_message") else str(error)) or "no command was given"
        return complain(f"{' '.join(message.split()).rstrip('.')}; see saccade --help", int(error.exit_code) or 2)


def complain(text: str, code: int) -> int:
    if sys.stderr is not None:
        print(f"saccade: {text}", file=sys.stderr)
    return code
