"""Options, plan, run and result."""
