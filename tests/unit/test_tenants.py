from __future__ import annotations

import hashlib
import hmac
from datetime import timedelta

import pytest

from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import NotFound
from holdfast.contracts.tenants import (
    API_KEYS,
    TENANT_COLLECTIONS,
    TENANTS,
    KeyRefused,
    ScopeMissing,
    TenantInactive,
    TenantLimits,
    TenantTaken,
)
from holdfast.engine import tenants as engine_tenants
from holdfast.engine.tenants import Tenants
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.support.clock import ManualClock

SCOPES = ("email:send", "email:read", "documents:read")
ID = "789e4567-e89b-12d3-a456-426614174999"
ONE_DAY = timedelta(days=1)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(tmp_path, clock):
    database = Database(tmp_path / "holdfast.db", now=clock.ms)
    store = SqliteStore(database, [], collections=TENANT_COLLECTIONS)
    await store.open()
    yield store
    await database.close()


@pytest.fixture
def tenants(store, clock):
    return Tenants(store, clock, SCOPES)


@pytest.fixture
async def acme(tenants):
    return await tenants.add("Acme", company_id=ID, sender="mail@acme.example", rate_per_second=5)


# --- tenants ----------------------------------------------------------------------------------------------------------


async def test_a_tenant_is_kept_as_it_was_added(tenants, acme):
    assert await tenants.get(ID) == acme
    assert (acme.name, acme.sender, acme.rate_per_second, acme.active) == ("Acme", "mail@acme.example", 5, True)


async def test_a_tenant_without_an_id_gets_a_uuid_of_its_own(tenants):
    first, second = await tenants.add("One"), await tenants.add("Two")
    assert first.company_id != second.company_id
    assert first.company_id[14] == "4"
    assert [each.name for each in await tenants.everyone()] == ["One", "Two"]


async def test_tenants_are_listed_by_name_however_many_there_are(tenants):
    names = [f"tenant {number:03}" for number in range(205)]
    for name in reversed(names):
        await tenants.add(name)
    assert [each.name for each in await tenants.everyone()] == names


@pytest.mark.parametrize("again", [{"name": "Acme"}, {"name": "Another", "company_id": ID.upper()}])
async def test_an_id_or_a_name_is_given_once(tenants, acme, again):
    with pytest.raises(TenantTaken):
        await tenants.add(**again)
    assert await tenants.everyone() == [acme]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "  "}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "Ok", "company_id": "17"}, "id"),
        ({"name": "Ok", "rate_per_second": 0}, "rate"),
    ],
)
async def test_a_tenant_that_cannot_be_is_refused_by_field(tenants, wrong, field):
    with pytest.raises(InvalidContent) as caught:
        await tenants.add(**wrong)
    assert [each.field for each in caught.value.problems] == [field]


@pytest.mark.parametrize("reference", [ID, "Acme", " Acme "])
async def test_a_tenant_is_found_by_id_or_name(tenants, acme, reference):
    assert await tenants.named(reference) == acme


async def test_an_unknown_tenant_is_not_found(tenants, acme):
    with pytest.raises(NotFound):
        await tenants.named("Acm")


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_opens_for_its_tenant_with_its_scopes(tenants, acme):
    key, text = await tenants.create_key(ID, scopes=["email:read"], label="reports", created_by="ana")
    principal = await tenants.authenticate(text)
    assert (principal.tenant, principal.key_id) == (acme, key.key_id)
    assert principal.company_id == ID
    principal.require("email:read")
    with pytest.raises(ScopeMissing, match="email:send"):
        principal.require("email:send")


async def test_the_store_holds_the_hash_of_a_key_and_never_the_key(tenants, acme, store):
    key, text = await tenants.create_key(ID)
    _, _, secret = text.split("_", 2)
    assert text.startswith(f"hf_{key.key_id}_")
    assert len(secret) == 43
    document = await store.get(API_KEYS, key.key_id)
    assert document["digest"] == hashlib.sha256(text.encode()).hexdigest()
    assert secret not in str(document)
    assert secret not in repr(key)


async def test_no_two_keys_are_alike(tenants, acme):
    texts = {(await tenants.create_key(ID))[1] for _ in range(20)}
    assert len(texts) == 20


async def test_a_key_takes_all_its_chance_from_the_source(store, clock, acme):
    asked = []

    def entropy(size):
        asked.append(size)
        return bytes([len(asked)]) * size

    _, text = await Tenants(store, clock, SCOPES, entropy).create_key(ID)
    assert asked == [8, 32]
    assert text.startswith("hf_0101010101010101_AgIC")


async def test_a_key_stops_working_when_its_time_is_over_and_not_before(tenants, acme, clock):
    _, text = await tenants.create_key(ID, not_after=clock.now() + ONE_DAY)
    clock.advance(ONE_DAY - timedelta(milliseconds=1))
    assert (await tenants.authenticate(text)).company_id == ID
    clock.advance(timedelta(milliseconds=1))
    with pytest.raises(KeyRefused):
        await tenants.authenticate(text)


async def test_a_revoked_key_opens_nothing_and_the_others_still_do(tenants, acme, clock):
    key, text = await tenants.create_key(ID)
    _, other = await tenants.create_key(ID)
    revoked = await tenants.revoke(key.key_id)
    first_time = revoked.revoked_at
    with pytest.raises(KeyRefused):
        await tenants.authenticate(text)
    assert (await tenants.authenticate(other)).company_id == ID
    clock.advance(ONE_DAY)
    assert (await tenants.revoke(key.key_id)).revoked_at == first_time


async def test_the_keys_of_an_inactive_tenant_open_nothing(tenants, acme, store):
    _, text = await tenants.create_key(ID)
    await store.apply([Upsert(TENANTS, ID, {"active": False})])
    with pytest.raises(TenantInactive):
        await tenants.authenticate(text)
    # Only who has a right key learns that the tenant is inactive.
    with pytest.raises(KeyRefused):
        await tenants.authenticate(wrong_secret(text))


async def test_a_deactivated_tenant_can_be_activated_again(tenants, acme):
    _, text = await tenants.create_key(ID)
    principal = await tenants.authenticate(text)
    assert not (await tenants.set_active(ID, active=False)).active
    with pytest.raises(TenantInactive):
        await tenants.authenticate(text)
    assert not await tenants.still_allowed(principal)
    assert await tenants.set_active(ID, active=True) == acme
    assert await tenants.authenticate(text) == principal
    assert await tenants.still_allowed(principal)
    with pytest.raises(NotFound):
        await tenants.set_active("nobody", active=False)


async def test_limits_are_kept_with_the_tenant_and_come_with_its_key(tenants, acme):
    _, text = await tenants.create_key(ID)
    assert (await tenants.authenticate(text)).limits == TenantLimits()
    own = TenantLimits(requests_per_second=50, stored_bytes=10**12)
    assert (await tenants.set_limits(ID, own)).limits == own
    principal = await tenants.authenticate(text)
    assert (principal.limits, principal.sender.limits) == (own, own)
    assert principal.tenant.name == "Acme"
    assert (await tenants.set_limits(ID, TenantLimits())).limits == TenantLimits()


@pytest.mark.parametrize("wrong", [0, -1, 2**53])
async def test_a_limit_that_cannot_be_is_refused_by_field(tenants, acme, wrong):
    with pytest.raises(InvalidContent) as caught:
        await tenants.set_limits(ID, TenantLimits(waiting_jobs=wrong))
    assert [each.field for each in caught.value.problems] == ["waitingJobs"]
    with pytest.raises(NotFound):
        await tenants.set_limits("nobody", TenantLimits())


# --- the work of authentication ---------------------------------------------------------------------------------------


def wrong_secret(text):
    return text[:-1] + ("A" if text[-1] != "A" else "B")


@pytest.fixture
def work(store, monkeypatch):
    """What authentication does: reads of the store, hashes, comparisons."""
    done = []
    get, compare, digest = store.get, hmac.compare_digest, engine_tenants._digest

    async def counted_get(collection, key):
        done.append(f"read {collection}")
        return await get(collection, key)

    def counted_compare(first, second):
        done.append("compare")
        return compare(first, second)

    def counted_digest(text):
        done.append("hash")
        return digest(text)

    monkeypatch.setattr(store, "get", counted_get)
    monkeypatch.setattr(engine_tenants.hmac, "compare_digest", counted_compare)
    monkeypatch.setattr(engine_tenants, "_digest", counted_digest)
    return done


async def test_an_unknown_key_takes_the_same_work_as_a_wrong_secret(tenants, acme, work):
    _, text = await tenants.create_key(ID)
    await tenants.authenticate(text)  # a key in use is remembered, and even so its wrong secrets take the same work
    unknown = f"hf_{'0' * 16}_{text.split('_', 2)[2]}"
    works = []
    for wrong in (unknown, wrong_secret(text), unknown, wrong_secret(text)):
        work.clear()
        with pytest.raises(KeyRefused):
            await tenants.authenticate(wrong)
        works.append(tuple(work))
    assert set(works) == {("hash", "compare", "read api_keys", "compare")}


async def test_a_key_in_use_is_read_from_the_store_twice_a_second_at_most(tenants, acme, work, clock):
    _, text = await tenants.create_key(ID)
    work.clear()
    for _ in range(40):
        principal = await tenants.authenticate(text)
        await tenants.still_allowed(principal)
        clock.advance(timedelta(milliseconds=25))
    assert work.count("read api_keys") == 2
    assert work.count("read tenants") == 2


async def test_a_change_of_another_process_counts_within_a_second(tenants, acme, store, clock):
    elsewhere = Tenants(store, clock, SCOPES)
    key, text = await tenants.create_key(ID)
    _, other = await tenants.create_key(ID)
    principals = [await elsewhere.authenticate(each) for each in (text, other)]
    await tenants.revoke(key.key_id)
    clock.advance(timedelta(milliseconds=500))
    assert [await elsewhere.still_allowed(each) for each in principals] == [False, True]
    with pytest.raises(KeyRefused):
        await elsewhere.authenticate(text)
    await tenants.set_active(ID, active=False)
    clock.advance(timedelta(milliseconds=500))
    assert not await elsewhere.still_allowed(principals[1])
    with pytest.raises(TenantInactive):
        await elsewhere.authenticate(other)


async def test_only_so_many_keys_are_remembered_and_no_wrong_ones(tenants, acme, monkeypatch):
    monkeypatch.setattr(engine_tenants, "_MOST_REMEMBERED", 2)
    for _ in range(5):
        _, text = await tenants.create_key(ID)
        await tenants.authenticate(text)
        with pytest.raises(KeyRefused):
            await tenants.authenticate(f"hf_{'0' * 16}_{text.split('_', 2)[2]}")
    assert len(tenants._known) == 2


async def test_every_wrong_key_gets_the_same_answer(tenants, acme, clock):
    key, text = await tenants.create_key(ID)
    expired, expired_text = await tenants.create_key(ID, not_after=clock.now() + ONE_DAY)
    clock.advance(ONE_DAY)
    last = "A" if text[-1] != "A" else "B"
    wrong = [
        "",
        "hf_",
        "nonsense",
        text[:-1],
        text + "x",
        text[:-1] + last,
        text.upper(),
        f"hf_{'0' * 16}_{text.split('_', 2)[2]}",
        f"hf_{expired.key_id}_{text.split('_', 2)[2]}",
        f"{text}\n",
        "hf_\udcff",
        expired_text,
    ]
    answers = set()
    for each in wrong:
        with pytest.raises(KeyRefused) as caught:
            await tenants.authenticate(each)
        answers.add(str(caught.value))
    assert len(answers) == 1
    assert key.key_id not in answers.pop()


async def test_a_key_needs_a_tenant_a_scope_and_a_future(tenants, acme, clock):
    with pytest.raises(NotFound):
        await tenants.create_key("123e4567-e89b-12d3-a456-426614174000")
    for wrong in ({"scopes": []}, {"not_after": clock.now()}, {"label": "a\nb"}):
        with pytest.raises(InvalidContent):
            await tenants.create_key(ID, **wrong)
    assert await tenants.keys() == []


async def test_keys_are_listed_oldest_first_for_one_tenant_or_all(tenants, acme, clock):
    other = await tenants.add("Other")
    made = []
    for company_id in (ID, other.company_id, ID):
        made.append((await tenants.create_key(company_id))[0])
        clock.advance(ONE_DAY)
    assert await tenants.keys() == made
    assert await tenants.keys(ID) == [made[0], made[2]]


async def test_a_scope_that_this_version_does_not_know_opens_nothing(tenants, acme, store):
    key, text = await tenants.create_key(ID)
    await store.apply([Upsert(API_KEYS, key.key_id, {"scopes": ["email:read", "everything"]})])
    assert (await tenants.authenticate(text)).scopes == {"email:read"}


async def test_all_requests_with_a_key_share_one_principal_until_it_is_read_again(tenants, acme):
    _, key = await tenants.create_key(acme.company_id)
    first = await tenants.authenticate(key)
    assert await tenants.authenticate(key) is first
    await tenants.set_limits(acme.company_id, TenantLimits(pending=1))
    assert (await tenants.authenticate(key)).sender.limits.pending == 1
