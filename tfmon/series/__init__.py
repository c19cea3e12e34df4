"""Series of measurements on racing lanes: crossover, tuning and sweep. They set knobs like a user."""
