"""The screens and pages: each turns rows into a view, and key presses into requests."""
