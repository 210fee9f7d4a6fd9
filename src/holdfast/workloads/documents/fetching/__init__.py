"""Fetching files from URLs that external producers give, without becoming their way into our own network."""
