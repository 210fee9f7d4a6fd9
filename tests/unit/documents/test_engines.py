"""The table of engines: it is complete, and what it says about results stays the same from release to release."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from holdfast.features.documents.child.port import engine_class
from holdfast.features.documents.child.protocol import Spec, spec_line, spec_of
from holdfast.features.documents.contract import DocumentJob
from holdfast.features.documents.engines import ENGINES, Engine, EngineName, engine_keys, engine_options
from holdfast.features.documents.options import DocumentOptions
from tests.support.settings import Settings


def job(engine, input_type="PDF"):
    job_type = "OCR" if input_type == "PDF" else "TRANSCRIPTION"
    payload = {"local_path": "a", "engine": engine}
    return DocumentJob(job_id="j", job_type=job_type, input_type=input_type, company_id="c", payload=payload)


def options(**settings):
    given = Settings(**settings)
    return DocumentOptions(scratch=Path(), engines=engine_options(given), environment=engine_keys(given))


def test_jobs_commands_and_the_table_have_the_same_names():
    assert list(ENGINES) == list(get_args(Engine)) == list(EngineName)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_found_by_its_name_and_has_a_model(name):
    for kind in ("PDF", "AUDIO"):
        spec = Spec(path="a", job_type="OCR", input_type=kind, engine=name, options=options().engines[name])
        found = engine_class(spec)
        assert found.name == name
        assert found.model_of(spec)
        assert hasattr(found, "read" if kind == "PDF" else "transcribe")


def test_the_settings_of_an_engine_reach_the_child():
    chosen = options(gemini_model="gemini-9", gemini_base_url="http://127.0.0.1:1")
    spec = chosen.spec(job("gemini"), Path("a.pdf"), 0)
    assert spec.options == {"model": "gemini-9", "base_url": "http://127.0.0.1:1"}
    assert spec_of(spec_line(spec)) == spec
    assert options(whisper_model_dir=Path("/m")).spec(job("local"), Path("a"), 0).options == {"model_dir": "/m"}


def test_an_engine_with_a_key_needs_it():
    assert options().missing_key("local") is None
    assert options().missing_key("gemini") == "GEMINI_API_KEY"
    assert options(gemini_api_key="k" * 20).missing_key("gemini") is None
    assert options(gemini_api_key="k" * 20).environment == {"GEMINI_API_KEY": "k" * 20}


def test_what_decides_a_result_names_its_checkpoints_as_before():
    chosen = options(gemini_model="gemini-9", whisper_model_dir=Path("/m"))
    assert options().reading_method(job("local")) == ("c", "OCR", "local", None, None, None)
    assert chosen.reading_method(job("local")) == ("c", "OCR", "local", None, None, None)
    assert chosen.reading_method(job("local", "AUDIO")) == ("c", "TRANSCRIPTION", "local", "/m", None, 60.0)
    assert chosen.reading_method(job("gemini")) == ("c", "OCR", "gemini", "gemini-9", None, None)
    assert chosen.reading_method(job("gemini", "AUDIO")) == ("c", "TRANSCRIPTION", "gemini", "gemini-9", None, 60.0)
