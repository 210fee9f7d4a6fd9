"""Looking jobs up, and the history of a queue."""

from __future__ import annotations

from holdfast.contracts.queues import Again, Failed, Finished, Presence
from tests.conformance.broker.deliveries import HOUR, OTHER, QUEUE, job, settle, take


class Looking:
    async def test_what_waits_is_delayed_or_in_work_is_open_and_the_rest_is_absent(self, broker):
        await broker.publish(QUEUE, [job("is-active")])
        await take(broker)
        await broker.publish(
            QUEUE, [job("is-waiting"), job("is-by-priority", priority=3), job("is-delayed", delay=HOUR)]
        )
        await broker.publish(OTHER, [job("elsewhere")])

        found = await broker.look_up(
            QUEUE, ["is-waiting", "elsewhere", "is-active", "is-by-priority", "is-delayed", "never"]
        )

        open_, absent = Presence.OPEN, Presence.ABSENT
        assert found == [open_, absent, open_, open_, open_, absent]
        assert await broker.look_up(QUEUE, []) == []

    async def test_what_we_ended_is_not_open_and_not_somebody_elses(self, harness, broker):
        for number, handling in enumerate((Finished('{"ok":true}'), Finished(), Failed("boom"))):
            await broker.publish(QUEUE, [job(f"j{number}")])
            await settle(broker, handling, *await take(broker))
        await broker.publish(QUEUE, [job("again")])
        await settle(broker, Again(reason="not yet"), *await take(broker))

        found = await (await harness.broker()).look_up(QUEUE, ["j0", "j1", "j2", "again"])

        assert set(found[:3]) <= {Presence.ENDED, Presence.ABSENT}
        assert found[3] is Presence.OPEN

    async def test_the_history_does_not_contain_our_own_work(self, harness, broker):
        """Whichever of our brokers ended the jobs, one by one or in batches, and whatever happened in between."""
        other = await harness.broker()
        for number in range(5):
            await broker.publish(QUEUE, [job(f"a{number}"), job(f"b{number}"), job(f"c{number}")])
            first, second = await take(broker, 1), await take(other, 2)
            await settle(broker, Finished(), *first)
            await broker.publish(QUEUE, [job(f"d{number}")])
            await settle(other, Failed("boom"), *second)
            await settle(broker, Finished(), *await take(broker))

        assert (await broker.history(QUEUE)).ended == ()
        position, more = "0", True
        while more:
            history = await other.history(QUEUE, position)
            assert history.ended == ()
            position, more = history.position, history.more

    async def test_a_queue_without_events_has_an_empty_history(self, broker):
        history = await broker.history(QUEUE)

        assert (history.ended, history.more) == ((), False)
