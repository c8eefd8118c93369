"""Questions answered by measurement."""
