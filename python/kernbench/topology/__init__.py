"""Machine files."""
