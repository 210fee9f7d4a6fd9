"""The model of docs/scale.md against the stored measurement."""

from __future__ import annotations

import pytest

from bench.scale.__main__ import main
from bench.scale.model import TARGET, Part, cpu_of_an_event, first_to_give_way, load, parts
from bench.scale.simulation import delays


def test_the_parts_measured_alone_predict_the_cost_of_intake_and_work_together():
    measured = load()
    together = sum(measured["both_us"].values())
    assert cpu_of_an_event(measured) == pytest.approx(together, rel=0.25)


def test_the_model_predicts_the_measured_rate_from_the_measured_costs():
    point = load()["rate_point"]
    bound = point["cores"] * 1e6 / (point["intake_us"] + point["work_us"])
    assert 0.75 * bound <= point["per_second"] <= 1.05 * bound


def test_each_part_is_below_the_target():
    for part in parts(load()):
        for rate in (1_000, 10_000, 100_000):
            assert part.cores(rate) / (part.copies(rate) * part.most) <= TARGET


def test_what_cannot_be_started_once_more_gives_way_first():
    assert first_to_give_way(load()).alone


def test_an_event_waits_longer_near_the_limit():
    part = Part("one", 100, 1.0, alone=True)
    calm, busy = (delays([part], [1], rate, events=5_000)[1] for rate in (2_000, 9_500))
    assert busy > 3 * calm


def test_it_prints_its_plan(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["bench.scale", "--rates", "1000"])
    assert main() == 0
    assert "first to give way" in capsys.readouterr().out
