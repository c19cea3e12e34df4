"""The command line. Commands import slow modules when they run, so that `--help` is fast."""
