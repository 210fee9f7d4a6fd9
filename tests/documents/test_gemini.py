"""The engine gemini through Google's SDK, against a server that speaks the REST shape of the API."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import wave
from datetime import timedelta
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from holdfast.features.documents.child.gemini import EMPTY_PAGE, GeminiPages, GeminiSpeech
from holdfast.features.documents.child.gemini_model import GeminiModel
from holdfast.features.documents.child.protocol import Spec, Unit
from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.features.documents.running import ChildOptions, read_in_child
from tests.support import gemini_server as gemini
from tests.support.child_stand_ins import stand_in
from tests.support.pages import scanned_pdf

MODEL = "gemini-2.5-flash"
KEY = "AIza-canary-key"
CONTENT = "canary of the content"
PATIENCE = 30.0
PAGE = Image.linear_gradient("L").convert("RGB")
TONE = (0.5 * np.sin(np.arange(24_000) * 0.1)).astype(np.float32)  # 1.5 s


@pytest.fixture(scope="module")
def server():
    with gemini.GeminiServer() as running:
        yield running


@pytest.fixture(scope="module")
def pages(server):
    return pages_of(MODEL, server.url, KEY, PATIENCE)


@pytest.fixture(scope="module")
def speech(server):
    return GeminiSpeech(MODEL, GeminiModel(MODEL, server.url, KEY, PATIENCE).ask)


def pages_of(model, *settings) -> GeminiPages:
    """The engine and its model in one process."""
    return GeminiPages(model, GeminiModel(model, *settings).ask)


def read(pages, image=PAGE, language=None):
    return pages.read(image, scale=2.0, language=language)


def failure_of(pages):
    """How reading a page fails. Whatever happens, neither the key nor what was answered is in the failure."""
    with pytest.raises(DocumentFailure) as caught:
        read(pages)
    failure = caught.value
    assert failure.__cause__ is None
    assert failure.__context__ is None, "the SDK's error quotes the answer"
    told = f"{failure!r} {failure.message} {failure.detail} {vars(failure)}"
    assert KEY not in told
    assert CONTENT not in told
    return failure


def test_a_page_is_sent_as_it_looks_and_its_text_comes_back(server, pages):
    server.script(gemini.text("\r\nAção, coração.\r\nSecond line  \n"))
    reading = read(pages, language="pt-BR")

    assert (reading.text, reading.confidence, reading.rotation, reading.lines) == (
        "Ação, coração.\nSecond line",
        None,
        0,
        (),
    )
    (request,) = server.requests
    assert request.path == f"/v1beta/models/{MODEL}:generateContent"
    assert request.headers["x-goog-api-key"] == KEY
    assert request.headers["x-server-timeout"] == "30"
    assert request.config == {"temperature": 0.0}
    assert "verbatim" in request.words
    assert "pt-BR" in request.words
    ((kind, data),) = request.blobs
    assert kind == "image/png"
    with Image.open(io.BytesIO(data)) as sent:
        assert sent.format == "PNG"
        assert sent.tobytes() == PAGE.tobytes()


def test_no_language_is_claimed_when_none_was_given(server, pages):
    server.script(gemini.text("x"))
    read(pages)
    assert "BCP 47" not in server.requests[0].words


def test_a_large_page_goes_as_a_jpeg_no_larger_than_the_model_sees(server, pages):
    noise = np.random.default_rng(7).integers(0, 256, (1_200, 3_200, 4), dtype=np.uint8)
    server.script(gemini.text("x"))
    read(pages, Image.fromarray(noise))

    ((kind, data),) = server.requests[0].blobs
    assert kind == "image/jpeg"
    assert len(data) < 7_000_000
    with Image.open(io.BytesIO(data)) as sent:
        assert (sent.format, sent.size) == ("JPEG", (3_072, 1_152))


def test_an_empty_page_is_an_empty_text_and_the_model_was_told_how_to_say_so(server, pages):
    server.script(gemini.text(f"{EMPTY_PAGE}\n"))
    assert read(pages).text == ""
    assert EMPTY_PAGE in server.requests[0].words


def test_what_the_model_thinks_is_not_what_the_page_says(server, pages):
    parts = [{"text": "Let me see.", "thought": True}, {"text": "One "}, {"text": "page"}]
    server.script(gemini.raw({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}))
    assert read(pages).text == "One page"


def test_sound_is_sent_as_a_recording_of_16_bits_and_segments_come_back(server, speech):
    server.script(
        gemini.segments(
            [
                {"start": 0.9, "end": 61, "text": " and this"},
                {"start": -0.25, "end": 0.75, "text": "This is said "},
                {"start": 0.8, "end": 0.85, "text": "  "},
            ],
            language="en",
        )
    )
    language, said = speech.transcribe(TONE, language=None)

    assert language == "en"
    assert [(each.start, each.end, each.text) for each in said] == [(0.0, 0.75, "This is said"), (0.9, 1.5, "and this")]
    (request,) = server.requests
    assert request.model == MODEL
    assert request.config["temperature"] == 0.0
    assert request.config["responseMimeType"] == "application/json"
    items = request.config["responseSchema"]["properties"]["segments"]["items"]
    assert set(items["required"]) == {"start", "end", "text"}
    ((kind, data),) = request.blobs
    assert kind == "audio/wav"
    with wave.open(io.BytesIO(data)) as sent:
        assert (sent.getnchannels(), sent.getsampwidth(), sent.getframerate()) == (1, 2, 16_000)
        samples = np.frombuffer(sent.readframes(sent.getnframes()), "<i2")
    np.testing.assert_allclose(samples / 32_767, TONE, atol=1e-4)


def test_the_language_that_was_given_is_told_to_the_model_and_kept(server, speech):
    server.script(gemini.segments([], language="en"))
    loud = np.array([2.0, -2.0], np.float32)
    assert speech.transcribe(loud, language="pt") == ("pt", ())
    assert "pt (BCP 47)" in server.requests[0].words
    assert server.requests[0].blobs[0][1].endswith(np.array([32_767, -32_767], "<i2").tobytes()), "clipped, not wrapped"


def test_segments_that_are_not_what_was_asked_are_malformed(server, speech):
    server.script(
        gemini.text("Sure! Here is the transcript."), gemini.segments([{"start": "0:01", "end": 2, "text": "x"}])
    )
    for _ in range(2):
        with pytest.raises(DocumentFailure) as caught:
            speech.transcribe(TONE, language=None)
        assert caught.value.code is Code.MODEL_MALFORMED


ANSWERS = {
    "429 with RetryInfo": (gemini.rate_limited(7.5), Code.MODEL_RATE_LIMIT, "429 RESOURCE_EXHAUSTED", 7.5),
    "429 with Retry-After": (gemini.status(429, retry_after="9"), Code.MODEL_RATE_LIMIT, "429 RESOURCE_EXHAUSTED", 9),
    "429 alone": (gemini.status(429, CONTENT), Code.MODEL_RATE_LIMIT, "429 RESOURCE_EXHAUSTED", None),
    "500": (gemini.status(500, CONTENT), Code.MODEL_UNAVAILABLE, "500 INTERNAL", None),
    "503 with Retry-After": (gemini.status(503, retry_after="3"), Code.MODEL_UNAVAILABLE, "503 UNAVAILABLE", 3),
    "HTML 502": (gemini.html(502), Code.MODEL_UNAVAILABLE, "502", None),
    "500 that is no text": (gemini.Answer(500, b'{"a": "\xff"}'), Code.MODEL_MALFORMED, "UnicodeDecodeError", None),
    "500 too deep": (gemini.Answer(500, b"[" * 100_000), Code.MODEL_MALFORMED, "RecursionError", None),
    "reset": (gemini.reset(), Code.MODEL_UNAVAILABLE, "ReadError", None),
    "400": (gemini.status(400, f"{CONTENT} {KEY}"), Code.MODEL_REJECTED, "400 INVALID_ARGUMENT", None),
    "403": (gemini.status(403, KEY), Code.MODEL_REJECTED, "403 PERMISSION_DENIED", None),
    "404": (gemini.status(404), Code.MODEL_REJECTED, "404 NOT_FOUND", None),
    "408": (gemini.status(408), Code.MODEL_TIMEOUT, "408 UNKNOWN", None),
    "204": (gemini.Answer(204), Code.MODEL_MALFORMED, "204", None),
    "not JSON": (gemini.garbage(f'{{"candidates": "{CONTENT}'.encode()), Code.MODEL_MALFORMED, "not JSON", None),
    "HTML 200": (gemini.garbage(b"<html>"), Code.MODEL_MALFORMED, "not JSON", None),
    "not gzip": (
        gemini.Answer(200, b"{}", {"Content-Encoding": "gzip"}),
        Code.MODEL_MALFORMED,
        "DecodingError",
        None,
    ),
    "empty 200": (gemini.garbage(b""), Code.MODEL_MALFORMED, "not JSON", None),
    "no candidates": (gemini.raw({}), Code.MODEL_MALFORMED, "no candidate", None),
    "no parts": (gemini.finish("STOP"), Code.MODEL_MALFORMED, "no parts", None),
    "no text": (gemini.text(""), Code.MODEL_MALFORMED, "no text", None),
    "no end": (gemini.finish(None, CONTENT), Code.MODEL_MALFORMED, "finish reason", None),
    "blocked": (gemini.blocked(), Code.MODEL_REFUSED, "prompt blocked PROHIBITED_CONTENT", None),
    "SAFETY": (gemini.finish("SAFETY"), Code.MODEL_REFUSED, "finish reason SAFETY", None),
    "RECITATION": (gemini.finish("RECITATION", CONTENT), Code.MODEL_REFUSED, "finish reason RECITATION", None),
    "MAX_TOKENS": (gemini.finish("MAX_TOKENS", CONTENT), Code.MODEL_TRUNCATED, "finish reason MAX_TOKENS", None),
    "CONTINUATION": (gemini.finish("CONTINUATION", CONTENT), Code.MODEL_TRUNCATED, "finish reason CONTINUATION", None),
    "a new reason": (gemini.finish("BRAND_NEW", CONTENT), Code.MODEL_MALFORMED, "finish reason BRAND_NEW", None),
}


@pytest.mark.parametrize(("answer", "code", "detail", "after"), ANSWERS.values(), ids=ANSWERS)
def test_every_answer_lands_where_the_table_says_after_one_request(server, pages, answer, code, detail, after):
    server.script(answer, gemini.text("a second request would succeed"))
    failure = failure_of(pages)
    assert (failure.code, failure.detail) == (code, detail)
    assert failure.retry_after == (None if after is None else timedelta(seconds=after))
    assert len(server.requests) == 1


def test_a_server_that_never_answers_is_a_timeout(server):
    server.script(gemini.hang())
    failure = failure_of(pages_of(MODEL, server.url, KEY, 0.3))
    assert (failure.code, failure.detail) == (Code.MODEL_TIMEOUT, "ReadTimeout")
    assert server.requests[0].headers["x-server-timeout"] == "10", "Google refuses a shorter deadline"


def test_a_server_that_is_not_there_is_unavailable():
    with socket.socket() as bound:  # bound and not listening: refused, and nobody else gets the port
        bound.bind((gemini.HOST, 0))
        failure = failure_of(pages_of(MODEL, f"http://{gemini.HOST}:{bound.getsockname()[1]}", KEY, PATIENCE))
    assert (failure.code, failure.detail) == (Code.MODEL_UNAVAILABLE, "ConnectError")


def test_the_key_does_not_follow_a_redirect(server, pages):
    with gemini.GeminiServer() as elsewhere:
        elsewhere.script(gemini.text("x"))
        server.script(gemini.redirect(f"{elsewhere.url}/v1beta/models/{MODEL}:generateContent"))
        failure = failure_of(pages)
        assert elsewhere.requests == []
    assert (failure.code, failure.detail) == (Code.MODEL_REJECTED, "307")


@pytest.mark.parametrize(
    ("model", "base_url", "key"),
    [
        (MODEL, None, ""),
        (MODEL, None, " \n"),
        (MODEL, None, "chave-é"),
        (MODEL, None, "two words"),
        ("../files", None, KEY),
        ("a?b", None, KEY),
        ("", None, KEY),
        (MODEL, "ftp://example.com", KEY),
        (MODEL, "https://", KEY),
        (MODEL, "http://[::1", KEY),
    ],
)
def test_settings_that_no_request_can_be_made_with_say_so_at_once(model, base_url, key):
    with pytest.raises(DocumentFailure) as caught:
        GeminiModel(model, base_url, key, PATIENCE)
    assert caught.value.code is Code.ENGINE_UNAVAILABLE
    for given in {model, base_url, key.strip()} - {None, "", MODEL}:
        assert given not in caught.value.message


def test_a_missing_key_is_told_by_its_name():
    with pytest.raises(DocumentFailure, match="GEMINI_API_KEY is not set"):
        GeminiModel(MODEL, None, "", PATIENCE)


def test_the_key_of_the_settings_counts_and_not_that_of_the_environment(server, monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "another")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    server.script(gemini.text("x"))
    read(pages_of(MODEL, server.url, KEY, PATIENCE))
    assert server.requests[0].headers["x-goog-api-key"] == KEY
    assert server.requests[0].path.startswith("/v1beta/models/")


# --- the process that reads, and the process that asks ----------------------------------------------------------------


async def said_by(server, command=None, engine="gemini", **spec) -> list:
    said = []

    async def listen(message):
        said.append(message)

    long = timedelta(seconds=60)
    limits = ChildOptions(memory=None, unit_timeout=long, total_timeout=long, environment={"GEMINI_API_KEY": KEY})
    options = {"model": MODEL, "base_url": server.url, "timeout": PATIENCE}
    spec = Spec(**{"path": "a.pdf", "job_type": "OCR", "input_type": "PDF", **spec}, engine=engine, options=options)
    await read_in_child(spec, limits, listen, command)
    return said


async def test_the_process_that_reads_asks_through_the_caller(server, tmp_path):
    (tmp_path / "scan.pdf").write_bytes(scanned_pdf(["The first page.", "The second page."]))
    server.script(gemini.text("One. " * 40_000), gemini.text("Two."))
    said = await said_by(server, path=str(tmp_path / "scan.pdf"))
    pages = [message.result for message in said if isinstance(message, Unit)]
    assert [page["text"] for page in pages] == [("One. " * 40_000).strip(), "Two."], "more than a pipe holds"
    assert [request.headers["x-goog-api-key"] for request in server.requests] == [KEY, KEY]


CONFINED = """
import socket, sys
from holdfast.features.documents.child.confinement import confine

def tried(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"

ours, other = map(int, sys.argv[1:])
if confine([], ours).landlock >= 4:
    print(tried(socket.create_connection, ("127.0.0.1", ours)))
    print(tried(socket.create_connection, ("127.0.0.1", other)))
    print(tried(open, "/etc/passwd"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has Landlock")
def test_the_caller_reaches_one_port_and_no_file(server):
    with socket.create_server((gemini.HOST, 0)) as other:
        ports = [str(urlsplit(server.url).port), str(other.getsockname()[1])]
        said = subprocess.run([sys.executable, "-c", CONFINED, *ports], check=True, capture_output=True, text=True)
    if not said.stdout:
        pytest.skip("the kernel has no Landlock that knows ports")
    assert said.stdout.split() == ["done", "PermissionError", "PermissionError"]


async def test_what_goes_wrong_at_the_model_is_told_by_the_caller(server, tmp_path):
    (tmp_path / "scan.pdf").write_bytes(scanned_pdf(["A page."]))
    server.script(gemini.rate_limited(7))
    with pytest.raises(DocumentFailure) as raised:
        await said_by(server, path=str(tmp_path / "scan.pdf"))
    assert (raised.value.code, raised.value.retry_after) == (Code.MODEL_RATE_LIMIT, timedelta(seconds=7))


async def test_a_process_that_is_taken_over_cannot_ask_without_end(server):
    server.script(gemini.text("an answer"))
    (told,) = await said_by(server, stand_in("asking", 1))
    assert json.loads(told.stage) == {"is": "answer", "text": "an answer"}
    with pytest.raises(DocumentFailure) as raised:
        await said_by(server, stand_in("asking", 3))
    assert (raised.value.code, raised.value.detail) == (Code.CHILD_CRASHED, "a question that is not expected")
    assert len(server.requests) == 2, "one of each process"


async def test_a_process_that_ends_before_the_answer_is_noticed_at_once(server):
    server.script(gemini.hang())
    with pytest.raises(DocumentFailure) as raised:
        await said_by(server, stand_in("asking_and_dying"))
    assert (raised.value.code, raised.value.detail) == (Code.CHILD_CRASHED, "exit code 7")


async def test_the_local_engine_asks_nobody(server):
    server.script(gemini.text("an answer"))
    with pytest.raises(DocumentFailure) as raised:
        await said_by(server, stand_in("asking", 1), engine="local")
    assert (raised.value.code, raised.value.detail) == (Code.CHILD_CRASHED, "a question that is not expected")
    assert server.requests == []
