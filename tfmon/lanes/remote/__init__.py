"""Lanes on other machines: an agent on each of them, and the connection to it."""
