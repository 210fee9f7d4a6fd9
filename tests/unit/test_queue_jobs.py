"""The queue's copies of jobs."""

from __future__ import annotations

import pytest

from holdfast.engine.entries import queue_job
from tests.support.workloads import Parcels


@pytest.mark.parametrize(("given", "shown"), [(None, "parcels"), ("parcel:deliver", "parcel:deliver")])
def test_a_job_in_a_queue_has_the_name_that_its_workload_gives(given, shown):
    workload = Parcels()
    workload.job_name = given

    assert queue_job(workload, "id", "{}", attempt=1).name == shown
