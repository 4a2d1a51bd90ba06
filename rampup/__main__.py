"""`rampup` and `python -m rampup`: the command line."""

import _thread
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S = 0.05


def main() -> None:
    # Until the command line is imported, Ctrl-C ends us without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rampup.cli import app

    sys.unraisablehook = heed_interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app.main()


def heed_interrupt(ignored: "UnraisableHookArgs") -> None:
    """Deliver Ctrl-C once more that came where Python drops exceptions, as in a weak reference's
    callback during an import: it would print a traceback and continue."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)
    elif not sys.is_finalizing():
        _thread.start_new_thread(_interrupt_soon, ())


def _interrupt_soon() -> None:
    time.sleep(AGAIN_S)  # by then Python is out of there
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
