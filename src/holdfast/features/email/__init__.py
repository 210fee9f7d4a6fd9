"""Emails: accepted from tenants, recorded in an outbox, and sent once or ended with a reason."""
