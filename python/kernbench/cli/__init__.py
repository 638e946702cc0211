"""The command line inside Python."""
