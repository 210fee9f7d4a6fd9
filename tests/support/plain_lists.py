"""A producer and a reader that have no BullMQ: they know two lists of Redis, and nothing of Holdfast."""

from __future__ import annotations

import json
from typing import Any, Final

from redis import Redis

JOBS: Final = "doc_jobs"
LETTERS: Final = "doc_jobs_dead"


class PlainLists:
    """The lists as the specification's system uses them: ``LPUSH`` by who has something, ``BRPOP`` by who wants it."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def push(self, *jobs: Any) -> None:
        """What a producer does. A job that is no text is sent as JSON."""
        for job in jobs:
            self.redis.lpush(JOBS, job if isinstance(job, str | bytes) else json.dumps(job))

    def pop_letter(self, seconds: float = 60) -> dict[str, Any]:
        """What a reader of dead letters does."""
        found = self.redis.brpop([LETTERS], timeout=seconds)
        assert found is not None, "no dead letter came"
        return json.loads(found[1])

    @property
    def jobs(self) -> list[bytes]:
        return self.redis.lrange(JOBS, 0, -1)

    @property
    def letters(self) -> list[dict[str, Any]]:
        """All that wait, oldest first."""
        return [json.loads(each) for each in reversed(self.redis.lrange(LETTERS, 0, -1))]

    @property
    def taken(self) -> list[bytes]:
        """Jobs that somebody took and has not finished recording."""
        keys = self.redis.keys("{doc_jobs}:holdfast-taken:*")
        return [value for key in keys for value in self.redis.lrange(key, 0, -1)]


def flat(job_id: str, **facts: Any) -> dict[str, Any]:
    """A job as the specification's producers write it."""
    return {"job_id": job_id, "job_type": "OCR", "input_type": "PDF"} | facts
