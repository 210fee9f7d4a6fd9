"""Recordings: decoded, cut into chunks at pauses, and transcribed by an engine.

The sound is decoded twice: once to find the pauses, once to be transcribed. Both times it is streamed, so the longest
recording takes no more memory than one chunk. The cuts depend only on the sound and on ``spec.chunk_seconds``, so an
attempt that continues after another one cuts at the same places.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.features.documents.failures import Code, DocumentFailure

from .port import SpeechEngine, engine_class
from .protocol import Chunk, Message, Plan, Segment, Spec, Stage, Unit

if TYPE_CHECKING:
    import numpy as np
    from av import AudioFrame, AudioResampler, AudioStream
    from av.container import InputContainer

RATE: Final = 16_000

_WINDOW: Final = RATE // 50
"""Samples whose loudness is measured together: 20 ms."""
_PAUSE: Final = 15
"""Windows around a cut that should be quiet: 0.3 s, longer than the pauses inside words."""
_LEEWAY: Final = 0.2
"""How far a cut may be from its planned place, as a share of ``chunk_seconds``."""
_LAST: Final = 1.5
"""The longest last chunk, as a multiple of ``chunk_seconds``, so that no tiny chunk is left over."""
_FLOOR: Final = 1e-8
"""Power that counts as silence: -80 dB."""
_PULL: Final = 0.2
"""Decibels that a place loses for each second between it and the planned place."""
_SILENT: Final = 2e-4
"""A chunk whose loudest sample is below this is silent and needs no engine."""
_HEARTBEAT: Final = 15 * 60 * RATE
"""Samples after which the first pass sends a message, so that the worker sees it is running."""

_KINDS: Final = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,eac3,flac,flv,loas,matroska,mov,mp3,mpeg,mpegts,ogg,spdif,tta,w64,wav,wv"
)
"""Containers that hold their own sound. Playlists (HLS, concat, DASH, SDP) open other files and the network: a file
from outside must not do that."""

_EXACT: Final = frozenset({"aiff", "caf", "flac", "matroska,webm", "mov,mp4,m4a,3gp,3g2,mj2", "w64"})
"""Containers that store their duration. For the others FFmpeg estimates it from the data."""

_SLACK: Final = 0.05
"""A recording may be shorter than its stored duration by this share."""
_SLACK_SECONDS: Final = 1.0
_BAD_PACKETS: Final = 0.02
"""This share of the packets may be damaged. Old recordings often have a few; they become short gaps."""
_GAP: Final = 0.2
"""Seconds without packets that are filled with silence."""
_MICROSECONDS: Final = 1_000_000
_LIVE: Final = 0x7FFFFF00
"""A WAV that was written while its length was not known has at least this many bytes in its header, or none."""
_OGG_PAGE: Final = 65_307
"""The most bytes of a page of Ogg."""


def read_recording(spec: Spec, send: Callable[[Message], None], engine: Callable[[], SpeechEngine]) -> None:
    """Send the plan, and then the speech of each chunk from ``spec.done`` on, in order, with absolute times.

    The engine is loaded once, when the first chunk needs it. Unless the spec has a language, the language of the first
    chunk with speech is the language of the recording. Raises :class:`DocumentFailure`.
    """
    loudness, length = _measured(spec, send)
    cuts = _cuts(loudness, length, spec.chunk_seconds)
    model = engine_class(spec).model_of(spec)
    duration = round(length / RATE, 3)
    send(Plan(units=len(cuts), unit="chunk", engine=spec.engine, model=model, duration=duration))
    loaded: SpeechEngine | None = None
    language = spec.language
    start = 0
    for index, (end, sound) in enumerate(zip(cuts, _chunks(spec, cuts), strict=True)):
        if index >= spec.done:
            began = time.perf_counter()
            detected: str | None = None
            segments: tuple[Segment, ...] = ()
            if abs(sound).max(initial=0.0) >= _SILENT:
                if loaded is None:
                    send(Stage(stage="loading"))
                    loaded = engine()
                detected, segments = loaded.transcribe(sound, language=language)
            if segments:
                language = language or detected
            chunk = Chunk(
                start=round(start / RATE, 3),
                end=round(end / RATE, 3),
                language=detected,
                seconds=round(time.perf_counter() - began, 3),
                segments=_placed(segments, start / RATE, end / RATE),
            )
            send(Unit(index=index, result=asdict(chunk)))
        start = end


def _measured(spec: Spec, send: Callable[[Message], None]) -> tuple[np.ndarray, int]:
    """The power of each window of the recording, and the recording's length in samples."""
    import numpy as np  # noqa: PLC0415 - heavy

    powers: list[np.ndarray] = []
    rest = np.zeros(0, np.float32)
    length, announced = 0, 0
    for block in _sound(Path(spec.path), spec.input_type, spec.max_seconds):
        length += len(block)
        if length - announced >= _HEARTBEAT:
            announced = length
            send(Stage(stage="loading"))
        sound = np.concatenate([rest, block])
        whole = len(sound) // _WINDOW * _WINDOW
        powers.append(np.square(sound[:whole]).reshape(-1, _WINDOW).mean(axis=1))
        rest = sound[whole:]
    if length == 0:
        raise DocumentFailure(Code.MEDIA_CORRUPT, "The recording is empty")
    return np.concatenate(powers), length


def _cuts(powers: np.ndarray, length: int, seconds: float) -> list[int]:
    """Where the chunks end, in samples: at the quietest places near the planned places."""
    import numpy as np  # noqa: PLC0415 - heavy

    wished = max(int(seconds * RATE / _WINDOW), _PAUSE)
    around = np.convolve(powers, np.full(_PAUSE, 1 / _PAUSE), mode="same")
    # Whole decibels: another processor may compute the last digit differently, but must cut at the same place.
    levels = np.round(10 * np.log10(np.maximum(around, _FLOOR)))
    cuts: list[int] = []
    start = 0
    while len(levels) - start > wished * _LAST:
        places = np.arange(start + int(wished * (1 - _LEEWAY)), start + int(wished * (1 + _LEEWAY)) + 1)
        off = np.abs(places - (start + wished)) * _WINDOW / RATE
        start = int(places[np.argmin(levels[places] + _PULL * off)])
        cuts.append(start * _WINDOW)
    return [*cuts, length]


def _chunks(spec: Spec, cuts: list[int]) -> Iterator[np.ndarray]:
    """The sound between the cuts. Only one chunk at a time is in memory."""
    import numpy as np  # noqa: PLC0415 - heavy

    held: list[np.ndarray] = []
    start, position = 0, 0
    ends = iter(cuts)
    end = next(ends)
    for block in _sound(Path(spec.path), spec.input_type, spec.max_seconds):
        held.append(block)
        position += len(block)
        while position >= end:
            sound = np.concatenate(held)
            yield sound[: end - start]
            held, start = [sound[end - start :]], end
            following = next(ends, None)
            if following is None:
                return
            end = following
    # The file became shorter between the two passes: another program is still writing to it.
    raise DocumentFailure(Code.FILE_UNREADABLE, "The file changed while it was read")


def _placed(segments: tuple[Segment, ...], start: float, end: float) -> tuple[Segment, ...]:
    """The segments of a chunk at their times in the recording, never outside the chunk."""
    return tuple(
        replace(
            segment,
            start=round(min(start + segment.start, end), 3),
            end=round(min(start + segment.end, end), 3),
        )
        for segment in segments
    )


def _sound(path: Path, input_type: str, max_seconds: float) -> Iterator[np.ndarray]:
    """The sound of a recording in blocks. A damaged recording raises MEDIA_CORRUPT; it is never silently shorter.

    Also raises FILE_NOT_FOUND, FILE_UNREADABLE, CONTENT_MISMATCH, NO_AUDIO_TRACK, UNSUPPORTED_CODEC, TOO_LARGE.
    """
    with _as_failures(), _opened(path) as container:
        stream = _track(container, input_type)
        if _cut_off(path, container.format.name):
            raise DocumentFailure(Code.MEDIA_CORRUPT, "The recording is cut short: the end of the file is missing")
        declared = _declared(path, container)
        _within(declared or 0.0, max_seconds)
        reading = _Reading(container, stream)
        yield from _seconds(reading.blocks(max_seconds))
        if declared is not None and reading.end < declared - max(_SLACK_SECONDS, declared * _SLACK):
            message = f"The recording is cut short: it has {reading.end:.0f} of {declared:.0f} seconds"
            raise DocumentFailure(Code.MEDIA_CORRUPT, message)


@contextmanager
def _as_failures() -> Iterator[None]:
    """Turns every error of PyAV into a failure of the table. PyAV's messages name the path, so they are left out."""
    import av.error  # noqa: PLC0415 - heavy

    try:
        yield
    except FileNotFoundError:
        raise DocumentFailure(Code.FILE_NOT_FOUND) from None
    except (av.error.DecoderNotFoundError, av.error.PatchWelcomeError):
        raise DocumentFailure(Code.UNSUPPORTED_CODEC) from None
    except MemoryError:
        raise
    except OSError as error:
        raise DocumentFailure(Code.FILE_UNREADABLE, detail=type(error).__name__) from None
    except av.error.FFmpegError as error:
        raise DocumentFailure(Code.MEDIA_CORRUPT, detail=type(error).__name__) from None


@contextmanager
def _opened(path: Path) -> Iterator[InputContainer]:
    import av  # noqa: PLC0415 - heavy

    with path.open("rb"):  # the system's error about the file is clearer than FFmpeg's
        pass
    options = {"format_whitelist": _KINDS, "protocol_whitelist": "file"}
    with av.open(f"file:{path}", metadata_errors="ignore", options=options) as container:
        yield container


def _track(container: InputContainer, input_type: str) -> AudioStream:
    """The stream to transcribe. Raises CONTENT_MISMATCH for a file of another type."""
    from av.stream import Disposition  # noqa: PLC0415 - heavy

    if not container.streams:
        raise DocumentFailure(Code.MEDIA_CORRUPT, "There is nothing in the recording")
    # The cover of an album is a video stream, too.
    pictures = any(not stream.disposition & Disposition.attached_pic for stream in container.streams.video)
    if pictures and input_type == "AUDIO":
        raise DocumentFailure(Code.CONTENT_MISMATCH, "The file is a video, and input_type says AUDIO")
    if not pictures and input_type == "VIDEO":
        raise DocumentFailure(Code.CONTENT_MISMATCH, "The file has no pictures, and input_type says VIDEO")
    if not container.streams.audio:
        raise DocumentFailure(Code.NO_AUDIO_TRACK)
    best = container.streams.best("audio")
    stream = next((track for track in container.streams.audio if track is best), container.streams.audio[0])
    if stream.codec_context is None:
        raise DocumentFailure(Code.UNSUPPORTED_CODEC)
    return stream


def _declared(path: Path, container: InputContainer) -> float | None:
    """The duration that the file itself gives, if it is reliable."""
    kind = container.format.name
    exact = kind in _EXACT or (kind == "mp3" and _counted(path))
    return container.duration / _MICROSECONDS if exact and container.duration is not None else None


def _counted(path: Path) -> bool:
    """Whether an MP3 begins with the number of its frames."""
    with path.open("rb") as file:
        head = file.read(10)
        if head[:3] == b"ID3":  # its length has seven bits in each byte
            file.seek(10 + sum(byte << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True)))
        else:
            file.seek(0)
        frame = file.read(200)
    return b"Xing" in frame or b"Info" in frame


def _cut_off(path: Path, kind: str) -> bool:
    """Whether the end of the file is missing. For these formats FFmpeg corrects the length without an error."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if kind == "wav":
            file.seek(4)
            claimed = int.from_bytes(file.read(4), "little")
            return size < claimed < _LIVE
        if kind == "ogg":
            file.seek(max(0, size - _OGG_PAGE))
            tail = file.read()
            page = tail[tail.rfind(b"OggS") :]
            # 27 bytes, of which the last is the number of segments, then the segments' lengths, then the segments.
            segments = page[27 : 27 + page[26]] if len(page) > 26 else b""  # noqa: PLR2004 - the line above
            return len(page) < 27 + page[26] + sum(segments) if segments else True
    return False


def _within(seconds: float, max_seconds: float) -> None:
    if seconds > max_seconds:
        raise DocumentFailure(Code.TOO_LARGE, f"The recording is longer than {max_seconds:.0f} seconds")


def _seconds(blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """The same sound in blocks of a second or more: a decoder's blocks are tiny. All samples are in [-1, 1]."""
    import numpy as np  # noqa: PLC0415 - heavy

    held: list[np.ndarray] = []
    for block in itertools.chain(blocks, [None]):
        if block is not None:
            held.append(block)
        if held and (block is None or sum(map(len, held)) >= RATE):
            # A damaged recording of floats may hold NaN.
            yield np.clip(np.nan_to_num(np.concatenate(held)), -1.0, 1.0)
            held = []


class _Reading:
    """One pass through a recording: the sound so far, in samples, and where the last packet of any stream ended."""

    def __init__(self, container: InputContainer, stream: AudioStream) -> None:
        self.length = 0
        self.end = 0.0
        self._container = container
        self._stream = stream
        self._origin = (container.start_time or 0) / _MICROSECONDS

    def blocks(self, max_seconds: float) -> Iterator[np.ndarray]:
        """The sound. Missing packets become silence, so that later words keep their times."""
        import numpy as np  # noqa: PLC0415 - heavy

        resampling = _Resampling()
        for frame in self._frames():
            at = self.length / RATE if frame.time is None else frame.time - self._origin
            _within(max(at, self.length / RATE), max_seconds)  # the times in the file may stand still, or jump
            while (missing := at - self.length / RATE) > _GAP:
                yield self._counted(np.zeros(round(min(missing, 1.0) * RATE), np.float32))
            for block in resampling.of(frame):
                yield self._counted(block)
        for block in resampling.rest():
            yield self._counted(block)
        self.end = max(self.end, self.length / RATE)

    def _counted(self, block: np.ndarray) -> np.ndarray:
        self.length += len(block)
        return block

    def _frames(self) -> Iterator[AudioFrame]:
        """The frames that can be decoded. Raises at the end if too many packets were damaged."""
        import av.error  # noqa: PLC0415 - heavy

        good, bad = 0, 0
        for packet in self._container.demux():
            if packet.pts is not None and packet.time_base is not None:
                self.end = max(self.end, float((packet.pts + (packet.duration or 0)) * packet.time_base) - self._origin)
            if packet.stream.index != self._stream.index:
                continue
            try:
                frames = packet.decode()
            except av.error.InvalidDataError:
                bad += 1
                continue
            good += 1
            for frame in frames:
                if isinstance(frame, av.AudioFrame):
                    yield frame
        if bad > (good + bad) * _BAD_PACKETS:
            raise DocumentFailure(Code.MEDIA_CORRUPT, detail=f"{bad} of {good + bad} packets are damaged")


class _Resampling:
    """Resamples to mono at 16 kHz. A recording may change its rate or its channels in the middle."""

    def __init__(self) -> None:
        self._form: tuple[str, str, int] | None = None
        self._resampler: AudioResampler | None = None

    def of(self, frame: AudioFrame) -> Iterator[np.ndarray]:
        from av import AudioResampler  # noqa: PLC0415 - heavy

        form = (frame.format.name, frame.layout.name, frame.sample_rate)
        if form != self._form:
            yield from self.rest()
            self._form, self._resampler = form, AudioResampler("flt", "mono", RATE)
        yield from self._through(frame)

    def rest(self) -> Iterator[np.ndarray]:
        if self._resampler is not None:
            yield from self._through(None)

    def _through(self, frame: AudioFrame | None) -> Iterator[np.ndarray]:
        if self._resampler is not None:
            for part in self._resampler.resample(frame):
                yield part.to_ndarray()[0]
