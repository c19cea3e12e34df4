"""The state of a race: events, their wire format, bounded histories and the session. Standard library only."""
