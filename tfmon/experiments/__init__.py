"""Series of measurements on lanes that race: crossover and tuning. They set knobs as a user would, and wait."""
