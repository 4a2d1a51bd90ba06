"""`rampup` and `python -m rampup`: the command line."""

import signal


def main() -> None:
    # Until the command line is imported, Ctrl-C ends us without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rampup.cli import app

    signal.signal(signal.SIGINT, signal.default_int_handler)
    app.main()


if __name__ == "__main__":
    main()
