"""The engine, and records of what it did."""
