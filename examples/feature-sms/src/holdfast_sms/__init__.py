"""Text messages for Holdfast."""
