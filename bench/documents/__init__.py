"""How well and how fast documents are read."""
