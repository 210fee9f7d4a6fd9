import httpx
import orders
import pytest

from holdfast import JobCancelled

LAMP = orders.Order(shop="north", number="7")


@pytest.fixture
def answers(monkeypatch):
    codes = []  # what the warehouse answers next; 200 when the list is empty
    content = {"place": "A-1", "missing": [LAMP.model_dump()]}
    transport = httpx.MockTransport(lambda _: httpx.Response(codes.pop(0) if codes else 200, json=content))
    monkeypatch.setattr(orders, "warehouse", httpx.AsyncClient(base_url="http://warehouse", transport=transport))
    return codes


def test_an_order_arrives_although_the_warehouse_is_away(harness, answers):
    answers += [503, 429]
    order = harness.submit(orders.sync_order, LAMP)
    harness.advance("1m")
    assert (harness.result(order), harness.sent(orders.confirm_order)) == ("A-1", [LAMP])


def test_an_order_that_the_warehouse_refuses_is_a_dead_letter(harness, answers):
    answers += [422]
    harness.submit(orders.sync_order, LAMP)
    harness.settle()
    assert [letter.reason_code for letter in harness.dead_letters()] == ["HTTP_422"]


def test_a_shop_has_five_calls_a_second(harness, answers):
    for number in range(20):
        harness.submit(orders.sync_order, orders.Order(shop="north", number=str(number)))
    harness.advance("900ms")
    assert len(harness.sent(orders.confirm_order)) == 5


def test_an_order_can_be_cancelled_while_it_waits(harness, answers):
    order = harness.submit(orders.sync_order, LAMP, delay="1h")
    harness.cancel(order)
    with pytest.raises(JobCancelled):
        harness.result(order)


def test_missing_orders_are_synced_in_the_night(harness, answers):
    harness.advance("1d")
    assert harness.sent(orders.sync_order) == [LAMP]
