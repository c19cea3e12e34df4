"""Conclusions from snapshots. Pure: no process, no screen, no clock."""
