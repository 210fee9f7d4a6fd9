"""A user's own app, for ``--app tests.cli.parcels:app``: parcels that cannot be delivered the first time."""

from __future__ import annotations

from pydantic import BaseModel

from holdfast import App, Done, ExponentialBackoff, Reject, Workload


class Parcel(BaseModel):
    number: str
    depot: str = "north"
    broken: bool = False
    crash: bool = False


class Parcels(Workload[Parcel]):
    name = "parcels"
    contract = Parcel
    queue = "parcels-main"
    dead_letter_queue = "parcels-dead"
    retry = ExponentialBackoff(max_attempts=2)

    def key(self, data):
        return f"parcel/{data.number}"

    def labels(self, data):
        return {"depot": data.depot, "status": "in a label"}

    def unpack(self, content):
        return content["weight"]

    async def handle(self, job, context):
        if job.data.crash:
            return self.unpack({})
        if job.data.broken and job.generation == 1:
            return Reject("DEPOT_CLOSED" if job.data.depot == "north" else "ROAD_BLOCKED", "Nobody opened.")
        return Done(result={"delivered": True})


app = App([Parcels()])
not_an_app = "something else"
empty = App()


class Unreplayable(Parcels):
    """A workload that cannot make a new job of a dead letter."""

    def replayed(self, letter):
        raise KeyError(letter.id)


unreplayable = App([Unreplayable()])


class Stoppable(Parcels):
    stoppable = True


stoppable = App([Stoppable()])
