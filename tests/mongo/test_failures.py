"""The driver's failures: transient, or caused by a document that can never be stored."""

from __future__ import annotations

import pytest
from pymongo.errors import AutoReconnect, BulkWriteError, OperationFailure, ServerSelectionTimeoutError, WriteError

from holdfast.contracts.errors import StoreUnavailable
from holdfast.stores.mongo.server import Unstorable, is_transient, translate

DUPLICATE, TOO_BIG, STEPPED_DOWN, INTERRUPTED, TOO_MUCH = 11000, 10334, 189, 11602, 388


def bulk(*written, concerns=()):
    return BulkWriteError(
        {
            "writeErrors": [{"index": number, "code": code} for number, code in enumerate(written)],
            "writeConcernErrors": [{"code": code} for code in concerns],
        }
    )


@pytest.mark.parametrize(
    "error",
    [
        AutoReconnect("lost"),
        OperationFailure("not primary", 10107),
        bulk(INTERRUPTED),
        bulk(concerns=[STEPPED_DOWN]),
        bulk(DUPLICATE, INTERRUPTED),
        bulk(DUPLICATE, concerns=[STEPPED_DOWN]),
    ],
    ids=repr,
)
def test_failures_of_a_lost_primary_are_transient(error):
    # If they counted as failures of a document, the batch would be sent again in parts, and find its own duplicates.
    assert is_transient(error)
    assert isinstance(translate(error), StoreUnavailable)


@pytest.mark.parametrize("error", [bulk(TOO_BIG), bulk(DUPLICATE, TOO_BIG), WriteError("no", TOO_BIG)], ids=repr)
def test_failures_that_a_document_causes_are_not_transient(error):
    assert not is_transient(error)
    assert isinstance(translate(error), Unstorable)


def test_a_transaction_that_is_too_large_blames_no_document():
    failure = translate(bulk(TOO_MUCH))

    assert isinstance(failure, Unstorable)
    assert "one transaction" in str(failure)


def test_the_message_says_that_there_is_no_primary():
    assert "no primary" in translate(ServerSelectionTimeoutError("nobody")).message
