"""The one place where exceptions become failures with a name: transient, permanent or unknown (C18, C21, C24)."""

from __future__ import annotations

import asyncio
import errno
import socket
from datetime import timedelta

import pytest
from pydantic import BaseModel, ValidationError

from holdfast import Failure, PermanentError, ThrottledError, TransientError
from holdfast.engine.failures import classify
from tests.support.workloads import Parcels

SECRET = "password=hunter2"


class Person(BaseModel):
    cpf: int
    name: str


def validation_error() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Person.model_validate({"cpf": "529.982.247-25"})
    return caught.value


@pytest.mark.parametrize("error", [TimeoutError(), TimeoutError("secret host")])
def test_timeouts_are_transient(error):
    failure = classify(error, Parcels())

    assert (failure.code, failure.retry, failure.after) == ("TIMEOUT", True, None)
    assert "secret" not in failure.message


def test_the_operating_systems_timeout_is_transient():
    failure = classify(OSError(errno.ETIMEDOUT, "Connection timed out"), Parcels())

    assert failure.retry
    assert failure.code in {"ETIMEDOUT", "TIMEOUT"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "ECONNREFUSED"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset"), "ECONNRESET"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "EPIPE"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "EHOSTUNREACH"),
        (OSError(errno.ENOSPC, "No space left on device"), "ENOSPC"),
        (ConnectionError("peer went away"), "CONNECTION"),
    ],
)
def test_connection_failures_are_transient(error, code):
    failure = classify(error, Parcels())

    assert (failure.code, failure.retry) == (code, True)


def test_an_unknown_host_is_transient():
    assert classify(socket.gaierror(socket.EAI_NONAME, "Name or service not known"), Parcels()).retry


def test_validation_errors_are_permanent():
    failure = classify(validation_error(), Parcels())

    assert (failure.code, failure.retry) == ("VALIDATION_FAILED", False)
    assert "cpf" in failure.message
    assert "name" in failure.message
    assert "529" not in failure.message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd"),
        KeyError("missing"),
        RuntimeError(),
        ZeroDivisionError(),
        ExceptionGroup("several", [ValueError("one"), OSError("two")]),
        asyncio.CancelledError(),
        SystemExit(3),
    ],
)
def test_unknown_errors_are_transient_and_unclassified(error):
    failure = classify(error, Parcels())

    assert (failure.code, failure.retry) == ("UNCLASSIFIED", True)
    assert type(error).__name__ in failure.message


def test_what_a_handler_says_on_purpose_is_taken_at_its_word():
    workload = Parcels()

    assert classify(TransientError("BUSY", "later"), workload) == Failure("BUSY", "later", retry=True)
    assert classify(PermanentError("GONE", "never"), workload) == Failure("GONE", "never", retry=False)


def test_a_throttle_says_when_to_come_back():
    failure = classify(ThrottledError(retry_after=timedelta(seconds=90)), Parcels())

    assert (failure.code, failure.retry, failure.after) == ("THROTTLED", True, timedelta(seconds=90))


def test_the_workload_is_asked_first():
    class Particular(Parcels):
        def classify(self, error):
            if isinstance(error, TimeoutError):
                return Failure("HUNG_UP", SECRET, retry=False)
            return None

    assert classify(TimeoutError(), Particular()) == Failure("HUNG_UP", "password=***", retry=False)
    assert classify(ValueError("odd"), Particular()).code == "UNCLASSIFIED"


@pytest.mark.parametrize(
    "error",
    [TransientError("BUSY", SECRET), PermanentError("GONE", SECRET), ValueError(SECRET), OSError(errno.EIO, SECRET)],
)
def test_no_failure_tells_a_secret(error):
    assert "hunter2" not in classify(error, Parcels()).message


def test_a_message_is_text_that_every_store_can_keep():
    failure = classify(ValueError("caf\udce9"), Parcels())

    failure.message.encode()
    assert "ValueError" in failure.message


def test_a_message_has_an_end():
    assert len(classify(ValueError("x" * 100_000), Parcels()).message) <= 500
