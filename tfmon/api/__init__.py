"""Options, plan, run and result of a race or a sweep."""
