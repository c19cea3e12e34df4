"""Conclusions from snapshots, without process, screen or clock."""
