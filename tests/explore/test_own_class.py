"""A learner's class in the published model: right ones are that model, and mistakes are made."""

import math
import re

import pytest
import torch
from test_explore import NEEDS_WEIGHTS, missing
from torch import nn
from torch.testing import assert_close

import notebooks
from answers import all_answers
from mha_course.explore import own_class
from mha_course.pictures.panels import Table, Words
from mha_lesson import causal_mask, merge_heads, split_heads
from mha_lesson.text import LAYER, SENTENCE, sentence

RIGHT = [a for a in all_answers() if a.exercise == "MultiHeadAttention" and a.right]
ONE = RIGHT[0].function
IT, CREEK = (sentence().labels.index(word) for word in ("it", "creek"))


def ribbons(scene) -> torch.Tensor:
    [words] = [panel for panel in scene.flat() if isinstance(panel, Words)]
    return torch.tensor(words.weights.values)[IT]


@pytest.fixture
def without_weights(monkeypatch):
    monkeypatch.setattr(own_class, "_model", missing)


@pytest.mark.parametrize("answer", RIGHT, ids=lambda answer: answer.id)
@pytest.mark.usefixtures("without_weights")
def test_any_right_class_draws_the_ribbons_of_the_stored_layer(answer):
    scene = own_class.scene(answer.function)
    assert "pip install them" in scene.caption
    if isinstance(scene.flat()[0], Table):  # it takes weights, and does not call its layers
        assert re.search("HeadByHead|WithoutBiases|OverTorch", answer.id)
    else:
        expected = sentence().weights[1, IT].double()
        assert_close(ribbons(scene), expected, atol=1e-5, rtol=0)


@NEEDS_WEIGHTS
def test_a_right_class_is_the_published_model_and_finds_the_sentence():
    torch.manual_seed(5)
    scene = own_class.scene(ONE)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))  # the learner's random numbers stay as they are
    assert "differ from the published model's by less than .00001" in scene.caption
    assert f"“{own_class.SIX[0]}”" in scene.caption
    model = own_class._model()
    vectors = model.sentence_vectors([SENTENCE, *own_class.SIX])
    said = [float(row[0].split()[0]) for row in scene.flat()[1].rows]
    alike = (vectors[1:] @ vectors[0]).tolist()
    assert said == pytest.approx(alike, abs=0.0051)
    won = float(re.search(r"Nearest, by (\S+):", scene.caption)[1])
    assert won == pytest.approx(alike[0] - max(alike[1:]), abs=0.0051)
    expected = model.encode(SENTENCE).weights[LAYER, 1, IT].double()
    assert_close(ribbons(scene), expected, atol=1e-5, rtol=0)


def wrong(name, q, k, v, mask):
    """(T, h·d_k), what W^O takes, written out with the mistake; q, k, v (1, T, h·d_k)."""
    h, T = own_class.N_HEADS, q.shape[1]
    split = (
        (lambda x: x.view(1, h, T, -1)) if name.startswith("view") else lambda x: split_heads(x, h)
    )
    q, k, v = map(split, (q, k, v))
    scores = q @ k.mT / (1 if name == "without √d_k" else math.sqrt(q.shape[-1]))
    if name.startswith("causal"):
        scores = scores.masked_fill(causal_mask(T), -math.inf)
    context = scores.softmax(-1) @ v
    if name.startswith("mask"):  # nothing was blocked, so now everything is
        context = torch.zeros_like(context)
    if name.startswith("head 1"):
        context[:, 1] = 0
    if name.startswith("every"):
        context = torch.zeros_like(context)
    if "reverse" in name:
        context = context.flip(1)
    return context.reshape(1, T, -1) if name.startswith("merged") else merge_heads(context)


@pytest.mark.parametrize("name", own_class.BREAKS)
def test_each_mistake_is_that_mistake(name):
    creek, change = sentence(), own_class.BREAKS[name]
    pairs = [(getattr(creek, f"w_{n}"), getattr(creek, f"b_{n}")) for n in "qkvo"]
    made, x = own_class._filled(ONE, pairs, change), creek.hidden[None]
    mask = torch.zeros(1, 1, 1, x.shape[1], dtype=torch.bool)
    q, k, v = (x @ w.T + b for w, b in pairs[:3])
    expected = wrong(name, q, k, v, mask) @ creek.w_o.T + creek.b_o
    assert_close(made(x, change.mask(mask)), expected, atol=2e-5, rtol=0)
    whole = wrong(own_class.WHOLE, q, k, v, mask) @ creek.w_o.T + creek.b_o
    assert (name == own_class.WHOLE) == torch.allclose(expected, whole, atol=1e-3)


def test_a_value_of_zero_hands_nothing_over_and_leaves_the_other_weights():
    creek, x = sentence(), sentence().hidden[None]
    pairs = [(getattr(creek, f"w_{n}"), getattr(creek, f"b_{n}")) for n in "qkvo"]
    made = own_class._filled(ONE, pairs, own_class.Break(values=own_class._without_value(CREEK)))
    mask = torch.zeros(1, 1, 1, x.shape[1], dtype=torch.bool)
    q, k, v = (split_heads(x @ w.T + b, 12) for w, b in pairs[:3])
    weights = (q @ k.mT / math.sqrt(32)).softmax(-1)
    weights[..., CREEK] = 0
    expected = merge_heads(weights @ v) @ creek.w_o.T + creek.b_o
    assert_close(made(x, mask), expected, atol=2e-5, rtol=0)
    assert_close(own_class.drawn(made, x, mask), weights[0, 1], atol=1e-5, rtol=0)


@pytest.mark.long
@NEEDS_WEIGHTS
def test_without_the_value_of_creek_it_is_nearest_to_other_words(capsys):
    own_class.without_values(ONE)
    said = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
    assert [before for before, _ in said] == [
        "“it” is nearest to",
        "without the value of “creek”",
        "without the value of “dog”",
    ]
    whole, creek, dog = (words.split(", ") for _, words in said)
    assert whole[:2] == dog[:2] == ["creek", "river"] and creek[:2] == ["animal", "dog"]
    assert not {"animal", "dog"} & {*dog}


class Layers(nn.Module):
    """Four layers, and in `forward` what stands there so far."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        return self.w_o((self.w_q(x) @ self.w_k(x).mT).softmax(-2) @ self.w_v(x))


def test_a_wrong_class_goes_in_and_one_that_does_not_fit_is_told_why(monkeypatch, capsys):
    def other(forward):
        return type("Other", (Layers,), {"forward": lambda self, x, mask=None: forward(self, x)})

    monkeypatch.setattr(own_class, "scene", lambda *_, **__: Table([["seen"]]))
    assert isinstance(own_class.in_model(Layers), own_class.Explorer)
    for kind, why in (
        (type("Stub", (nn.Module,), {"__init__": lambda s, *_: nn.Module.__init__(s)}), "w_q, w_k"),
        (other(lambda self, x: self.w_o(x).chunk(2, -1)[0]), "makes shape (2, 17, 192)"),
        (other(lambda self, x: None), "makes nothing of x"),
        (other(lambda self, x: x @ x), "stops with RuntimeError: "),
    ):
        own_class.in_model(kind)
        own_class.without_values(kind)
        assert capsys.readouterr().out.count(why) == 2


@NEEDS_WEIGHTS
def test_what_a_wrong_class_does_in_the_model_is_shown():
    scene = own_class.scene(Layers)
    assert float(re.search(r"model's by up to (\S+)\. ", scene.caption)[1]) > 0.3
    nan = type(
        "NaN", (Layers,), {"forward": lambda s, x, mask=None: Layers.forward(s, x) * math.nan}
    )
    assert own_class.scene(nan).caption.endswith("NaN, and so no sentence is near another.")


@NEEDS_WEIGHTS
@pytest.mark.long
def test_as_many_of_thirty_sentences_are_found_as_notebook_06_says():
    [path] = notebooks.paths("06")
    text = next(c.source for c in notebooks.read(path).cells if c.id == "thirty")
    said = {
        name: int(n)
        for name, n in re.findall(r"^\| (.+?) \| (\d+) \|$", text.replace("$", ""), re.M)
    }
    assert own_class.found(ONE) == said
