"""Standard input of `rampup run`: a file or a pipe belongs to the program of rank 0.

A terminal stays the command line's own, and /dev/null has nothing to read. Nothing is read here.
"""

import fcntl
import os
import stat
import struct
import termios

STDIN = 0


def is_piped() -> bool:
    """Return whether standard input is a file or a pipe."""
    try:
        mode = os.fstat(STDIN).st_mode
    except OSError:  # closed
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def keep() -> None:
    """Give standard input to no program from now on."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)


def holds_data() -> bool:
    """Return whether a file or a pipe waits to be read. A file of which something has been read
    belongs to somebody else: to the loop of a shell, for example."""
    if not is_piped():
        return False
    info = os.fstat(STDIN)
    if stat.S_ISREG(info.st_mode):
        return info.st_size > 0 and os.lseek(STDIN, 0, os.SEEK_CUR) == 0
    waiting = fcntl.ioctl(STDIN, termios.FIONREAD, b"\0" * 4)
    (count,) = struct.unpack("i", waiting)
    return bool(count > 0)
