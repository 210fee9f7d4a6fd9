"""Recognising requests to Redis in a proxy."""

from __future__ import annotations


def is_a(script):
    return lambda request: script.sha.encode() in request or script.source[:400].encode() in request
