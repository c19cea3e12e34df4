"""The command line. A command imports what takes long to load when it runs, so that `--help` stays fast."""
