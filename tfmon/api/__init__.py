"""Options, plan, run and result of a race or a sweep, with and without a screen."""
