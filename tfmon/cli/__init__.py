"""The command line. A command imports slow modules only when it runs, so that `--help` stays fast."""
