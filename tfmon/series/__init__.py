"""Series of measurements on racing lanes, with knobs set like a user."""
