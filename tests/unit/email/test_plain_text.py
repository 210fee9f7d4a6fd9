"""The text alternative: the HTML as a person reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.features.email.plain_text import WIDTH, text_of


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("", ""),
        ("Olá", "Olá\n"),
        ("<p>Um</p><p>Dois</p>", "Um\n\nDois\n"),
        ("<p>Um</p>\n\n  <p>Dois</p>", "Um\n\nDois\n"),
        ("a<br>b<BR/>c", "a\nb\nc\n"),
        ("a<br><br><br>b", "a\n\nb\n"),
        ("<div>a</div><div>b<div>c</div></div>", "a\nb\nc\n"),
        ("<h1>Título</h1>texto", "Título\n\ntexto\n"),
        ("a  \n\t b&nbsp;&nbsp;c", "a b c\n"),
        ("&lt;b&gt; &amp; &eacute; &#233; &#x1F991;", "<b> & é é 🦑\n"),
        ("<a href='https://example.com/x?a=1&amp;b=2'>Pagar</a> já", "Pagar (https://example.com/x?a=1&b=2) já\n"),
        ('<a href="https://example.com/">example.com</a>', "example.com\n"),
        ('<a href="mailto:loja@example.com">loja@example.com</a>', "loja@example.com\n"),
        ('<a href="https://example.com"><img src="x.png"></a>', "https://example.com\n"),
        ('<a href="https://example.com"><img alt="Loja"></a>', "Loja (https://example.com)\n"),
        ('<a href="#top">topo</a> <a href="javascript:alert(1)">x</a> <a>y</a>', "topo x y\n"),
        (
            '<a href="https://a.example">a<a href="https://b.example">b</a>',
            "a (https://a.example)b (https://b.example)\n",
        ),
        ("<ul><li>um<li>dois</ul>fim", "- um\n- dois\n\nfim\n"),
        ("<ol><li>um</li><li>dois</li></ol>", "1. um\n2. dois\n"),
        ("<ul><li>a<ol><li>b</li></ol></li><li>c</li></ul>", "- a\n  1. b\n- c\n"),
        ("<table><tr><th>Item<th>Valor<tr><td>Luz</td><td>R$ 10</td></tr></table>", "Item | Valor\nLuz | R$ 10\n"),
        ("<table><tr><td></td><td>a</td><td> </td></tr></table>", "a\n"),
        ("<table><tr> <td>a</td> <td>b</td></tr></table>", "a | b\n"),
        ("a<hr>b", "a\n--------------------\nb\n"),
        ("<html><head><title>T</title><style>p{}</style></head><body>x</body></html>", "x\n"),
        ("<script>if (a < b) document.write('<p>no</p>')</script>x", "x\n"),
        ("<STYLE>a</STYLE >x<style>never closed", "x\n"),
        ("a<!-- no --><!--[if mso]><p>no</p><![endif]-->b", "ab\n"),
        ("<!DOCTYPE html><?xml version='1.0'?>x", "x\n"),
        ("a<!-- never closed <p>b</p>", "a\n"),
        ('<div style="display:none">prévia <div>in</div></div>x', "x\n"),
        ('<div style="display:none">a<div>b</div>c</div>x', "x\n"),
        ("<span style='color:red; DISPLAY : NONE !important'>no</span>x", "x\n"),
        ("<span hidden>no</span><i style='visibility:hidden'>no</i>x", "x\n"),
        ('<img alt="nothing hidden here" style="width:1px">x', "nothing hidden herex\n"),
        ("<p>&zwnj;&#847;&zwnj;&shy;</p>x", "x\n"),
        ("a < b and c > d", "a < b and c > d\n"),
        ("1 <2", "1 <2\n"),
        ("<i>x</i> <b y", "x <b y\n"),
        ('<p title="a > b">x</p>', "x\n"),
        ('<p title="never closed>x</p>', "x\n"),
        ("</p></div></a></li></ul>x", "x\n"),
        ("a\x00b\x1b[31m", "ab[31m\n"),
    ],
)
def test_html_becomes_the_text_that_a_person_reads(html, text):
    assert text_of(html) == text


def test_lines_are_wrapped_at_spaces_and_never_inside_a_word():
    url = "https://example.com/" + "x" * 200
    text = text_of(f"<p>{'palavra ' * 40}</p><ul><li>{'item ' * 40}</li></ul><p>{url}</p>")

    lines = text.splitlines()
    assert all(len(line) <= WIDTH for line in lines if line != url)
    assert url in lines
    assert text.split() == [*["palavra"] * 40, "-", *["item"] * 40, url]
    assert [line[:2] for line in lines if "item" in line] == ["- ", "  ", "  "]


@given(st.text(alphabet=st.sampled_from("<>/!-=\"' abpli?&;#\nç"), max_size=200) | st.text(max_size=200))
def test_any_text_can_be_read(html):
    text_of(html)


SOUP = [
    "<p>", "</p>", "<div style='display:none'>", "</div>", "<a href='http://x.y/z'>", "</a>", "<ul>", "<li>", "</ol>",
    "<td>", "<script>", "</script>", "<!--", "-->", "<p title='", "x", " ",
]  # fmt: skip


@given(st.lists(st.sampled_from(SOUP)))
def test_any_soup_of_tags_can_be_read(pieces):
    assert "<script" not in text_of("".join(pieces))


HOSTILE = [
    "<div>", "<a href='https://x.example'>", "<ul><li>x", "x<td>", "<p hidden>", "<!--", "<![CDATA[", "<?", "<", "</",
    "<a a='", '<a "', "<a '><a' \" ", "<script>", "</script", "<style>x</style", "&#x", "&amp", "<table><tr><td>",
    "<b style='display:none", "<a x='\">", '<a ">" ',
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("unit", HOSTILE)
def test_a_hundred_thousand_hostile_tags_are_read_before_the_test_times_out(unit):
    """With the quadratic time of the standard library's parser, each of these would take minutes."""
    text_of(unit * 100_000 + ">")
    text_of(unit * 100_000)
