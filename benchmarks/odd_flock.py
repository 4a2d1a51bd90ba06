"""rampup on a file system whose locks do not work: `python odd_flock.py fails|succeeds WORDS...`.

Some network file systems refuse every lock, and some grant every lock to everybody. What rampup
promises must not depend on them.
"""

import errno
import fcntl
import os
import sys
from typing import Any


def refuse(*_: Any) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def grant(*_: Any) -> None:
    pass


def main() -> None:
    how = sys.argv.pop(1)
    odd = {"fails": refuse, "succeeds": grant}[how]
    fcntl.flock = fcntl.lockf = odd
    from rampup.__main__ import main as run_rampup

    run_rampup()


if __name__ == "__main__":
    main()
