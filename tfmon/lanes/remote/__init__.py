"""Lanes on other machines."""
