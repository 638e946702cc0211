"""Which PE has which part of a tensor."""
