"""The two models of the local OCR: one finds the lines on a page, the other reads a line.

Lines are read one by one, each on one thread. In a batch, all lines are as long as the longest, and the batch does not
fit into the cache of a processor: it takes more than half as much time again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.features.documents.failures import Code, DocumentFailure

from .limits import forbid_reports

if TYPE_CHECKING:
    import numpy as np
    from onnxruntime import InferenceSession

_DETECTION: Final = "PP-OCRv6_det_small.onnx"
_RECOGNITION: Final = "PP-OCRv6_rec_small.onnx"

_QUICK: Final = 960
_THOROUGH: Final = 1_280
"""Dots along the longer side of the image in which lines are searched."""
_SMALL_PRINT: Final = 13.5
"""Dots. Lines that are lower than this in the quick search may hide others that were not found."""
_REDUCED: Final = 4
_INK: Final = 32
_FORGOTTEN: Final = 24
"""Dots of ink outside all lines, on a page that is reduced by this factor: there may be small print. Ink differs from
the page by this many of 256 shades."""

_HEIGHT: Final = 48
_SHORTEST: Final = 320
"""Dots: the size of a line as the model reads it."""
_BLANK: Final = 0
"""The class of the model that means no character."""

Point = tuple[float, float]
Corners = tuple[Point, Point, Point, Point]


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line on a page: its corners, clockwise from the top left, and its image, which is level."""

    corners: Corners
    image: np.ndarray

    @property
    def length(self) -> float:
        """Of the image, in heights."""
        height, width = self.image.shape[:2]
        return float(width / height)


class LineFinder:
    """Finds the lines on a page: quickly, and again with more dots if there may be small print."""

    def __init__(self, threads: int) -> None:
        forbid_reports()
        import cv2  # noqa: PLC0415 - heavy: only when a page needs it

        cv2.setNumThreads(threads)
        self._session = _session(_DETECTION, threads)
        self._searches = {side: self._search(side) for side in (_QUICK, _THOROUGH)}

    def lines(self, pixels: np.ndarray) -> list[FoundLine]:
        """The lines on a page whose colours are in the order blue, green, red."""
        from rapidocr.utils.process_img import get_rotate_crop_image  # noqa: PLC0415 - heavy

        boxes = self._boxes(pixels, _QUICK)
        if _may_be_incomplete(pixels, boxes):
            boxes = self._boxes(pixels, _THOROUGH)
        return [FoundLine(_corners(box), get_rotate_crop_image(pixels, box.copy())) for box in boxes]

    def _boxes(self, pixels: np.ndarray, side: int) -> list[np.ndarray]:
        found = self._searches[side](pixels, use_det=True, use_cls=False, use_rec=False).boxes
        return [] if found is None else list(found)

    def _search(self, side: int) -> Any:  # noqa: ANN401 - rapidocr's type hints for its results are wrong
        """It logs nothing."""
        import rapidocr  # noqa: PLC0415 - heavy: only when a page needs it
        from omegaconf import flag_override  # noqa: PLC0415 - likewise

        search = rapidocr.RapidOCR(
            params={
                "Global.log_level": "critical",
                "Global.max_side_len": 3_000,
                "Det.limit_type": "max",
                "Det.limit_side_len": side,
            }
        )
        # With our own session it looks for no models, neither on disk nor on the network.
        with flag_override(search.cfg, "allow_objects", values=True):
            search.cfg.Det.session = self._session
        return search


class LineReader:
    """Reads lines, as many at a time as it has threads."""

    def __init__(self, threads: int) -> None:
        forbid_reports()
        self._session = _session(_RECOGNITION, 1)
        self._input = self._session.get_inputs()[0].name
        known = self._session.get_modelmeta().custom_metadata_map["character"].splitlines()
        self._characters = ["", *known, " "]
        self._threads = ThreadPoolExecutor(threads)

    def read(self, lines: Sequence[FoundLine]) -> Iterator[tuple[str, float]]:
        """The text of each line, and how sure the model is. Give the longest first: the last one is waited for."""
        return self._threads.map(self._line, [line.image for line in lines])

    def _line(self, image: np.ndarray) -> tuple[str, float]:
        import cv2  # noqa: PLC0415 - heavy
        import numpy as np  # noqa: PLC0415 - likewise

        height, width = image.shape[:2]
        width = math.ceil(_HEIGHT * width / height)
        line = np.zeros((1, 3, _HEIGHT, max(width, _SHORTEST)), np.float32)
        shades = cv2.resize(image, (width, _HEIGHT)).astype(np.float32)
        line[0, :, :, :width] = shades.transpose(2, 0, 1) / 127.5 - 1
        (scores,) = self._session.run(None, {self._input: line})[0]
        best = scores.argmax(axis=1)
        # A character that goes on is one character, unless a blank is between.
        begins = (best != _BLANK) & (best != np.concatenate([[_BLANK], best[:-1]]))
        if not begins.any():
            return "", 0.0
        sure = scores[begins, best[begins]]
        return "".join(self._characters[each] for each in best[begins]), float(sure.mean())


def _session(name: str, threads: int) -> InferenceSession:
    """A model, loaded. Raises DocumentFailure MODEL_FILES_DAMAGED."""
    import onnxruntime  # noqa: PLC0415 - heavy: only when a page needs it
    import rapidocr  # noqa: PLC0415 - likewise

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait by spinning take processor time from other jobs: a fifth of the time of a page.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    model = Path(rapidocr.__file__).parent / "models" / name
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise DocumentFailure(Code.MODEL_FILES_DAMAGED, detail=f"{name}: {type(error).__name__}") from error


def _may_be_incomplete(pixels: np.ndarray, boxes: list[np.ndarray]) -> bool:
    """Whether the quick search found small print, or left ink out."""
    import cv2  # noqa: PLC0415 - heavy
    import numpy as np  # noqa: PLC0415 - likewise

    height, width = pixels.shape[:2]
    dots = min(1.0, _QUICK / max(height, width))
    if any(min(math.dist(box[0], box[1]), math.dist(box[0], box[3])) * dots < _SMALL_PRINT for box in boxes):
        return True
    grey = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
    size = max(1, width // _REDUCED), max(1, height // _REDUCED)
    page = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    ink = (np.abs(page.astype(np.int16) - int(np.median(page))) > _INK).astype(np.uint8)
    across, down = size[0] / width, size[1] / height
    for box in boxes:
        cv2.fillConvexPoly(ink, np.rint(box * (across, down)).astype(np.int32), 0)
    return int(ink.sum()) > _FORGOTTEN


def _corners(box: np.ndarray) -> Corners:
    a, b, c, d = ((float(x), float(y)) for x, y in box)
    return a, b, c, d
