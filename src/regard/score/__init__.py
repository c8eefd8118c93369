"""Outputs against references."""
