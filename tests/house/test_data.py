"""The files of `data/`: what they claim to be, and read as they should be."""

import hashlib
import re
from collections import Counter
from itertools import product

import pytest
import torch
from safetensors.torch import load_file

from mha_lesson import text

MAKES = "cuts experiments sentence minilm_reference models northanger runs writing writes"
MAKERS = {f"make_{name}.py" for name in MAKES.split()}
PRONOUNS = {"he", "she", "it", "they"}
WOMEN = """
    queen mother aunt waitress girl daughter princess actress woman grandmother wife niece nun
    sister lady bride landlady heroine empress
"""


# ---------------------------------------------------------------- the folder


def test_the_readme_lists_every_file_with_its_hash():
    row = r"^\| `([\w.]+)` .*`([0-9a-f]{64})` \|$"
    listed = dict(re.findall(row, (text.DATA / "README.md").read_text(), re.M))
    there = {path.name for path in text.DATA.iterdir() if path.is_file()}
    assert listed == text.SHA256
    assert there - MAKERS - {"README.md"} == set(listed)
    for name, sha256 in listed.items():
        assert hashlib.sha256((text.DATA / name).read_bytes()).hexdigest() == sha256


def test_a_missing_and_a_changed_file_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "DATA", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"pairs.tsv is missing.*pip install --force"):
        text.data_file("pairs.tsv")
    (tmp_path / "pairs.tsv").write_text("kind\tpart\n")
    with pytest.raises(ValueError, match=r"not the file.*git checkout data/pairs.tsv"):
        text.data_file("pairs.tsv")


# ---------------------------------------------------------------- the sentence


def test_the_sentence_has_the_vectors_of_the_published_model():
    creek, reference = text.sentence(), load_file(text.data_file("minilm_reference.safetensors"))
    T = int(reference["lengths"][0])
    assert len(creek.tokens) == T == 17
    ours = (creek.embeddings, creek.hidden, creek.weights)
    theirs = (
        reference["hidden"][0, 0, :T],
        reference["hidden"][creek.layer, 0, :T],
        reference["weights"][creek.layer, 0, :, :T, :T],
    )
    for found, expected, error in zip(ours, theirs, (1e-6, 1e-6, 5e-6), strict=True):
        assert (found - expected).abs().max() < error


def test_a_head_has_its_own_queries_keys_and_values():
    creek = text.sentence()
    for i in range(creek.n_heads):
        assert all(map(torch.equal, creek.head(i), (tensor[i] for tensor in creek.heads)))


def test_the_sentence_moves_to_a_device_whole():
    creek, moved = text.sentence(), text.sentence().to("meta")
    assert moved.tokens == creek.tokens and moved.layer == creek.layer
    tensors = {k: v for k, v in vars(creek).items() if torch.is_tensor(v)}
    for name, tensor in tensors.items():
        found = getattr(moved, name)
        assert found.shape == tensor.shape and found.dtype == tensor.dtype
        assert found.device.type == "meta" and tensor.device.type == "cpu"
    assert len(tensors) >= 10 and moved.weights.device.type == "meta"
    with pytest.raises((TypeError, ValueError), match="device"):
        creek.to("nowhere")


def test_the_sentence_is_small_and_read_once():
    assert (text.DATA / "sentence.safetensors").stat().st_size < 3_000_000
    assert text.sentence() is text.sentence()


def test_labels():
    assert text.labels(["the", "or", "##ni", "##th", "."]) == ("the", "or-", "-ni-", "-th", ".")
    assert text.labels([]) == ()
    assert text.sentence().labels[7:9] == ("spun-", "-ky")


# ---------------------------------------------------------------- annotated sentences


def test_every_link_joins_the_words_it_should():
    sentences = text.annotated_sentences()
    assert len(sentences) == len({s.text for s in sentences}) == 48
    determiners = {"the", "a", "an", "this", "that", "these", "those", "every", "some"}
    for s in sentences:
        words = ["[CLS]", *(w.lower() for w in text.words(s.text)), "[SEP]"]
        assert set(s.links) == {"determiner>noun", "adjective>noun", "verb>subject"}
        nouns = {end for _, end in s.links["determiner>noun"]}
        for start, end in s.links["determiner>noun"]:
            assert words[start] in determiners and start < end, s.text
        for start, end in s.links["adjective>noun"]:
            assert end in nouns and words[start] not in determiners and start < end, s.text
        for start, end in s.links["verb>subject"]:
            assert start > end and words[start] not in determiners, s.text
        starts = [start for start, _ in s.links["determiner>noun"]]
        # "that" also opens a clause; every other determiner is annotated
        all_of_them = [i for i, w in enumerate(words) if w in determiners - {"that"}]
        assert set(all_of_them) <= set(starts), s.text


def test_a_repeated_word_is_found_by_its_number():
    first = next(s for s in text.annotated_sentences() if s.text.startswith("The picture"))
    words = ["[CLS]", *text.words(first.text)]
    links = {start: words[end] for start, end in first.links["determiner>noun"]}
    assert links == {1: "picture", 4: "wall", 7: "boy"}


def test_the_sentences_of_a_pair_agree_and_differ_in_one_word_and_in_what_is_meant():
    pairs = text.pronoun_pairs()
    agreeing = dict.fromkeys(product(("number", "gender"), (False, True)), 10)
    assert Counter((p.kind, p.held_out) for p in pairs) == agreeing | {("meaning", True): 14}
    for pair in pairs:
        one, two = pair.sentences
        a, b = (["[CLS]", *text.words(s.text)] for s in pair.sentences)
        assert len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1, one.text
        assert (one.meant, one.other, one.pronoun) == (two.other, two.meant, two.pronoun)
        for s, words in ((one, a), (two, b)):
            assert words[s.pronoun] in PRONOUNS, s.text
            assert max(s.meant, s.other) < s.pronoun, s.text
            assert not re.search(r"[*{}|]", s.text)
            if pair.kind == "number":
                assert (words[s.pronoun] == "they") == words[s.meant].endswith("s"), s.text
            elif pair.kind == "gender":
                assert (words[s.pronoun] == "she") == (words[s.meant] in WOMEN.split()), s.text
        assert (a[one.pronoun] == b[two.pronoun]) == (pair.kind == "meaning"), one.text


def test_random_sentences_are_seeded_and_leave_no_trace():
    before = torch.get_rng_state()
    first = text.random_sentences(5, 7, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert first == text.random_sentences(5, 7, seed=3) != text.random_sentences(5, 7, seed=4)
    assert [len(s.split()) for s in first] == [7] * 5


def test_the_novel():
    novel = text.northanger_abbey()
    assert novel.startswith("NORTHANGER ABBEY\n\n\nby\n\nJane Austen (1803)")
    assert novel.count("CHAPTER ") == 31 and len(novel) == 432_978
    assert "gutenberg" not in novel.lower() and "A NOTE ON THE TEXT" not in novel
