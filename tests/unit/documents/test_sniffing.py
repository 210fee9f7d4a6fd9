"""What a file is, by its first bytes: of files that real encoders made, and of those that are something else."""

from __future__ import annotations

import gzip
import io
import struct
import wave
import zipfile
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.features.documents.contract import InputType
from holdfast.features.documents.sniffing import HEAD, Family, family_of, mismatch

# Format of the container, codec, and what the file is.
ENCODED = [
    ("mp3", "libmp3lame", Family.AUDIO),
    ("flac", "flac", Family.AUDIO),
    ("wav", "pcm_s16le", Family.AUDIO),
    ("aiff", "pcm_s16be", Family.AUDIO),
    ("caf", "pcm_s16le", Family.AUDIO),
    ("adts", "aac", Family.AUDIO),
    ("ipod", "aac", Family.AUDIO),
    ("mp2", "mp2", Family.AUDIO),
    ("mp4", "aac", Family.CONTAINER),
    ("mov", "aac", Family.CONTAINER),
    ("matroska", "libopus", Family.CONTAINER),
    ("webm", "libopus", Family.CONTAINER),
    ("ogg", "libopus", Family.CONTAINER),
    ("avi", "pcm_s16le", Family.CONTAINER),
    ("mpegts", "mp2", Family.CONTAINER),
    ("mpeg", "mp2", Family.CONTAINER),
    ("flv", "aac", Family.CONTAINER),
    ("asf", "libmp3lame", Family.CONTAINER),
]


def sound(container, codec, hertz=48_000, **options):
    """A second of a tone, as an encoder writes it."""
    import av
    import numpy as np

    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options) as output:
        stream = output.add_stream(codec, rate=hertz, layout="mono")
        wave_form = (8000 * np.sin(np.arange(hertz) / 20)).astype(np.int16).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(wave_form, format="s16", layout="mono")
        frame.sample_rate = hertz
        resampler = av.AudioResampler(stream.format.name, "mono", hertz, frame_size=stream.codec_context.frame_size)
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(stream.encode(part))
        output.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(("container", "codec", "family"), ENCODED, ids=[name for name, _, _ in ENCODED])
def test_what_encoders_write_is_known(container, codec, family):
    content = sound(container, codec)
    for seen in (HEAD, 1500):
        head = content[:seen]
        assert family_of(head) is family
        assert mismatch(InputType.AUDIO, head) is None
        assert (mismatch(InputType.VIDEO, head) is None) is (family is Family.CONTAINER)
        assert "not like a PDF." in mismatch(InputType.PDF, head)


def test_an_mp3_is_known_with_and_without_a_tag():
    plain = sound("mp3", "libmp3lame", id3v2_version="0", write_xing="0")
    assert plain[0] == 0xFF
    tagged = b"ID3\x04\x00\x00" + bytes([0, 0, 2, 0]) + bytes(256) + plain
    large = b"ID3\x04\x00\x00" + bytes([0, 1, 0, 0]) + bytes(16384) + plain
    for head in (plain[:HEAD], plain[:100], tagged[:HEAD], large[:HEAD]):
        assert family_of(head) is Family.AUDIO
        assert mismatch(InputType.VIDEO, head) == "The file begins like an MP3 recording, not like a video."


@pytest.mark.parametrize("hertz", [44_100, 22_050, 16_000, 8_000])
def test_the_frames_of_an_mp3_are_found_at_every_rate(hertz):
    plain = sound("mp3", "libmp3lame", hertz, id3v2_version="0", write_xing="0")
    # From every frame on: some are padded by a byte, and some are not.
    starts = [at for at in range(2000) if plain[at : at + 2] == plain[:2] and family_of(plain[at : at + HEAD])]
    lengths = {after - before for before, after in pairwise(starts)}
    assert len(starts) > 3
    assert max(lengths) - min(lengths) <= 1
    if hertz == 44_100:
        assert len(lengths) == 2


def test_a_transport_stream_of_a_disc_has_times_between_its_packets():
    plain = sound("mpegts", "mp2")
    packets = [plain[at : at + 188] for at in range(0, len(plain), 188)]
    disc = b"".join(b"\x00\x01\x02\x03" + packet for packet in packets)
    assert family_of(disc[:HEAD]) is Family.CONTAINER
    assert family_of(b"G" + bytes(HEAD)) is None


def test_a_frame_alone_makes_no_mp3_where_another_should_follow():
    plain = sound("mp3", "libmp3lame", id3v2_version="0", write_xing="0")
    assert family_of(plain[:4] + bytes(4000)) is None
    adts = sound("adts", "aac")
    assert family_of(adts[:7] + bytes(4000)) is None


def a_zip(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


WRONG = {
    "an executable (MZ)": b"MZ\x90\x00\x03\x00\x00\x00" + bytes(200),
    "an executable (ELF)": b"\x7fELF\x02\x01\x01" + bytes(50),
    "an archive (ZIP; DOCX and XLSX begin so, too)": a_zip("readme.txt"),
    "an Office document (Word, DOCX)": a_zip("[Content_Types].xml", "word/document.xml"),
    "an image (PNG)": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "an image (JPEG)": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00",
    "an image (WebP)": b"RIFF\x10\x00\x00\x00WEBPVP8 ",
    "an image (HEIF or AVIF)": b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00",
    "a web page (HTML)": b"\xef\xbb\xbf\n  <!DOCTYPE HTML><title>404</title>",
    "a compressed file (gzip)": gzip.compress(b"x"),
    "plain text": "São João\nnão é um PDF\u00a0— é texto".encode(),
    "a MIDI file, which holds no sound": b"MThd\x00\x00\x00\x06",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_file_that_is_something_else_is_called_by_its_name(words):
    assert family_of(WRONG[words]) is None
    for input_type, name in [
        (InputType.PDF, "a PDF"),
        (InputType.VIDEO, "a video"),
        (InputType.AUDIO, "an audio recording"),
    ]:
        assert mismatch(input_type, WRONG[words]) == f"The file begins like {words}, not like {name}."


def test_an_empty_file_is_called_empty():
    assert {mismatch(input_type, b"") for input_type in InputType} == {"The file is empty."}
    assert family_of(b"") is None


def test_the_header_of_a_pdf_may_come_a_little_later():
    for before in (b"", b"\n", b"HTTP/1.1 200 OK\r\n\r\n", b"\xff\xfe\x00junk" * 20, bytes(1024)):
        assert mismatch(InputType.PDF, before + b"%PDF-1.7\n") is None
        assert family_of(before + b"%PDF-1.7\n") is Family.PDF
        assert mismatch(InputType.AUDIO, before + b"%PDF-1.7\n").startswith("The file begins like a PDF")
    assert mismatch(InputType.PDF, bytes(1025) + b"%PDF-1.7\n") == "The file does not begin like a PDF."
    assert mismatch(InputType.PDF, b"%PDF 1.4\n") is None, "pdfium needs no dash"


def test_an_executable_does_not_become_a_pdf_by_saying_so_inside():
    assert mismatch(InputType.PDF, b"MZ\x90\x00" + bytes(60) + b"%PDF-1.7").startswith("The file begins like an exec")


@pytest.mark.parametrize("playlist", [b"#EXTM3U\nfile:///etc/passwd\n", b"ffconcat version 1.0\nfile /etc/passwd\n"])
def test_a_playlist_is_no_recording_not_even_behind_a_tag(playlist):
    tag = b"ID3\x04\x00\x00" + bytes([0, 0, 0, 20]) + bytes(20)
    for head in (playlist, tag + playlist, tag + tag + playlist, playlist.decode().encode("utf-16")):
        assert mismatch(InputType.AUDIO, head) == "The file begins like plain text, not like an audio recording."


def test_old_quicktime_and_unknown_recordings_are_left_to_the_decoder():
    assert family_of(struct.pack(">I4s", 8, b"wide") + struct.pack(">I4s", 100, b"mdat")) is Family.CONTAINER
    unknown = bytes(range(128, 256)) * 8
    assert family_of(unknown) is None
    assert mismatch(InputType.AUDIO, unknown) is None
    assert mismatch(InputType.VIDEO, unknown) is None
    assert mismatch(InputType.PDF, unknown) == "The file does not begin like a PDF."


def test_a_wav_larger_than_four_gigabytes_is_one():
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setparams((1, 2, 16_000, 0, "NONE", ""))
        output.writeframes(bytes(100))
    assert family_of(b"RF64\xff\xff\xff\xff" + file.getvalue()[8:]) is Family.AUDIO


def _beginnings():
    starts = [
        b"",
        b"ID3\x04\x00\x00\x00\x00\x00\x01",
        b"RIFF",
        b"\x00\x00\x00\x20ftyp",
        b"\xff\xfb",
        b"\xff\xf1",
        b"\xff\xfe",
        b"PK\x03\x04",
    ]
    return st.builds(lambda start, rest: start + rest, st.sampled_from(starts), st.binary(max_size=300))


@given(_beginnings())
def test_whatever_comes_there_is_an_answer_that_fits_the_family(head):
    family = family_of(head)
    told = {input_type: mismatch(input_type, head) for input_type in InputType}
    assert (told[InputType.PDF] is None) is (family is Family.PDF)
    if family is Family.AUDIO:
        assert told[InputType.AUDIO] is None
        assert told[InputType.VIDEO]
    if family is Family.CONTAINER:
        assert told[InputType.AUDIO] is None
        assert told[InputType.VIDEO] is None
