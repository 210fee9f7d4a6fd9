"""Real recordings made on the spot: sound in the containers and codecs that people send, and people who speak."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path
from typing import Final

import av
import numpy as np

RATE: Final = 16_000
ASSETS: Final = Path(__file__).resolve().parent.parent / "assets"

KENNEDY: Final = (
    "And so, my fellow Americans: ask not what your country can do for you, ask what you can do for your country."
)
AUSTEN: Final = (
    "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to do for them. "
    "He was not an ill-disposed young man, unless to be rather cold hearted and rather selfish is to be ill-disposed. "
    "Had he married a more amiable woman, he might have been made still more respectable than he was: "
    "he might even have been made amiable himself."
)
TRANSCRIPT: Final = f"{KENNEDY} {AUSTEN}"
"""What is said in :func:`speech`."""

_PICTURE: Final = (160, 120)
_FRAMES_PER_SECOND: Final = 10


def kennedy() -> np.ndarray:
    """11 seconds of a speech, with long pauses: see tests/assets/SOURCES.md."""
    return _asset("kennedy.opus")


def austen() -> np.ndarray:
    """26 seconds read from a novel: see tests/assets/SOURCES.md."""
    return _asset("austen.opus")


def speech() -> np.ndarray:
    """Both, one after the other: 37 seconds of people who say ``TRANSCRIPT``."""
    return np.concatenate([kennedy(), silence(0.5), austen()])


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.float32)


def tone(seconds: float, hertz: float = 440.0) -> np.ndarray:
    """A sine wave at half of full strength."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def noise(seconds: float, strength: float = 0.01) -> np.ndarray:
    """Hiss, the same every time."""
    return np.random.default_rng(1).normal(0, strength, round(seconds * RATE)).astype(np.float32)


def wav(sound: np.ndarray) -> bytes:
    return _file("wav", sound, "pcm_s16le")


def flac(sound: np.ndarray) -> bytes:
    return _file("flac", sound, "flac")


def mp3(sound: np.ndarray, *, cover: bool = False) -> bytes:
    """With ``cover``, a picture is attached, as music has it: it shows as a stream of video."""
    return _file("mp3", sound, "libmp3lame", cover=cover)


def opus(sound: np.ndarray) -> bytes:
    """Opus in Ogg, as messengers send it."""
    return _file("ogg", sound, "libopus")


def m4a(sound: np.ndarray) -> bytes:
    """MP4 with sound alone."""
    return _file("mp4", sound, "aac")


def mp4(sound: np.ndarray | None, *, seconds: float = 1.0, late: float = 0.0) -> bytes:
    """H.264 and AAC. Without sound, ``seconds`` of a picture. The sound may begin ``late``, after so many seconds."""
    return _file("mp4", sound, "aac", video="libx264", seconds=seconds, late=late)


def webm(sound: np.ndarray | None, *, seconds: float = 1.0) -> bytes:
    """VP8 and Opus. Without sound, ``seconds`` of a picture."""
    return _file("webm", sound, "libopus", video="libvpx", seconds=seconds)


def of_unknown_codec(sound: np.ndarray) -> bytes:
    """MP4 whose sound says that it is in a codec that nobody knows."""
    head, description, rest = m4a(sound).partition(b"stsd")
    # The name of the codec, and the box that would tell of it once more.
    return head + description + rest.replace(b"mp4a", b"zzzz", 1).replace(b"esds", b"free", 1)


def truncated(file: bytes, part: float = 0.5) -> bytes:
    """The first part of a file, as a broken upload leaves it."""
    return file[: int(len(file) * part)]


def words(text: str) -> list[str]:
    """The words of a text as they are compared: no case, no punctuation, no abbreviation."""
    spoken = re.sub(r"\bmr\b\.?", "mister", text.lower()).replace("-", " ")
    return re.findall(r"[\w']+", spoken)


def word_error_rate(said: str, heard: str) -> float:
    """How many words are wrong, missing or too many, as a part of those that were said."""
    reference, row = words(said), list(range(len(words(heard)) + 1))
    for number, word in enumerate(reference, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(words(heard), 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (word != other))
    return row[-1] / len(reference)


@cache
def _asset(name: str) -> np.ndarray:
    with av.open(ASSETS / name) as container:
        resampler = av.AudioResampler("flt", "mono", RATE)
        frames = [*container.decode(audio=0), None]
        parts = [part.to_ndarray()[0] for frame in frames for part in resampler.resample(frame)]
    sound = np.concatenate(parts)
    sound.flags.writeable = False
    return sound


def _file(
    kind: str,
    sound: np.ndarray | None,
    audio: str,
    *,
    video: str | None = None,
    cover: bool = False,
    seconds: float = 1.0,
    late: float = 0.0,
) -> bytes:
    target = io.BytesIO()
    with av.open(target, "w", format=kind) as container:
        pictures = _pictures(container, video) if video else None
        heard = _sound(container, audio) if sound is not None else None
        if cover:
            _attach_cover(container)
        if sound is not None:
            seconds = late + len(sound) / RATE
        # All streams are there before the first packet is written.
        if pictures is not None:
            _show(container, pictures, seconds)
        if heard is not None:
            _play(container, heard, sound, late)
    return target.getvalue()


def _sound(container, codec: str):
    # Opus knows 48 kHz best; for the others the rate of speech will do.
    stream = container.add_stream(codec, rate=48_000 if codec == "libopus" else RATE)
    stream.layout = "mono"
    return stream


def _play(container, stream, sound: np.ndarray, late: float) -> None:
    context = stream.codec_context
    context.open(strict=False)  # the first packet of a picture has opened it already
    resampler = av.AudioResampler(context.format, "mono", context.rate, frame_size=context.frame_size or 1024)
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound, np.float32)[None, :], "flt", "mono")
    frame.sample_rate, frame.pts = RATE, 0
    for given in (frame, None):
        for part in resampler.resample(given):
            part.pts += round(late * context.rate)
            container.mux(stream.encode(part))
    container.mux(stream.encode(None))


def _pictures(container, codec: str):
    stream = container.add_stream(codec, rate=_FRAMES_PER_SECOND)
    stream.width, stream.height = _PICTURE
    stream.pix_fmt = "yuv420p"
    stream.codec_context.thread_count = 1  # so small a picture is not worth a thread on each core
    return stream


def _show(container, stream, seconds: float) -> None:
    for number in range(max(1, round(seconds * _FRAMES_PER_SECOND))):
        picture = np.full((_PICTURE[1], _PICTURE[0], 3), number * 7 % 256, np.uint8)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
    container.mux(stream.encode(None))


def _attach_cover(container) -> None:
    stream = container.add_stream("mjpeg", rate=1)
    stream.width, stream.height = _PICTURE
    stream.pix_fmt = "yuvj420p"
    stream.disposition = av.stream.Disposition.attached_pic
    picture = np.full((_PICTURE[1], _PICTURE[0], 3), 90, np.uint8)
    container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
    container.mux(stream.encode(None))
