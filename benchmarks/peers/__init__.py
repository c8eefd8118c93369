"""Other systems of the same shape as ours, and the work that all of them get."""
