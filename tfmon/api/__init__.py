"""The door: options, plan, run and result of a race or a sweep, without a screen and on it."""
