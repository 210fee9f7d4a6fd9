"""A MongoDB with users and passwords."""

from __future__ import annotations

import base64
import os

import pytest
from pymongo import MongoClient

from holdfast.cli.servers import free_port
from holdfast.cli.servers.programs import MongoServer
from holdfast.contracts.errors import ConfigurationError
from holdfast.features.courier.workload import Courier
from holdfast.stores.mongo import MongoStore
from tests.mongo.steps import an_event
from tests.support.valkey_server import absent

SECRET = "canary-9Wd3Kx7q"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The address of a server with two users: one may read, one may read and write."""
    from holdfast.cli.servers import ServerMissing

    folder = tmp_path_factory.mktemp("guarded")
    key = folder / "key"
    key.write_text(base64.b64encode(os.urandom(60)).decode())
    key.chmod(0o600)
    try:
        server = MongoServer(folder, free_port(), ["--keyFile", str(key)])
        server.start()
    except ServerMissing as error:
        absent(str(error))
    try:
        # As long as there is no user, a client on the same machine may create the first one.
        with MongoClient(f"mongodb://{server.address}/?directConnection=true") as first:
            members = [{"_id": 0, "host": server.address}]
            first.admin.command("replSetInitiate", {"_id": "holdfast", "members": members})
            server.wait_for(lambda: first.admin.command("hello").get("isWritablePrimary", False), "become primary")
            first.admin.command("createUser", "root", pwd=SECRET, roles=["root"])
        with MongoClient(f"mongodb://root:{SECRET}@{server.address}/?directConnection=true") as root:
            for name, role in (("reader", "read"), ("writer", "readWrite")):
                root.admin.command("createUser", name, pwd=SECRET, roles=[{"role": role, "db": "guarded"}])
        yield server.address
    finally:
        server.kill()


@pytest.fixture
async def store_of(guarded):
    made = []

    def make(user):
        uri = f"mongodb://{user}:{SECRET}@{guarded}/?replicaSet=holdfast&authSource=admin"
        made.append(MongoStore(uri, "guarded", [Courier()]))
        return made[-1]

    yield make
    for store in made:
        await store.disconnect()


@pytest.mark.parametrize(("user", "message"), [("reader", "lacks rights"), ("unknown", "does not accept")])
async def test_a_user_without_rights_is_a_configuration_error(store_of, user, message):
    with pytest.raises(ConfigurationError, match=message) as raised:
        await store_of(user).open()

    assert SECRET not in raised.value.message


async def test_read_and_write_is_all_that_it_takes(store_of):
    store = store_of("writer")
    await store.open()

    (answer,) = await store.record([an_event()])

    assert answer.job_id == "id-k"
    assert await store.missing() == []
