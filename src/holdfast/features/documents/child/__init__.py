"""The code of the child process: one process for each attempt. Only this package imports the heavy libraries."""
