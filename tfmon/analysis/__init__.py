"""What follows from what is known: who is ahead and by how much. Pure: no process, no screen, no clock."""
