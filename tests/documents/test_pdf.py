"""PDFs in the child: what is read from them, in which order, and what is said of those that cannot be read.

The engine that reads pictures is a stand-in here that says what it was shown; test_ocr.py has the real one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from PIL import Image

from holdfast.features.documents.child import pdf
from holdfast.features.documents.child.ocr import MODEL
from holdfast.features.documents.child.pdf import read_pdf
from holdfast.features.documents.child.port import Reading
from holdfast.features.documents.child.protocol import Message, Plan, Spec, Stage, Unit, encoded
from holdfast.features.documents.failures import Code, DocumentFailure
from tests.support import pages
from tests.support.pages import SAMPLES

EN, PT = SAMPLES["en"], SAMPLES["pt"]


class Onlooker:
    """A page engine that remembers what it was shown."""

    name = "local"
    model = "none"

    def __init__(self) -> None:
        self.loaded = 0
        self.says: str | None = None
        self.shown: list[tuple[Image.Image, float, str | None]] = []

    def __call__(self) -> Onlooker:
        self.loaded += 1
        return self

    def read(self, image: Image.Image, *, scale: float, language: str | None) -> Reading:
        self.shown.append((image, scale, language))
        text = f"picture {len(self.shown)}" if self.says is None else self.says
        return Reading(text=text, confidence=0.9, rotation=180, lines=())


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
    messages = told(pages.scanned_pdf(["one"], dpi=60), engine="gemini", options={"model": "gemini-9"})
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


# --- damaged, and read all the same ---------------------------------------------------------------------------------

CUT_OFF = "The end mark is missing: the file may have been cut off, and pages may be missing."
MINIMAL = (
    b"%PDF-1.0\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    b"3 0 obj<</Type/Page/MediaBox[0 0 3 3]>>endobj trailer<</Size 4/Root 1 0 R>>"
)


def without_end_mark(whole: bytes) -> bytes:
    return whole.rpartition(b"startxref")[0]


def with_missing_pages(count: int, *missing: int) -> bytes:
    """A PDF that names pages which are not there."""
    kids = [b"%d 0 R" % (5 + 2 * index) for index in range(count)]
    broken = [b"999 0 R" if number in missing else kid for number, kid in enumerate(kids, start=1)]
    whole = pages.text_pdf([f"This is page {number}" for number in range(1, count + 1)])
    changed = whole.replace(b"/Kids [" + b" ".join(kids) + b"]", b"/Kids [" + b" ".join(broken) + b"]")
    assert changed != whole
    return changed


def with_damaged_images(content: bytes) -> bytes:
    """The same, where no JPEG can be unpacked."""
    damaged = content.replace(b"\xff\xd8\xff", b"\0\0\0")
    assert damaged != content
    return damaged


def test_a_pdf_of_117_pages_without_its_end_mark_is_read_with_a_warning(told: Reader, engine: Onlooker) -> None:
    texts = [f"This is page {number} of many" for number in range(1, 118)]
    cut_off = without_end_mark(pages.text_pdf(texts))
    messages = told(cut_off)
    assert messages[0] == Plan(units=117, unit="page", engine="local", model=MODEL, warnings=(CUT_OFF,))
    assert [page["text"] for page in results(messages)] == texts
    assert {page["warning"] for page in results(messages)} == {None}
    assert engine.loaded == 0


def test_a_minimal_pdf_without_a_cross_reference_table_is_read_with_a_warning(told: Reader) -> None:
    messages = told(MINIMAL)
    (warning,) = messages[0].warnings
    assert warning.startswith("The end mark and the cross-reference table are missing:")
    assert [page["source"] for page in results(messages)] == ["blank"]


def test_changes_that_were_cut_off_leave_an_end_mark_that_is_not_the_end(told: Reader) -> None:
    whole = pages.text_pdf([EN])
    appended = b"9 0 obj\n<< /Type /Annot >>\nendobj\nxref\n9 1\n%010d 00000 n \n" % len(whole)
    assert told(whole + appended)[0].warnings == (CUT_OFF,)
    assert failure(told, whole + appended, strict=True).code is Code.PDF_CORRUPT
    assert told(whole + appended + b"startxref\n9\n%%EOF")[0].warnings == ()


def test_white_space_and_a_missing_last_word_after_the_end_are_no_damage(told: Reader) -> None:
    whole = pages.text_pdf([EN])
    for content in (whole, whole + b"\n\0\0\0" * 2_000, whole.replace(b"%%EOF", b"")):
        assert told(content)[0].warnings == ()


def test_a_page_that_is_not_there_is_empty_and_has_a_warning(told: Reader, engine: Onlooker) -> None:
    messages = told(with_missing_pages(4, 2, 4))
    assert messages[0].warnings == ()
    assert [message.index for message in messages[1:]] == [0, 1, 2, 3]
    assert [(page["number"], page["text"], page["source"], page["warning"]) for page in results(messages)] == [
        (1, "This is page 1", "text_layer", None),
        (2, "", "unreadable", "Page 2 could not be read."),
        (3, "This is page 3", "text_layer", None),
        (4, "", "unreadable", "Page 4 could not be read."),
    ]
    assert engine.loaded == 0


def test_pages_before_the_first_that_can_be_read_are_told_in_order(told: Reader) -> None:
    messages = told(with_missing_pages(3, 1, 2))
    assert [message.index for message in messages[1:]] == [0, 1, 2]
    assert [page["source"] for page in results(messages)] == ["unreadable", "unreadable", "text_layer"]


def test_pages_that_cannot_be_read_behind_pages_that_are_done_are_no_failure(told: Reader) -> None:
    messages = told(with_missing_pages(3, 2, 3), done=1)
    assert [page["source"] for page in results(messages)] == ["unreadable", "unreadable"]


def test_a_pdf_of_which_no_page_can_be_read_is_refused_and_no_page_is_told(
    tmp_path: Path, told: Reader, engine: Onlooker
) -> None:
    """A page that is told is a checkpoint: the next attempt would find all of them done."""
    file = tmp_path / "nothing.pdf"
    file.write_bytes(with_missing_pages(2, 1, 2))
    messages: list[Message] = []
    with pytest.raises(DocumentFailure) as caught:
        read_pdf(Spec(path=str(file), job_type="OCR", input_type="PDF"), messages.append, engine)
    assert (caught.value.code, caught.value.detail) == (Code.PDF_CORRUPT, "Page 1 could not be read.")
    assert [type(message) for message in messages] == [Plan]


def test_a_scan_whose_image_is_damaged_is_not_taken_for_a_blank_page(told: Reader, engine: Onlooker) -> None:
    damaged = with_damaged_images(pages.mixed_pdf(EN, PT))
    first, second = results(told(damaged))
    assert (first["source"], first["warning"]) == ("text_layer", None)
    warning = "Page 2 could not be drawn: an image on it is damaged."
    assert (second["source"], second["text"], second["warning"]) == ("unreadable", "", warning)
    assert engine.loaded == 0

    (stamped,) = results(told(with_damaged_images(pages.stamped_pdf(PT, "Scanned by Acme"))))
    warning = "An image on page 1 is damaged, and was not read."
    assert (stamped["source"], stamped["text"], stamped["warning"]) == ("ocr", "picture 1", warning)


def test_a_page_with_an_image_that_is_too_large_costs_no_other_page(told: Reader, monkeypatch) -> None:
    content = pages.mixed_pdf(EN, PT)
    monkeypatch.setattr(pdf, "_MOST_UNPACKED", 1_000_000)
    first, second = results(told(content))
    assert first["source"] == "text_layer"
    assert second["warning"] == "Page 2 could not be drawn: an image on it is too large."
    refused = failure(told, content, strict=True)
    assert (refused.code, refused.message) == (
        Code.TOO_LARGE,
        "Page 2 could not be drawn: an image on it is too large",
    )


@pytest.mark.parametrize("memory", [True, False])
def test_a_page_that_cannot_be_drawn_is_told_from_a_lack_of_memory(told: Reader, monkeypatch, *, memory: bool) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "Failed to get bitmap buffer (null pointer returned)"
        raise pypdfium2.PdfiumError(message)

    def no_more(_: int) -> None:
        raise MemoryError

    content = pages.mixed_pdf(EN, PT)
    monkeypatch.setattr(pypdfium2.PdfPage, "render", refuse)
    if memory:
        _, second = results(told(content))
        assert (second["source"], second["warning"]) == ("unreadable", "Page 2 could not be drawn.")
    else:
        monkeypatch.setattr(pdf, "bytearray", no_more, raising=False)
        with pytest.raises(MemoryError):
            told(content)


@pytest.mark.parametrize(
    "content",
    [
        without_end_mark(pages.text_pdf([EN])),
        MINIMAL,
        with_missing_pages(3, 2),
        with_damaged_images(pages.mixed_pdf(EN, PT)),
        with_damaged_images(pages.stamped_pdf(PT, "Scanned by Acme")),
    ],
    ids=["no end mark", "no cross-reference table", "a page is missing", "a damaged scan", "a damaged image"],
)
def test_a_strict_job_refuses_what_would_have_a_warning(told: Reader, content: bytes) -> None:
    assert told(content)
    refused = failure(told, content, strict=True)
    assert (refused.code, refused.message) == (Code.PDF_CORRUPT, "The PDF is damaged")
    assert refused.detail.endswith(".")


def test_a_strict_job_reads_what_is_whole(told: Reader) -> None:
    content = pages.mixed_pdf(EN, PT)
    sources = [page["source"] for page in results(told(content, strict=True))]
    assert sources == ["text_layer", "ocr"]


# --- text layers that say something else than the page ----------------------------------------------------------------


@pytest.mark.parametrize("how", ["wrong", "missing"])
@pytest.mark.parametrize("text", [EN, "The phone rings", "THE PHONE RINGS"])
def test_a_text_layer_that_is_not_what_the_page_shows_is_not_used(
    told: Reader, engine: Onlooker, how: str, text: str
) -> None:
    engine.says = text
    content = pages.misnamed_pdf(text, how=how)
    layer = pypdfium2.PdfDocument(content)[0].get_textpage().get_text_range()
    assert words(layer)[0] in {"7KH", "7+("}
    (page,) = results(told(content))
    assert (page["source"], page["text"]) == ("ocr", text)


@pytest.mark.parametrize(
    "text",
    ["XK7-9PQ BTW-44Z GHJ-31K MVC-80X PLF-22D " * 4, "§ 1 — ¶ 2 — † 3 — ‡ 4 • 5"],
    ids=["part numbers", "marks"],
)
def test_a_doubtful_text_layer_that_the_picture_confirms_is_used(told: Reader, engine: Onlooker, text: str) -> None:
    engine.says = text.replace("8", "B")
    (page,) = results(told(pages.text_pdf([text])))
    assert engine.loaded == 1
    assert (page["source"], words(page["text"]), page["confidence"]) == ("text_layer", words(text), None)
    engine.says = ""
    (page,) = results(told(pages.text_pdf([text])))
    assert page["source"] == "text_layer", "the engine does not know the script"


# --- limits -----------------------------------------------------------------------------------------------------------


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
from holdfast.features.documents.child.pdf import read_pdf
from holdfast.features.documents.child.protocol import Spec, Unit
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
