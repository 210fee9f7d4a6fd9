"""OCR on this machine: rapidocr with the models in its own wheel. Nothing is ever fetched.

The models are the small ones of PP-OCRv6. One model reads English and Portuguese, accents included, so the language of
a page need not be known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Self

from holdfast.features.documents.failures import Code, DocumentFailure

from .layout import Box, composed, reading_order
from .limits import forbid_reports
from .port import Ask, Reading
from .protocol import Line, Spec

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from PIL import Image

ENGINE: Final = "local"
MODEL: Final = "pp-ocrv6-small"
_DETECTION: Final = "PP-OCRv6_det_small.onnx"
_RECOGNITION: Final = "PP-OCRv6_rec_small.onnx"

# Lines below this score are stains and ornaments.
_WORST_LINE: Final = 0.5
# A page below this score may be rotated. Upright pages, poor scans too, have more than 0.95.
_WORST_PAGE: Final = 0.85
# A piece that is taller than wide by this factor is a line that runs down the page.
_TALL: Final = 1.5


Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A line as the model returned it: its corners, clockwise from the top left."""

    corners: tuple[Point, Point, Point, Point]
    text: str
    score: float


class LocalPages:
    """Reads pages with the models in the wheel, on ``threads`` threads.

    A page that is upside down or sideways has a low score; it is rotated and read again. The language is not needed.
    Raises DocumentFailure MODEL_FILES_DAMAGED when the models cannot be loaded.
    """

    name = ENGINE
    model = MODEL

    def __init__(self, threads: int) -> None:
        self._engine = _loaded(threads)

    @classmethod
    def of(cls, spec: Spec, ask: Ask) -> Self:
        """The engine for this attempt."""
        del ask
        return cls(spec.threads)

    @staticmethod
    def model_of(spec: Spec) -> str:
        """Always the same model."""
        del spec
        return MODEL

    def read(self, image: Image.Image, *, scale: float, language: str | None) -> Reading:  # noqa: ARG002 - of the port
        """The text of a page in reading order, and its lines with their places on the page as it was given."""
        rotation, pieces = self._best(image)
        pieces = [piece for piece in pieces if piece.score >= _WORST_LINE and piece.text.strip()]
        order = reading_order(_upright(pieces))
        texts = [piece.text.strip() for piece in pieces]
        lines = tuple(
            Line(
                text=texts[index],
                box=_given(_extent(pieces[index]), rotation, image.size, scale),
                confidence=round(pieces[index].score, 4),
            )
            for block in order
            for row in block
            for index in row
        )
        confidence = round(_mean_score(pieces), 4) if pieces else None
        return Reading(text=composed(texts, order), confidence=confidence, rotation=rotation, lines=lines)

    def _best(self, image: Image.Image) -> tuple[int, list[_Piece]]:
        """The rotation with the best score, and the pieces of the page in that rotation."""
        found = {0: self._pieces(image, 0)}
        if not found[0]:
            return 0, []
        sideways = _lies_sideways(found[0])
        if not sideways and _mean_score(found[0]) >= _WORST_PAGE:
            return 0, found[0]
        tried = (90, 270) if sideways else (180,)
        for rotation in tried:
            found[rotation] = self._pieces(image, rotation)
            if _mean_score(found[rotation]) >= _WORST_PAGE and not _lies_sideways(found[rotation]):
                return rotation, found[rotation]
        rotation = max(found, key=lambda turned: _mean_score(found[turned]))
        return rotation, found[rotation]

    def _pieces(self, image: Image.Image, rotation: int) -> list[_Piece]:
        import numpy as np  # noqa: PLC0415 - heavy: only when a page needs it

        turned = image.rotate(-rotation, expand=True) if rotation else image
        # The models expect the colours in the order blue, green, red.
        pixels = np.ascontiguousarray(np.asarray(turned.convert("RGB"))[:, :, ::-1])
        result = self._engine(pixels, text_score=0.0)
        if result.boxes is None:
            return []
        return [
            _Piece(corners, text, float(score))
            for corners, text, score in zip(result.boxes.tolist(), result.txts, result.scores, strict=True)
        ]


def _loaded(threads: int) -> Any:  # noqa: ANN401 - rapidocr's type hints for its results are wrong
    """The engine with its models loaded. It logs nothing."""
    forbid_reports()
    import cv2  # noqa: PLC0415 - heavy: only when a page needs it
    import rapidocr  # noqa: PLC0415 - likewise
    from omegaconf import flag_override  # noqa: PLC0415 - likewise

    cv2.setNumThreads(threads)
    models = Path(rapidocr.__file__).parent / "models"
    engine = rapidocr.RapidOCR(
        params={
            "Global.log_level": "critical",
            # Its classifier of upside-down lines also rotates good lines: whole pages are rotated instead.
            "Global.use_cls": False,
            "Global.max_side_len": 3_000,
            "Det.limit_type": "max",
            "Det.limit_side_len": 1_280,
        }
    )
    # With our own sessions it looks for no models, neither on disk nor on the network.
    with flag_override(engine.cfg, "allow_objects", values=True):
        engine.cfg.Det.session = _session(models / _DETECTION, threads)
        engine.cfg.Rec.session = _session(models / _RECOGNITION, threads)
    return engine


def _session(model: Path, threads: int) -> InferenceSession:
    import onnxruntime  # noqa: PLC0415 - heavy: only when a page needs it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait by spinning take processor time from other jobs: a fifth of the time of a page.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise DocumentFailure(Code.MODEL_FILES_DAMAGED, detail=f"{model.name}: {type(error).__name__}") from error


def _mean_score(pieces: list[_Piece]) -> float:
    """How sure the model is, weighted by characters."""
    letters = sum(len(piece.text) for piece in pieces)
    return sum(piece.score * len(piece.text) for piece in pieces) / letters if letters else 0.0


def _lies_sideways(pieces: list[_Piece]) -> bool:
    """Whether most of the text runs down the page. Pieces of one or two letters are not counted."""
    tall = level = 0
    for piece in pieces:
        left, top, right, bottom = _extent(piece)
        letters = len(piece.text.strip())
        if letters > 2:  # noqa: PLR2004 - see the docstring
            if bottom - top > _TALL * (right - left):
                tall += letters
            else:
                level += letters
    return tall > level


def _extent(piece: _Piece) -> Box:
    across, down = [x for x, _ in piece.corners], [y for _, y in piece.corners]
    return min(across), min(down), max(across), max(down)


def _upright(pieces: list[_Piece]) -> list[Box]:
    """The boxes of the pieces after a small skew of the page is removed."""
    if not pieces:
        return []
    angles = []
    for piece in pieces:
        (ax, ay), (bx, by) = piece.corners[0], piece.corners[1]
        angles.append((math.atan2(by - ay, bx - ax), math.hypot(bx - ax, by - ay)))
    # Long lines show the angle best.
    longest = sorted(angles, key=lambda angle: -angle[1])[: max(1, len(angles) // 2)]
    askew = median(angle for angle, _ in longest)
    cosine, sine = math.cos(-askew), math.sin(-askew)
    boxes = []
    for piece in pieces:
        x = sum(corner[0] for corner in piece.corners) / 4
        y = sum(corner[1] for corner in piece.corners) / 4
        a, b, _, d = piece.corners
        width, height = math.dist(a, b), math.dist(a, d)
        cx, cy = x * cosine - y * sine, x * sine + y * cosine
        boxes.append((cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2))
    return boxes


def _given(box: Box, rotation: int, size: tuple[int, int], scale: float) -> Box:
    """A box on the rotated image, converted to points on the page as it was given."""
    left, top, right, bottom = box
    width, height = size
    if rotation == 90:  # noqa: PLR2004 - degrees
        left, top, right, bottom = top, height - right, bottom, height - left
    elif rotation == 180:  # noqa: PLR2004 - degrees
        left, top, right, bottom = width - right, height - bottom, width - left, height - top
    elif rotation == 270:  # noqa: PLR2004 - degrees
        left, top, right, bottom = width - bottom, left, width - top, right
    return round(left / scale, 1), round(top / scale, 1), round(right / scale, 1), round(bottom / scale, 1)
