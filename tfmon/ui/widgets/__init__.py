"""Textual widgets that show rows."""
