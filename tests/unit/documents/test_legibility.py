"""Whether the characters of a text layer can be those that the page shows. What is legible is never read again."""

from __future__ import annotations

import random
import string
import unicodedata

import pytest

from holdfast.features.documents.child.text_layer import Legibility, agree, legibility
from tests.support.pages import SAMPLES

EN, PT = SAMPLES["en"], SAMPLES["pt"]

LANGUAGES = {
    "English": EN,
    "Portuguese": PT,
    "Spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y deben comportarse con amistad.",
    "French": "Tous les êtres humains naissent libres et égaux en dignité et en droits, et doivent agir en frères.",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft begabt.",
    "Polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni "
    "rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa.",
    "Czech": "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím.",
    "Turkish": "Bütün insanlar hür, haysiyet ve haklar bak\u0131m\u0131ndan eşit doğarlar.",
    "Finnish": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.",
    "Hungarian": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van.",
    "Vietnamese": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền. Mọi con người đều được "
    "tạo hoá ban cho lý trí và lương tâm và cần phải đối xử với nhau trong tình bằng hữu.",
    "Welsh": "Genir pawb yn rhydd ac yn gydradd â'i gilydd mewn urddas a hawliau. Fe'u cynysgaeddir â rheswm.",
    "Indonesian": "Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama.",
    "Swahili": "Watu wote wamezaliwa huru, hadhi na haki zao ni sawa. Wote wamejaliwa akili na dhamiri.",
    "Russian": "Все люди рождаются свободными и равными в своём достоинстве и правах.",  # noqa: RUF001 - the letters of that language
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",  # noqa: RUF001 - the letters of that language
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。HTTP",  # noqa: RUF001 - the letters of that language
    "Japanese": "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。PDF",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
}
PAGES = {
    "a page number": "Page 3",
    "a page number alone": "12",
    "a heading": "Chapter 7",
    "a figure": "Fig. 4",
    "a table of numbers": "1.234,56 78,9% -12,3 (45,00) 2024-05-31 31/12/2023 12:30 R$ 1.000,00 $5 €7,50\n" * 20,
    "only digits": "0123456789\n" * 30,
    "an invoice": "NF-e 000.123.456 Série 1\nCNPJ 12.345.678/0001-95 IE 110.042.490.114\n"
    "Cód Descrição NCM CST CFOP Un Qtd\n"
    "001 Parafuso sextavado 7318.15.00 000 5102 PC 100,000 0,35 35,00\n"
    "002 Arruela lisa 7318.22.00 000 5102 PC 200,000 0,10 20,00\nTotal R$ 55,00 ICMS 18% 9,90\n",
    "a list of contents": "1 Introduction ........................ 3\n2 Methods . . . . . . . . . . . . . . . . 17\n",
    "telephone numbers": "(11) 98765-4321 +55 21 2345-6789\n" * 9,
    "a form": "Name: ______________ Date: __/__/____\n[ ] yes [ ] no\nSignature: _____________________",
    "source code": "def total(items: list[int]) -> int:\n    return sum(item for item in items if item > 0)\n",
    "a sum": "a + b = c; 2 + 2 = 4",
    "capitals": EN.upper(),
}


def shifted(text: str, places: int = -29) -> str:
    """As a font gives it whose characters are numbered from another place on; spaces stay."""
    return "".join(chr(ord(sign) + places) if 32 < ord(sign) + places < 127 else sign for sign in text)


@pytest.mark.parametrize("text", [*LANGUAGES.values(), *PAGES.values()], ids=[*LANGUAGES, *PAGES])
def test_what_people_write_is_legible(text):
    assert legibility(text, 0) is Legibility.LEGIBLE


@pytest.mark.parametrize(
    "text",
    [
        "7+%-",
        shifted(EN),
        shifted(EN.upper()),
        shifted("The phone rings"),
        shifted("THE PHONE RINGS"),
        shifted("The quick brown fox jumps over the lazy dog", places=3),
        "".join(map(chr, range(33, 64))),
    ],
    ids=["of the issue", "lower case", "capitals", "a line", "a line in capitals", "by three", "in the order of use"],
)
def test_letters_in_disorder_are_doubtful(text):
    assert legibility(text, 0) is Legibility.DOUBTFUL


@pytest.mark.parametrize("language", ["English", "Portuguese"])
def test_few_exchanges_of_letters_pass_for_a_language(language):
    """A font that numbers its letters in the order of their use is such an exchange."""
    chance = random.Random(7)
    plain = unicodedata.normalize("NFKD", LANGUAGES[language]).encode("ascii", "ignore").decode().lower()
    passed = 0
    for _ in range(200):
        letters = list(string.ascii_lowercase)
        chance.shuffle(letters)
        table = str.maketrans(string.ascii_lowercase, "".join(letters))
        passed += legibility(plain.translate(table), 0) is Legibility.LEGIBLE
    assert passed < 30


def test_characters_that_their_font_has_no_name_for_are_doubtful_where_they_are_many():
    assert legibility("x" + EN, len(EN) // 5) is Legibility.DOUBTFUL
    assert legibility("x" + EN, 5) is Legibility.LEGIBLE, "a bullet or two"


@pytest.mark.parametrize("sign", ["\x03", "\ufffd", "\ue000", "\u0378"])
def test_characters_that_nobody_writes_are_rubbish_where_they_are_many(sign):
    assert legibility(EN + sign * 200, 0) is Legibility.RUBBISH
    assert legibility(EN + sign, 0) is Legibility.LEGIBLE


def test_a_layer_agrees_with_a_reading_of_the_same_page_with_its_mistakes():
    misread = EN.replace("1897", "l897").replace("rn", "m").replace("litres", "Iitres").replace("fi", "f1")
    assert agree(EN, EN)
    assert agree(EN, misread)
    assert agree(PT, PT.replace("ç", "c").replace("ã", "a")), "accents are easily lost"
    columns = "\n".join(reversed(EN.split("\n")))
    assert agree(EN, columns), "in another order"


def test_a_layer_does_not_agree_with_another_text():
    assert not agree(shifted(EN), EN)
    assert not agree(shifted("Phone"), "Phone")
    assert not agree(PT, EN)
    assert not agree(EN, EN[:100]), "half of the page is not the page"
    assert not agree("%(+)*", "Phone"), "nothing to compare"


def test_an_engine_that_reads_nothing_says_nothing_against_the_layer():
    assert agree("يبيب", "")
    assert agree("يبيب", " \n.")
