"""Fetching files from URLs that come from outside. Such a URL must not reach our own network."""
