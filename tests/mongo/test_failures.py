"""What the driver's failures mean: ask again, or the document can never be stored."""

from __future__ import annotations

import pytest
from pymongo.errors import AutoReconnect, BulkWriteError, OperationFailure, ServerSelectionTimeoutError, WriteError

from holdfast.contracts.errors import StoreUnavailable
from holdfast.stores.mongo.failures import Unstorable, is_transient, translate

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
def test_what_a_lost_primary_leaves_passes(error):
    # Taken for a fault of the documents, the batch would be sent again in parts, and find itself to be a duplicate.
    assert is_transient(error)
    assert isinstance(translate(error), StoreUnavailable)


@pytest.mark.parametrize("error", [bulk(TOO_BIG), bulk(DUPLICATE, TOO_BIG), WriteError("no", TOO_BIG)], ids=repr)
def test_what_a_document_is_at_fault_for_does_not_pass(error):
    assert not is_transient(error)
    assert isinstance(translate(error), Unstorable)


def test_what_is_too_much_for_one_transaction_is_no_documents_fault():
    failure = translate(bulk(TOO_MUCH))

    assert isinstance(failure, Unstorable)
    assert "one transaction" in str(failure)


def test_nobody_there_is_told_as_such():
    assert "no primary" in translate(ServerSelectionTimeoutError("nobody")).message
