"""Series of measurements on racing lanes."""
