"""Notebook 00: what its card asserts, the sample of a report, and the map."""

import re

import pytest

import notebooks
from mha_course import check
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


def test_words_and_symbols_stand_in_one_place():
    page = (notebooks.FOLDER / "WORDS.md").read_text(encoding="utf-8")
    assert "| query, key, value |" in page and "`True` means *blocked*" in page
    assert "(WORDS.md)" in cell("title").source
    assert "| symbol |" not in "".join(c.source for c in notebooks.read(START).cells)
