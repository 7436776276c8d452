"""Notebook 00: what its card asserts, the sample of a report, and the map."""

import re
from functools import cache

import pytest

import notebooks
from mha_course import check
from mha_course.base.notebook import open_thread
from mha_lesson import pretrained, text

START = next(path for path in notebooks.paths() if path.name.startswith("00"))


def cell(name):
    return next(cell for cell in notebooks.read(START).cells if cell.id == name)


def test_a_token_is_no_word():
    """In other sentences too: marks, full stops and pieces make more tokens than words."""
    try:
        tokenizer = pretrained.tokenizer()
    except pretrained.WeightsMissing:
        pytest.skip("the pretrained weights are not installed")
    cut = 0
    for sentence in text.annotated_sentences():
        n_words = sum(word.isalpha() for word in text.words(sentence.text))
        tokens = tokenizer.encode(sentence.text).tokens
        assert len(tokens) > n_words
        cut += any(token.startswith("##") for token in tokens)
    assert cut > 0


def test_the_answer_about_the_heads():
    creek = text.sentence()
    shares = creek.weights[:, creek.tokens.index("it"), creek.tokens.index("creek")]
    assert shares.argmax() == 1 and f"{shares[1]:.2f}" == "0.85"
    others = [share.item() for head, share in enumerate(shares) if head != 1]
    assert max(others) < 0.21
    answer = cell("explorers-answer").source
    assert "head 1" in answer and ".85" in answer and ".21" in answer


def test_the_sample_of_a_report_is_what_the_check_says():
    source = cell("report-text").source
    scope = {}
    exec(re.search(r"```python\n(.*?)```", source, re.S)[1], scope)
    report = check.attention_scores(scope["attention_scores"])
    assert report.passed is False
    said = re.sub(r"^> ?", "", source[source.index("> **") :], flags=re.M)
    assert f"**✗ {report.name}: {report.verdict}**" in said
    [finding] = report.findings
    assert finding.does in said and finding.asks in said


PAGE = (notebooks.FOLDER / "WORDS.md").read_text(encoding="utf-8").replace(r"\text{model}", "model")
WORDS = re.findall(r"^\| ([a-z, ]+) \|", PAGE.split("## Symbols")[0], re.M)[1:]
SYMBOLS = {  # each, and a word by which a text says what it is
    "B": "batch",
    "T": "tokens",
    "h": "heads",
    **dict.fromkeys(("d_model", "d_k", "d_v"), "numbers"),
}


@cache
def open_texts():
    """The open threads, one after the other, without titles, headings, tables and links."""
    unsaid, texts = re.compile(r"^[#|].*$|\[[^\]]*\]\([^)]*\)", re.M), []
    for path in notebooks.paths():
        for cell in open_thread(notebooks.read(path).cells)[1:]:
            if not cell.metadata.get("jupyter", {}).get("source_hidden"):
                said = cell.source if cell.cell_type == "code" else unsaid.sub("", cell.source)
                texts.append(said.replace(r"\text{model}", "model"))
    return texts


@pytest.mark.parametrize("word", ", ".join(WORDS).split(", "))
def test_a_word_is_set_apart_where_it_first_appears(word):
    found = (re.search(rf"(\*?)\b{word}s?\b", text, re.I) for text in open_texts())
    assert next(filter(None, found))[1] == "*"


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_symbol_is_explained_where_it_first_appears(symbol):
    assert re.search(rf"^\| [^|]*\b{symbol}\b[^|]*\|[^|]*{SYMBOLS[symbol]}", PAGE, re.M)
    text = next(t for t in open_texts() if re.search(rf"(?<![\w.^]){symbol}(?![a-z.])", t))
    assert SYMBOLS[symbol] in text


def test_words_and_symbols_stand_in_one_place():
    assert len(WORDS) > 10 and "`True` means *blocked*" in PAGE
    assert "(WORDS.md)" in cell("title").source
    assert "| symbol |" not in "".join(c.source for c in notebooks.read(START).cells)
