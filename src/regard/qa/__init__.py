"""Question answering, end to end."""
