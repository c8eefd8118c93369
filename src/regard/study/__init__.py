"""Experiments: one file each, with its settings, run, tables and figure."""
