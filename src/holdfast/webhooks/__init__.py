"""Signed webhooks: messages to other servers, in the format of Standard Webhooks.

- ``signing``: how a message is signed.
- ``sender``: sends a message, and says what becomes of the job.
- ``addresses``: where a URL from outside may lead. ``client``: HTTP to such addresses, or to an operator's own server.
"""
