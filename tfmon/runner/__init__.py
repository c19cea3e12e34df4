"""Wires a race: its plan, lanes, probes and recorder; with a screen or without one."""
