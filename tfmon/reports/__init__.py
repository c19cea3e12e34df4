"""Results as text and JSON: of a race, a crossover, a tuning, a comparison, claims, a profile, the doctor."""
