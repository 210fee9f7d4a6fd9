"""Recordings: what is heard of them, where they are cut, and what is said about those that cannot be heard."""

from __future__ import annotations

import tracemalloc
import wave
from itertools import pairwise

import numpy as np
import pytest

from holdfast.features.documents.child import media
from holdfast.features.documents.child.media import read_recording
from holdfast.features.documents.child.protocol import Plan, Segment, Spec, Stage, Unit
from holdfast.features.documents.failures import Code, DocumentFailure
from tests.support import recordings
from tests.support.recordings import RATE, kennedy, silence, tone

WITHOUT_A_SAMPLE = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\0\0\0\0"


class Listener:
    """An engine that keeps what it is given to hear."""

    name, model = "local", "listener"

    def __init__(self, language="pt"):
        self.made = 0
        self.heard = []
        self.languages = []
        self._language = language

    def __call__(self):
        self.made += 1
        return self

    def transcribe(self, sound, *, language):
        self.heard.append(sound)
        self.languages.append(language)
        return self._language, (Segment(start=0.25, end=len(sound) / RATE + 9, text="words", confidence=0.5),)


@pytest.fixture
def read(tmp_path):
    """Reads the bytes of a recording; what was told, and by whom it was heard."""

    def reading(content, listener=None, /, **settings):
        path = tmp_path / "recording"
        path.write_bytes(content)
        listener = listener or Listener()
        told = []
        settings = {"input_type": "AUDIO", "chunk_seconds": 4.0, **settings}
        read_recording(Spec(path=str(path), job_type="TRANSCRIPTION", **settings), told.append, listener)
        return told, listener

    return reading


def units(told):
    return [message for message in told if isinstance(message, Unit)]


def refusal(reading, *args, **settings):
    with pytest.raises(DocumentFailure) as caught:
        reading(*args, **settings)
    return caught.value


def loudness(sound):
    """The loudness of each tenth of a second."""
    whole = len(sound) // 1600 * 1600
    return np.sqrt(np.square(sound[:whole]).reshape(-1, 1600).mean(axis=1))


@pytest.mark.parametrize(
    ("made", "input_type"),
    [
        (recordings.wav, "AUDIO"),
        (recordings.flac, "AUDIO"),
        (recordings.mp3, "AUDIO"),
        (lambda sound: recordings.mp3(sound, cover=True), "AUDIO"),
        (recordings.opus, "AUDIO"),
        (recordings.m4a, "AUDIO"),
        (recordings.mp4, "VIDEO"),
        (recordings.webm, "VIDEO"),
    ],
    ids=["wav", "flac", "mp3", "mp3 with a cover", "opus", "mp4 of sound alone", "mp4", "webm"],
)
def test_what_people_send_is_heard_as_it_was_said(read, made, input_type):
    told, listener = read(made(kennedy()), input_type=input_type)

    assert isinstance(told[0], Plan)
    assert (told[0].unit, told[0].engine, told[0].model) == ("chunk", "local", "whisper-base")
    assert told[0].duration == pytest.approx(11.0, abs=0.02)
    assert told[0].units == len(units(told)) > 1
    assert told[1] == Stage(stage="loading")
    assert all(sound.dtype == np.float32 for sound in listener.heard)
    heard = np.concatenate(listener.heard)
    assert 0 <= len(heard) - len(kennedy()) <= 0.02 * RATE
    count = len(kennedy()) // 1600 - 1
    assert np.corrcoef(loudness(heard)[:count], loudness(kennedy())[:count])[0, 1] > 0.98


def test_cuts_are_in_pauses_and_the_stretches_are_the_whole(read):
    # Words of 1.7 s, with pauses of 0.5 s between them and a stop of 0.1 s inside each.
    word = np.concatenate([tone(0.8), silence(0.1), tone(0.8)])
    sound = np.concatenate([word, silence(0.5)] * 12)

    told, listener = read(recordings.wav(sound), chunk_seconds=5.0)

    results = [unit.result for unit in units(told)]
    assert [unit.index for unit in units(told)] == list(range(told[0].units))
    assert len(results) >= 5
    for before, after in pairwise(results):
        assert before["end"] == after["start"]
        assert 1.7 < before["end"] % 2.2 < 2.2
        assert 4.0 <= before["end"] - before["start"] <= 6.0
    assert (results[0]["start"], results[-1]["end"]) == (0.0, told[0].duration)
    assert 1.5 <= results[-1]["end"] - results[-1]["start"] <= 7.5
    np.testing.assert_allclose(np.concatenate(listener.heard), sound, atol=1e-3)


def test_times_are_those_of_the_recording_and_stay_within_their_stretch(read):
    told, _ = read(recordings.wav(kennedy()))

    for unit in units(told):
        result = unit.result
        assert result["segments"] == (
            {
                "start": pytest.approx(result["start"] + 0.25, abs=0.002),
                "end": result["end"],
                "text": "words",
                "confidence": 0.5,
            },
        )


def test_who_goes_on_cuts_in_the_same_places_and_hears_only_what_is_left(read):
    file = recordings.mp3(recordings.speech())
    whole, first = read(file)

    rest, second = read(file, done=3)

    assert rest[0] == whole[0]
    assert [unit.index for unit in units(rest)] == list(range(3, whole[0].units))
    for again, before in zip(units(rest), units(whole)[3:], strict=True):
        assert {**again.result, "seconds": 0} == {**before.result, "seconds": 0}
    for again, before in zip(second.heard, first.heard[3:], strict=True):
        np.testing.assert_array_equal(again, before)


def test_when_nothing_is_left_no_engine_is_made(read):
    plan = read(recordings.wav(kennedy()))[0][0]

    told, listener = read(recordings.wav(kennedy()), done=plan.units)

    assert told == [plan]
    assert listener.made == 0


def test_silence_has_no_segments_and_needs_no_engine(read):
    told, listener = read(recordings.wav(silence(9)))

    assert [(unit.result["segments"], unit.result["language"]) for unit in units(told)] == [((), None)] * 2
    assert listener.made == 0


def test_the_first_stretch_with_speech_decides_the_language_and_the_engine_is_made_once(read):
    sound = np.concatenate([silence(4), kennedy()])

    _, detecting = read(recordings.wav(sound))
    _, told = read(recordings.wav(sound), language="en-US")

    assert len(detecting.languages) > 2
    assert detecting.languages == [None] + ["pt"] * (len(detecting.languages) - 1)
    assert set(told.languages) == {"en-US"}
    assert detecting.made == 1


def test_sound_that_begins_late_in_a_video_keeps_its_times(read):
    told, listener = read(recordings.mp4(tone(3), late=2.5), input_type="VIDEO", chunk_seconds=60)

    loud = np.flatnonzero(abs(listener.heard[0]) > 0.1)
    assert loud[0] / RATE == pytest.approx(2.5, abs=0.1)
    assert told[0].duration == pytest.approx(5.5, abs=0.1)


def test_a_long_recording_is_never_in_memory_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(media, "_HEARTBEAT", 60 * RATE)
    minutes = 3
    path = tmp_path / "long.wav"
    samples = (recordings.noise(60, 0.1) * 32767).astype("<i2").tobytes()
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        for _ in range(minutes):
            file.writeframesraw(samples)

    class Forgetful(Listener):
        def transcribe(self, sound, *, language):
            self.heard.append(len(sound))
            return None, ()

    listener, told = Forgetful(), []
    spec = Spec(path=str(path), job_type="TRANSCRIPTION", input_type="AUDIO", chunk_seconds=10)
    tracemalloc.start()
    try:
        read_recording(spec, told.append, listener)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert sum(listener.heard) == minutes * 60 * RATE
    assert max(listener.heard) <= 15 * RATE
    assert peak < minutes * 60 * RATE * 4 / 2
    # Somebody waits for a sign of life while the pauses are looked for.
    assert told[:2] == [Stage(stage="loading")] * 2
    assert isinstance(told[2], Plan)


@pytest.mark.parametrize(
    ("made", "input_type", "code"),
    [
        (lambda: recordings.wav(tone(2)), "VIDEO", Code.CONTENT_MISMATCH),
        (lambda: recordings.mp3(tone(2), cover=True), "VIDEO", Code.CONTENT_MISMATCH),
        (lambda: recordings.mp4(tone(2)), "AUDIO", Code.CONTENT_MISMATCH),
        (lambda: recordings.mp4(None), "AUDIO", Code.CONTENT_MISMATCH),
        (lambda: recordings.mp4(None), "VIDEO", Code.NO_AUDIO_TRACK),
        (lambda: recordings.webm(None), "VIDEO", Code.NO_AUDIO_TRACK),
        (lambda: recordings.of_unknown_codec(tone(2)), "AUDIO", Code.UNSUPPORTED_CODEC),
        (lambda: b"", "AUDIO", Code.MEDIA_CORRUPT),
        (lambda: b"MZ" + np.random.default_rng(3).bytes(50_000), "AUDIO", Code.MEDIA_CORRUPT),
        (lambda: recordings.wav(tone(2))[:44], "AUDIO", Code.MEDIA_CORRUPT),
        (lambda: WITHOUT_A_SAMPLE, "AUDIO", Code.MEDIA_CORRUPT),
    ],
    ids=[
        "sound said to be video",
        "an album said to be video",
        "video said to be sound",
        "silent film said to be sound",
        "mp4 without a track",
        "webm without a track",
        "unknown codec",
        "empty file",
        "rubbish",
        "a header alone",
        "a whole recording of nothing",
    ],
)
def test_what_cannot_be_heard_is_told_apart(read, tmp_path, made, input_type, code):
    failure = refusal(read, made(), input_type=input_type)

    assert failure.code == code
    assert str(tmp_path) not in f"{failure.message} {failure.detail}"


@pytest.mark.parametrize("made", ["wav", "flac", "mp3", "opus", "m4a", "mp4", "webm"])
def test_a_recording_that_is_cut_short_is_damaged_and_not_a_shorter_recording(read, made):
    file = getattr(recordings, made)(kennedy())

    for part in (0.5, 0.8):
        cut = recordings.truncated(file, part)
        failure = refusal(read, cut, input_type="VIDEO" if made in {"mp4", "webm"} else "AUDIO")
        assert failure.code == Code.MEDIA_CORRUPT


def test_a_wav_from_a_pipe_that_does_not_know_its_length_is_fine(read):
    file = recordings.wav(kennedy())
    at = file.index(b"data")
    unsure = file[:4] + b"\xff" * 4 + file[8 : at + 4] + b"\xff" * 4 + file[at + 8 :]

    assert read(unsure)[0][0].duration == pytest.approx(11.0, abs=0.02)


def test_a_few_damaged_frames_are_forgiven_and_many_are_not(read):
    file = recordings.m4a(kennedy())
    rubbish = np.random.default_rng(5).bytes(30_000)

    little = read(file[:30_000] + rubbish[:300] + file[30_300:])[0][0]

    assert little.duration == pytest.approx(11.0, abs=0.2)
    assert refusal(read, file[:30_000] + rubbish + file[60_000:]).code == Code.MEDIA_CORRUPT


@pytest.mark.parametrize("made", [recordings.wav, recordings.mp3, recordings.opus])
def test_a_recording_longer_than_allowed_is_too_large(read, made):
    assert read(made(tone(3)), max_seconds=4)[0][0].units == 1
    assert refusal(read, made(tone(5)), max_seconds=4).code == Code.TOO_LARGE


def test_a_file_that_cannot_be_had_is_a_matter_of_io(tmp_path):
    def reading(path):
        spec = Spec(path=str(path), job_type="TRANSCRIPTION", input_type="AUDIO")
        read_recording(spec, lambda message: None, Listener())

    missing = refusal(reading, tmp_path / "nothing.wav")
    folder = refusal(reading, tmp_path)

    assert (missing.code, folder.code) == (Code.FILE_NOT_FOUND, Code.FILE_UNREADABLE)
    assert str(tmp_path) not in f"{missing.message} {missing.detail} {folder.message} {folder.detail}"


def test_a_playlist_does_not_lead_to_other_files(read, tmp_path):
    (tmp_path / "secret.wav").write_bytes(recordings.wav(tone(2)))
    (tmp_path / "secret.ts").write_bytes(recordings._file("mpegts", tone(2), "aac"))
    concat = b"ffconcat version 1.0\nfile 'secret.wav'\n"
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nsecret.ts\n#EXT-X-ENDLIST\n"

    for content in (concat, playlist):
        assert refusal(read, content).code == Code.MEDIA_CORRUPT
