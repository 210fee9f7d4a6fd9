"""Fetching files from URLs that strangers give, without becoming their way into our own network."""
