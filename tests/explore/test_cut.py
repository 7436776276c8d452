"""Cut a ribbon: what is stored is what the model does, and every number of the picture is that."""

import copy

import pytest
import torch
from test_explore import NEEDS_WEIGHTS, missing

from cut_by_hand import moved_by_hand
from mha_course.explore import n00_cut
from mha_lesson import pretrained
from mha_lesson.text import LAYER, SENTENCE, sentence


def test_the_stored_ribbons_are_the_weights_of_the_stored_layer():
    stored, creek = n00_cut.stored()[SENTENCE], sentence()
    assert stored.labels == creek.labels and stored.labels[stored.word] == "it"
    found = stored.weights[LAYER]
    torch.testing.assert_close(found, creek.weights[:, stored.word], atol=6e-5, rtol=0)
    torch.testing.assert_close(stored.widest[LAYER], found[:, 1:-1].amax(-1), atol=1e-4, rtol=0)


def test_what_is_stored_hangs_together():
    for text, stored in n00_cut.stored().items():
        T = len(stored.labels)
        assert stored.moves.shape == (6, 12, T + 2, T), text
        own = stored.moves[:, :, :T, stored.word]
        torch.testing.assert_close(own, stored.own, atol=6e-4, rtol=0)
        others = [i for i in range(T) if i != stored.word]
        assert not stored.moves[5, :, :T][..., others].any(), "no layer follows the last"
        layers = stored.moves[:, :, T + 1]
        assert torch.equal(layers, layers[:, :1].expand_as(layers))


@NEEDS_WEIGHTS
@pytest.mark.parametrize(("number", "layer", "head"), [(0, 3, 1), (-1, 5, 7)])
def test_the_model_does_to_the_last_stored_digit_what_is_stored(number, layer, head):
    text = [*n00_cut.stored()][number]
    stored = n00_cut.stored()[text]
    found = n00_cut.computed(n00_cut._model(), text, stored.word, layer, head)
    for name, scale in n00_cut.Effects.SCALES.items():
        one = getattr(stored.head(layer, head), name)
        torch.testing.assert_close(getattr(found, name), one, atol=0.51 / scale, rtol=0)


def test_the_ribbon_of_the_course_moves_it_by_seven_percent():
    """Figures of notebook 00 and of its guide."""
    stored = n00_cut.stored()[SENTENCE]
    creek, cls = stored.labels.index("creek"), 0
    for (layer, head, key), (weight, moved) in {
        (3, 1, creek): (0.85, 0.075),
        (5, 7, creek): (0.46, 0.377),
        (3, 4, cls): (0.70, 0.008),
    }.items():
        assert stored.weights[layer, head, key] == pytest.approx(weight, abs=0.005)
        assert stored.own[layer, head, key] == pytest.approx(moved, abs=0.0005)
    ranks = [x.flatten().argsort().argsort().double() for x in (stored.weights, stored.own)]
    assert torch.corrcoef(torch.stack(ranks))[0, 1] == pytest.approx(0.81, abs=0.01)


def test_two_ribbons_of_the_famous_sentence_are_as_wide_and_not_as_strong():
    """Figures of notebook 08."""
    [*_, famous] = n00_cut.stored().values()
    animal = famous.labels.index("animal")
    for (layer, head), (weight, moved) in {(3, 1): (0.68, 0.10), (5, 11): (0.67, 0.455)}.items():
        assert famous.weights[layer, head, animal] == pytest.approx(weight, abs=0.005)
        assert famous.own[layer, head, animal] == pytest.approx(moved, abs=0.005)


def test_a_page_has_the_stored_word_and_a_kernel_every_word(monkeypatch):
    monkeypatch.setenv(n00_cut.EXPORT, "1")
    assert n00_cut._words(SENTENCE) == [("it", 14)]
    monkeypatch.delenv(n00_cut.EXPORT)
    monkeypatch.setattr(n00_cut, "_has_weights", lambda: True)
    monkeypatch.setattr(n00_cut, "_labels", lambda _: sentence().labels)
    words = n00_cut._words(SENTENCE)
    assert words[0] == ("it", 14) and sorted(i for _, i in words) == [*range(17)]


def test_without_weights_the_stored_sentences_move_and_others_say_what_is_missing(monkeypatch):
    monkeypatch.setattr(n00_cut, "_model", missing)
    assert "creek" in n00_cut.scene().caption
    assert "pip install them" in n00_cut.scene("Another one.").alt


@pytest.fixture(scope="module")
def model():
    return pretrained.load()


# ---------------------------------------------------------------- cuts


CUTS = [
    [(3, 1, 5, 2)],
    [(1, 4, None, None), (4, 0, 2, None), (4, 0, 3, 7)],
    [(5, None, None, None)],
    [(0, 11, None, 0)],
    [],
]


@NEEDS_WEIGHTS
def test_a_cut_takes_away_what_its_weights_hand_over(model):
    text = "Anna told Mary that she had won."
    double = pretrained.PretrainedModel(copy.deepcopy(model.encoder).double(), model.tokenizer)
    for found, some in zip(n00_cut.moves(double, text, CUTS), CUTS, strict=True):
        torch.testing.assert_close(found, moved_by_hand(double, text, some), rtol=0, atol=1e-12)
    one = [CUTS[0], [(2, 7, 1, 0), (2, 7, 1, 3)]]
    for found, some in zip(n00_cut.moves(double, text, one, rescaled=True), one, strict=True):
        expected = moved_by_hand(double, text, some, rescaled=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@NEEDS_WEIGHTS
def test_a_cut_in_the_last_layer_moves_no_other_word(model):
    [far] = n00_cut.moves(model, "It is cold.", [[(5, 2, 1, 3)]])
    assert far[1] > 1e-3 and far[[0, 2, 3, 4]].max() < 1e-5


@NEEDS_WEIGHTS
@pytest.mark.parametrize("wrong", [(3, 1, 5), [3, 1, 5, 2], (None, 1, 5, 2)])
def test_what_is_no_cut_is_refused(model, wrong):
    with pytest.raises(TypeError, match=r"a cut must be \(layer, head, query, key\)"):
        n00_cut.moves(model, "It is cold.", [[wrong]])


@NEEDS_WEIGHTS
@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ((6, 0, 0, 0), "layer"),
        ((0, 12, 0, 0), "head"),
        ((0, 0, 6, 0), "query"),
        ((0, 0, 0, -1), "key"),
    ],
)
def test_a_cut_of_what_is_not_there_is_refused(model, wrong, name):
    with pytest.raises(ValueError, match=f"the {name} of a cut must be"):
        n00_cut.moves(model, "It is cold.", [[(0, 0, 0, 0), wrong]])
