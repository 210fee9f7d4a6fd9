"""Where uploads and results are kept: a folder, or a bucket."""
