"""What several processes on loopback do together, each a call of this file."""
