"""Courier events: signed, applied to shipments, and forwarded to a downstream if one is configured."""
