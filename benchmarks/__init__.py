"""Benchmark suites, one script per question, and the report made from their results."""
