"""PDFs in the child: what is read from them, in which order, and what is said of those that cannot be read.

The engine that reads pictures is a stand-in here that says what it was shown; test_ocr.py has the real one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from holdfast.workloads.documents.child.ocr import MODEL
from holdfast.workloads.documents.child.pdf import read_pdf
from holdfast.workloads.documents.child.port import Reading
from holdfast.workloads.documents.child.protocol import Message, Plan, Spec, Stage, Unit, encoded
from holdfast.workloads.documents.failures import Code, DocumentFailure
from tests.support import pages
from tests.support.pages import SAMPLES

EN, PT = SAMPLES["en"], SAMPLES["pt"]


class Onlooker:
    """A page engine that remembers what it was shown."""

    name = "local"
    model = "none"

    def __init__(self) -> None:
        self.loaded = 0
        self.shown: list[tuple[Image.Image, float, str | None]] = []

    def __call__(self) -> Onlooker:
        self.loaded += 1
        return self

    def read(self, image: Image.Image, *, scale: float, language: str | None) -> Reading:
        self.shown.append((image, scale, language))
        return Reading(text=f"picture {len(self.shown)}", confidence=0.9, rotation=180, lines=())


@pytest.fixture
def engine() -> Onlooker:
    return Onlooker()


Reader = Callable[..., list[Message]]


@pytest.fixture
def told(tmp_path: Path, engine: Onlooker) -> Reader:
    """What the child tells of a PDF."""

    def read(content: bytes, **settings: Any) -> list[Message]:
        file = tmp_path / "file.pdf"
        file.write_bytes(content)
        messages: list[Message] = []
        read_pdf(Spec(path=str(file), job_type="OCR", input_type="PDF", **settings), messages.append, engine)
        return messages

    return read


def results(messages: list[Message]) -> list[dict[str, Any]]:
    return [message.result for message in messages if isinstance(message, Unit)]


def words(text: str) -> list[str]:
    return text.split()


def failure(told: Reader, content: bytes, **settings: Any) -> DocumentFailure:
    with pytest.raises(DocumentFailure) as caught:
        told(content, **settings)
    return caught.value


def test_a_born_digital_pdf_of_300_pages_is_read_in_order_without_an_engine(told: Reader, engine: Onlooker) -> None:
    texts = [f"Page {number} of many. {PT[:160]}" for number in range(1, 301)]
    messages = told(pages.text_pdf(texts))
    assert messages[0] == Plan(units=300, unit="page", engine="local", model=MODEL)
    assert [message.index for message in messages[1:]] == list(range(300))
    found = results(messages)
    assert [words(page["text"]) for page in found] == [words(text) for text in texts]
    assert {(page["source"], page["confidence"], page["rotation"]) for page in found} == {("text_layer", None, 0)}
    assert [page["number"] for page in found] == list(range(1, 301))
    assert all(page["seconds"] > 0 for page in found[:1])
    assert engine.loaded == 0


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_text_layer_in_two_columns_reads_down_the_columns(told: Reader, *, interleaved: bool) -> None:
    (page,) = results(told(pages.text_pdf([PT], columns=2, interleaved=interleaved)))
    assert words(page["text"]) == words(PT)
    first = page["lines"][0]
    assert first["text"].startswith("A estação ficava à beira")
    left, top, right, bottom = first["box"]
    assert (left, round(top)) == (56.0, 57)
    assert right < pages.WIDTH / 2
    assert bottom - top < 15


@pytest.mark.parametrize("turned", [90, 180, 270])
def test_a_text_layer_that_is_shown_turned_is_read_all_the_same(told: Reader, turned: int) -> None:
    (page,) = results(told(pages.text_pdf([PT], columns=2, turned=turned)))
    assert words(page["text"]) == words(PT)
    (upright,) = results(told(pages.text_pdf([PT], columns=2)))
    left, top, right, bottom = upright["lines"][0]["box"]
    wide, high = pages.WIDTH, pages.HEIGHT
    expected = {
        90: (high - bottom, left, high - top, right),
        180: (wide - right, high - bottom, wide - left, high - top),
        270: (top, wide - right, bottom, wide - left),
    }
    assert page["lines"][0]["box"] == pytest.approx(expected[turned], abs=0.2)


def test_pages_that_are_done_are_not_read_again(told: Reader, engine: Onlooker) -> None:
    messages = told(pages.mixed_pdf(EN, PT), done=1)
    assert messages[0].units == 2
    assert [message.index for message in messages if isinstance(message, Unit)] == [1]
    assert results(messages)[0]["text"] == "picture 1"


def test_only_pages_without_text_go_to_the_engine_which_is_loaded_once(told: Reader, engine: Onlooker) -> None:
    (first, second) = results(told(pages.mixed_pdf(EN, PT)))
    assert (first["source"], words(first["text"])) == ("text_layer", words(EN))
    assert (second["source"], second["text"], second["confidence"], second["rotation"]) == (
        "ocr",
        "picture 1",
        0.9,
        180,
    )
    messages = told(pages.scanned_pdf(["one", "two"], dpi=60), language="pt")
    assert engine.loaded == 2
    assert [type(message) for message in messages] == [Plan, Stage, Unit, Unit]
    assert messages[1] == Stage(stage="loading")
    image, scale, language = engine.shown[-1]
    assert image.mode == "RGB"
    assert language == "pt"
    assert abs(image.width - pages.WIDTH * scale) < 10
    assert encoded(messages[2])


def test_pages_that_another_engine_read_say_so(told: Reader, engine: Onlooker) -> None:
    engine.name = "gemini"
    messages = told(pages.scanned_pdf(["one"], dpi=60), engine="gemini", gemini_model="gemini-9")
    assert messages[0] == Plan(units=1, unit="page", engine="gemini", model="gemini-9")
    assert results(messages)[0]["source"] == "model"


def test_a_few_words_stamped_on_a_picture_are_no_text_layer(told: Reader, engine: Onlooker) -> None:
    (page,) = results(told(pages.stamped_pdf(PT, "Scanned by Acme, 12")))
    assert page["source"] == "ocr"
    (page,) = results(told(pages.text_pdf(["Page 12"])))
    assert (page["source"], page["text"]) == ("text_layer", "Page 12")
    assert engine.loaded == 1


def test_a_text_layer_of_spaces_or_of_signs_without_meaning_is_none(told: Reader, engine: Onlooker) -> None:
    nonsense = "".join(map(chr, range(1, 8))) * 10
    for content in (pages.stamped_pdf(PT, " " * 80), pages.stamped_pdf(PT, nonsense + "abc" * 30)):
        (page,) = results(told(content))
        assert page["source"] == "ocr"


def test_pages_without_ink_are_blank_and_need_no_engine(told: Reader, engine: Onlooker) -> None:
    dusty = Image.new("L", (1654, 2339), 250)
    dusty.putpixel((700, 700), 0)
    born, scanned = told(pages.text_pdf([""])), told(pages.image_pdf([dusty]))
    assert [page["source"] for page in results(born) + results(scanned)] == ["blank", "blank"]
    assert results(scanned)[0]["text"] == ""
    assert engine.loaded == 0
    (page,) = results(told(pages.scanned_pdf(["1"])))
    assert page["source"] == "ocr"


def test_a_page_is_shown_to_the_engine_as_its_rotate_key_says(told: Reader, engine: Onlooker) -> None:
    told(pages.scanned_pdf(["one"], dpi=60, rotate=90, turned=270))
    ((image, _, _),) = engine.shown
    assert image.height > image.width
    upper = image.convert("L").crop((0, 0, image.width, image.height // 2))
    assert upper.getextrema()[0] < 128


@pytest.mark.parametrize("dpi", [9, 2_000])
def test_pages_of_absurd_dimensions_are_shown_in_a_sane_size(told: Reader, engine: Onlooker, dpi: int) -> None:
    told(pages.image_pdf(pages.page_images(pages.text_pdf([EN])), dpi=dpi))
    image, scale, _ = engine.shown[0]
    assert 1_500_000 < image.width * image.height < 16_100_000
    assert max(image.size) >= 1_600
    assert abs(image.width / scale - 1_654 * 72 / dpi) < 2 / scale


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (pages.encrypted_pdf, Code.PDF_ENCRYPTED),
        (pages.truncated_pdf, Code.PDF_CORRUPT),
        (lambda: b"%PDF-1.4\n" + b"\xff" * 4_000, Code.PDF_CORRUPT),
        (lambda: b"", Code.PDF_CORRUPT),
        (pages.zero_page_pdf, Code.PDF_NO_PAGES),
        (pages.bomb_pdf, Code.TOO_LARGE),
    ],
    ids=["encrypted", "truncated", "rubbish", "empty", "no pages", "bomb"],
)
def test_a_pdf_that_cannot_be_read_says_why(told: Reader, content: Callable[[], bytes], code: Code) -> None:
    assert failure(told, content()).code is code


def test_a_truncated_pdf_that_can_be_mended_is_still_truncated(told: Reader) -> None:
    whole = pages.text_pdf([EN])
    head, _, _ = whole.rpartition(b"startxref")
    assert failure(told, head).code is Code.PDF_CORRUPT
    assert told(whole + b"\n\0\0\0" * 2_000)


def test_a_page_that_is_not_there_makes_the_pdf_corrupt(told: Reader) -> None:
    whole = pages.text_pdf([EN, EN])
    broken = whole.replace(b"/Kids [5 0 R 7 0 R]", b"/Kids [5 0 R 9 0 R]")
    assert broken != whole
    assert failure(told, broken).code is Code.PDF_CORRUPT


def test_a_pdf_of_too_many_pages_is_refused_before_any_is_read(told: Reader) -> None:
    content = pages.text_pdf(["a", "b", "c"])
    refused = failure(told, content, max_pages=2)
    assert (refused.code, refused.message) == (Code.TOO_LARGE, "The PDF has 3 pages; 2 are the most")
    assert len(results(told(content, max_pages=3))) == 3


def test_a_file_that_is_not_there_or_is_a_folder_is_told_apart(tmp_path: Path, engine: Onlooker) -> None:
    for path, code in ((tmp_path / "missing.pdf", Code.FILE_NOT_FOUND), (tmp_path, Code.FILE_UNREADABLE)):
        with pytest.raises(DocumentFailure) as caught:
            read_pdf(Spec(path=str(path), job_type="OCR", input_type="PDF"), lambda _: None, engine)
        assert caught.value.code is code
        assert str(path) not in f"{caught.value} {caught.value.detail}"


BOMB = """
import re, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from holdfast.workloads.documents.child.pdf import read_pdf
from holdfast.workloads.documents.child.protocol import Spec, Unit
def tell(message):
    if isinstance(message, Unit):
        print(message.result["source"])
read_pdf(Spec(path=sys.argv[1], job_type="OCR", input_type="PDF"), tell, lambda: sys.exit("loaded"))
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
for heavy in ("numpy", "rapidocr", "cv2", "onnxruntime"):
    assert heavy not in sys.modules, heavy
"""


def test_a_page_as_large_as_pages_get_is_drawn_in_little_memory_and_loads_nothing_heavy(tmp_path: Path) -> None:
    file = tmp_path / "bomb.pdf"
    file.write_bytes(pages.bomb_pdf(4_000))
    done = subprocess.run([sys.executable, "-c", BOMB, str(file)], capture_output=True, text=True, check=True)
    source, megabytes = done.stdout.split()
    assert source == "blank"
    assert int(megabytes) < 300
