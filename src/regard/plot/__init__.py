"""Studies and traces become figures and tables."""
