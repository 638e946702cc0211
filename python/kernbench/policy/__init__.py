"""Placement of tensors, and addresses."""
