"""The command `pelton`, which the package installs; also `python -m pelton`."""

import os
import signal
import sys

from ._pelton import command


def main() -> int:
    """Runs the process's arguments and returns the exit code."""
    # The command handles Ctrl-C. If a shell made a background job ignore it, that stays.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A file that the command opens must not reuse the descriptor of a closed standard stream, and so get its output.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    return command(sys.argv[1:])
