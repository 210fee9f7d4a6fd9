"""The HTTP API: the frame around the routes of the features, and the routes of jobs, dead letters and health.

Start at ``app.create_app``. It is not imported here: commands that only read a store need no web framework, which takes
longer to load than such a command takes to run. The package knows no feature: each brings its own routes.
"""
