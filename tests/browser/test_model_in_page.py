"""The published model in a page: tokens, weights and cuts as torch has them, in a real browser."""

import random

import pytest
import torch

from cut_by_hand import moved_by_hand
from mha_course.explore.n08_real_heads import OFFERED
from mha_course.pages import published
from mha_lesson import pretrained

pytestmark = pytest.mark.long  # test_typed.py has one sentence drawn in a page as Python draws it
SIGNS = (
    "The creek was cold", "café naïve Ångström", "ΟΔΥΣΣΕΥΣ ΣΑΣ", "İstanbul ẞ ǅ", "漢字かな交じり",
    "𠀀𪜀",
    "한국어 조금", "😀 👩‍👩‍👧 🏽🇫🇷", "don't e.g. 3.14% #tag @me", "a\tb\nc\rd\u00a0e\u2003f",
    "\u200b\ufeffzero\u00adwidth", "\x00\x07\x85bell", "`x^2 + y_1` = ~$z|<>",
    "[MASK] and [CLS][SEP]", "[mask]", "x" * 100, "y" * 101, "antidisestablishmentarianism",
    "नमस्ते दुनिया", "مرحبا بالعالم", "שָׁלוֹם", "ﬁne ½ ² ① Ⅳ", "𝔘𝔫𝔦", "— – … “q” ‘r’ «s»",
    "１２３ＡＢＣ", "สวัสดี", "e\u0301 Q\u0323\u0307", "https://a.b/c?d=e&f", "CamelCase SHOUT", "",
    " ", "\ue000private", "\u2028line\u2029par", "\ufffd?",
    "spunky unbelievably hydroxychloroquine", "¿qué? ¡sí!", "№ € £ ¥ © ®",
)  # fmt: skip
MORE = (
    "She poured the tea because it was ready.", "The bank raised its rates.",
    "We sat on the bank of the river.", "Paul gave Peter the book he had promised him.",
    "No dogs bark at night here.", "The horse raced past the barn fell.", "Rain, rain, go away!",
    "I never said she stole my money.", "Who wrote the letter that you burned?",
    "An apple a day keeps the doctor away.", "Colourless green ideas sleep furiously.",
    "It is what it is.", "The man bit the dog.", "The dog bit the man.",
    "My phone died, so I charged it.", "Add 2 and 3 to get 5.",
    "Quantum chromodynamics describes quarks.", "Berlin is the capital of Germany.",
    "Paris, not Lyon, is the capital.", "The cake that Ann baked was eaten by Tom.",
    "Birds fly; fish swim; snakes crawl.", "He ran. She ran. They ran.",
    "Buffalo buffalo buffalo buffalo.", "The lawyer questioned the witness; she was nervous.",
    "café au lait", "How do I reset my password?", "I can't log in.", "Stop!",
    "The sun, the moon and the stars.", "word " * 40,
)  # fmt: skip
PLAIN = "WebAssembly.validate = () => false"  # what a browser without SIMD says
OPEN = "async () => { window.m = (await mhaTyped).model; await m.open(); }"
PASS = """async (text) => {
  const s = await m.sentence(text);
  return [s.labels, s.all.weights.map((w) => [...w]), [...s.all.states.at(-1)]];
}"""


def mixed(*between: str) -> list[str]:
    """260 texts of two to six of SIGNS."""
    drawn = random.Random(5)
    return [
        drawn.choice(between).join(drawn.choices(SIGNS, k=drawn.randint(2, 6))) for _ in range(260)
    ]


@pytest.fixture
def folder(site_of):
    return site_of(published)


@pytest.fixture(scope="module")
def model():
    return pretrained.load()


@pytest.fixture
def opened(tab, folder):
    """A page in which `m` is the model."""
    page = tab(offline=True)
    page.goto((folder / "index.html").as_uri())
    page.evaluate(OPEN)
    return page


def test_texts_have_the_ids_of_the_model_s_own_tokenizer(opened, model):
    texts = [*SIGNS, *mixed("", " "), "creek " * 126]
    got = opened.evaluate("texts => texts.map((text) => m.tokenizer.encode(text))", texts)
    for text, ids in zip(texts, got, strict=True):
        assert ids == model.tokenizer.encode(text).ids, repr(text)


@pytest.mark.parametrize("text", [*OFFERED, *MORE])
def test_weights_and_moves_are_torch_s(opened, model, text):
    encoded = model.encode(text)
    labels, weights, last = opened.evaluate(PASS, text)
    assert labels == list(encoded.labels)
    weights = torch.tensor(weights).view(encoded.weights.shape)
    torch.testing.assert_close(weights, encoded.weights, atol=0.002, rtol=0)
    torch.testing.assert_close(
        torch.tensor(last).view(-1, 384), encoded.hidden[-1], atol=0.03, rtol=0
    )
    T, drawn = len(labels), random.Random(text)
    layer, head, row, column = (drawn.randrange(n) for n in (6, 12, T, T))
    some = [[layer, head, row, column], [5, 7, row, 0], [layer, None, row, 1]]
    for cuts in (some[:1], some, [[layer, head, None, None]], [[layer, None, None, None]]):
        moves = torch.tensor(
            opened.evaluate(
                "async ([text, cuts]) => [...(await m.sentence(text)).moved(cuts)]", [text, cuts]
            )
        )
        torch.testing.assert_close(moves, moved_by_hand(model, text, cuts), atol=0.003, rtol=0)
    effects = opened.evaluate(
        "async ([text, ...at]) => [...(await (await m.sentence(text)).effects(...at))]",
        [text, layer, head, row],
    )
    alone = moved_by_hand(model, text, some[:1])[row]
    assert effects[column] == pytest.approx(alone.item(), abs=0.003)


def test_a_browser_without_simd_is_told_so_and_nothing_is_fetched(tab, folder):
    page, asked = tab(script=PLAIN, offline=True), []
    page.goto((folder / "index.html").as_uri())
    page.on("request", lambda request: asked.append(request.url))
    said = page.evaluate("async () => (await mhaTyped).model.open().catch((e) => e.message)")
    assert "SIMD" in said and not asked


def test_what_cannot_be_a_sentence_says_why(opened):
    for text, word in (("", "no word"), ("𠀀" * 3, "English"), ("creek " * 30, "32 tokens")):
        said = opened.evaluate(
            "text => m.sentence(text, 24).then(() => '', (e) => e.message)", text
        )
        assert word in said


def test_a_file_that_does_not_come_is_said_and_asked_for_again(tab, folder):
    page, [lost] = tab(), folder.glob("*/layer-3-widen.js")
    page.goto((folder / "index.html").as_uri())
    away = lost.rename(lost.with_suffix(".away"))
    try:
        assert "network" in page.evaluate(f"({OPEN})().then(() => '', (e) => e.message)")
    finally:
        away.rename(lost)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(OPEN)
    assert [url.rsplit("/", 1)[1] for url in asked] == [lost.name]
    assert page.evaluate("async () => (await m.sentence('A dog.')).labels.length") == 5


def test_all_words_once_and_no_file_is_asked_for_again(opened):
    opened.evaluate("m.open(undefined, m.parts)")
    assert opened.evaluate("m.encoder.coming.size") == 259
    asked = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.evaluate("async () => { await m.sentence('Zebras hydroxylate quickly.'); }")
    assert not asked


def test_it_takes_the_memory_of_its_weights_and_no_more(opened):
    client = opened.context.new_cdp_session(opened)

    def megabytes() -> float:
        client.send("HeapProfiler.collectGarbage")
        used = client.send("Runtime.getHeapUsage")
        return (used["usedSize"] + used.get("backingStorageSize", 0)) / 1e6

    at_first = megabytes()
    opened.evaluate(
        "async () => { for (let i = 0; i < 30; i++) await m.sentence(`The dog saw ${i} cats.`); }"
    )
    assert at_first < 80
    assert megabytes() < at_first + 8
