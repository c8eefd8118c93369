"""HTTP and the built page: a trace becomes JSON, and JSON becomes a view."""
