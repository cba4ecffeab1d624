"""Runs one IPython kernel for the code interpreter.

Usage: carboy_kernel.py CONNECTION_FILE READY_FD

One line goes to READY_FD: "ready" once the kernel's sockets take messages, or
"missing MODULE" where this Python has no such module, with exit code 78. The
debugger, the completer and the terminal that IPython would load first are left
for whoever imports them later: without them a kernel starts twice as fast.
"""

import contextlib
import importlib
import os
import sys
import types
from typing import Iterator

EXIT_MISSING = 78

# What IPython does without where it is not installed.
OPTIONAL = ("debugpy", "jedi")


def _terminal() -> types.ModuleType:
    """Stands in for IPython.terminal.embed until someone calls it."""
    module = types.ModuleType("IPython.terminal.embed")

    def embed(*args: object, **kwargs: object) -> object:
        sys.modules.pop(module.__name__, None)
        return importlib.import_module(module.__name__).embed(*args, **kwargs)

    module.embed = embed  # type: ignore[attr-defined]
    return module


@contextlib.contextmanager
def _lean() -> Iterator[None]:
    """Keeps what a kernel can do without from being imported meanwhile."""
    stand_in = _terminal()
    hidden = {name: None for name in OPTIONAL if name not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]
    sys.modules.setdefault(stand_in.__name__, stand_in)
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
        if sys.modules.get(stand_in.__name__) is stand_in:
            del sys.modules[stand_in.__name__]


def _configuration() -> object:
    from traitlets.config import Config

    config = Config()
    config.InteractiveShell.colors = "NoColor"
    config.PlainTextFormatter.max_seq_length = 0  # a list is shown whole
    config.HistoryManager.enabled = False  # no database in the home directory
    return config


def main(connection_file: str, ready_fd: int) -> int:
    """Runs the kernel until it is told to end; returns its exit code."""
    ready = os.fdopen(ready_fd, "w")
    os.set_inheritable(ready_fd, False)
    try:
        with _lean():
            from ipykernel.kernelapp import IPKernelApp

            import carboy_display
    except ModuleNotFoundError as error:
        ready.write(f"missing {error.name}\n")
        return EXIT_MISSING
    # The directory of this file was of use for that import alone.
    sys.path.pop(0)
    app = IPKernelApp.instance(connection_file=connection_file, config=_configuration())
    app.initialize([])
    carboy_display.install(app.shell)
    ready.write("ready\n")
    ready.close()
    app.start()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
