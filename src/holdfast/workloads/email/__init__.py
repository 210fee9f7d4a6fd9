"""Emails: accepted from tenants, recorded in an outbox, sent once, or explained (seed 004)."""
