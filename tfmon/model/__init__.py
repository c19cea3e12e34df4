"""What is known: events, their wire format, bounded histories and the session. Standard library only."""
