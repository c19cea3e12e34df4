"""Series of measurements on lanes that race: the crossover. They wish for knobs as a user would, and wait."""
