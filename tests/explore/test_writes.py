"""What the first screen says: the stored numbers are the model's, and hang together."""

import re

import numpy as np
import pytest
import torch

import notebooks
from cut_by_hand import scores_by_hand
from mha_course.explore import n14_writes
from mha_course.explore.n14_writes import LATE, Prompt, stored
from mha_lesson import smollm
from mha_lesson.text import data_file
from mha_lesson.weights import WeightsMissing

T_MAX = 16
FACT = "The capital of France is"


@pytest.fixture(scope="module")
def model():
    try:
        return smollm.load()
    except WeightsMissing as missing:
        pytest.skip(str(missing))


def test_the_stored_prompts_take_little_and_hang_together():
    assert data_file("writes.safetensors").stat().st_size <= 200_000
    for text, (about, arrays) in stored().items():
        T, ribbons = len(about["pieces"]), arrays["ribbons"]
        assert "".join(about["pieces"]) == text and T <= T_MAX
        np.testing.assert_allclose(arrays["weights"].sum(-1), 1, atol=1e-3)  # of rounded ones
        swapped, late = (arrays[name] for name in ("swapped", "weights"))
        swapped, late = swapped.reshape(len(LATE), 9, T), late[LATE[0] :]
        np.testing.assert_allclose(swapped.sum(-1), 1, atol=1e-3)
        # Another first word: in the first of these layers the others share the rest as they did.
        left = swapped[0, :, :1] - late[0, :, :1]
        np.testing.assert_allclose(
            swapped[0, :, 1:] * (1 - late[0, :, :1]),
            late[0, :, 1:] * (1 - swapped[0, :, :1]),
            atol=4e-4,
        )
        assert abs(left).max() > 0.001 and abs(swapped - late).max() < 0.06
        answer, p = about["before"][0]
        assert answer == about["answer"] and arrays["golf"][0] == pytest.approx(p, abs=1e-9)
        for i, top in about["tops"].items():
            assert ribbons[int(i)] == pytest.approx(dict(top).get(answer, ribbons[int(i)]))
        for left, top in zip(about["left"], about["without"], strict=True):
            assert dict(top).get(answer, left) == left <= top[0][1]
        par = sum(1 << about["tee"].index(cut) for cut in about["par"])
        assert about["said"][0] == answer
        changed = [n for n, letter in enumerate(about["says"]) if letter != "A"]
        assert par in changed and len(about["says"]) == len(arrays["golf"]) == 1 << 10
        assert min(n.bit_count() for n in changed) == len(about["par"])
        tops = about["before"], *about["without"], *about["tops"].values()
        assert {word for top in tops for word, _ in top} == {*about["was"]}


def test_the_figures_of_notebook_00():
    about, arrays = stored()[FACT]
    [path] = notebooks.paths("00")
    cells = {cell.id: cell.source for cell in notebooks.read(path).cells}
    p, left = about["before"][0][1], about["left"][about["pieces"].index(" France")]
    assert f"falls from {p:.0%} to {left:.0%}" in cells["ribbons-reading"]
    assert about["without"][3][0][0] == " New"
    ribbons, weights = arrays["ribbons"], arrays["weights"].flatten()
    strong = 3 + 5 * ribbons[3::5].argmin()
    assert ribbons[strong] < 0.5 * p  # one ribbon does most of it
    as_wide = weights >= weights[strong]
    assert (abs(ribbons[as_wide] - p) < 0.01).any() and re.search(
        "nothing", cells["ribbons-reading"]
    )


def by_hand(model, text, cuts) -> torch.Tensor:
    scores, _ = scores_by_hand(model, model.encode(text)[0].tolist(), cuts)
    return scores[-1].softmax(dim=-1)


@pytest.mark.long
def test_a_cut_takes_away_what_its_weights_hand_over(model):
    text = "Anna told Mary that"
    some = [
        [],
        [(23, 4, 2)],
        [(11, None, 0), (20, 3, None), (29, 1, 3)],
        [(i, None, 1) for i in LATE],
    ]
    for cuts, found in zip(some, Prompt(model, text).next(some), strict=True):
        torch.testing.assert_close(found, by_hand(model, text, cuts), rtol=0, atol=2e-6)


@pytest.mark.long
def test_what_is_stored_is_what_the_model_says(model):
    """A sample of each kind; the last stored digit may round the other way."""
    for text, (about, arrays) in [*stored().items()][::3]:
        prompt, T = Prompt(model, text), len(about["pieces"])
        draw = np.random.default_rng(T)
        heads = draw.integers((30, 9), size=(4, 2)).tolist()
        keys = draw.integers(T, size=4).tolist()
        some = [[(i, h, k)] for (i, h), k in zip(heads, keys, strict=True)]
        some += [[(i, h, None)] for i, h in heads] + [[(i, None, None)] for i, _ in heads]
        found = prompt.next([*some, [(i, None, about["target"]) for i in LATE], about["par"]])
        number = int(prompt.next([[]])[0].argmax())
        assert model.pieces(torch.tensor([number])) == [about["answer"]]
        places = [((i * 9 + h) * T + k) for (i, h), k in zip(heads, keys, strict=True)]
        kept = [arrays["ribbons"][at] for at in places]
        kept += [arrays["heads"][i * 9 + h] for i, h in heads]
        kept += [arrays["layers"][i] for i, _ in heads]
        kept += [about["left"][about["target"]]]
        np.testing.assert_allclose(found[:-1, number], kept, atol=6e-5)
        assert int(found[-1].argmax()) != number
        np.testing.assert_allclose(prompt.weights, arrays["weights"], atol=6e-5)
        word, p = about["other"]
        twin = prompt.with_first(Prompt(model, f"{word} own"))  # it sees itself alone
        assert twin.next([[]])[0, number] == pytest.approx(p, abs=6e-5)


def test_a_kernel_tells_what_a_page_hears(monkeypatch):
    """Of a model that is not there, a sentence; the kinds of what is told stand in writing.js."""

    def missing():
        raise WeightsMissing("get them")

    told = []
    monkeypatch.setattr(n14_writes, "_model", missing)
    n14_writes._answer(
        type("View", (), {"send": staticmethod(told.append)}), {"prompt": "x", "turn": 3}, []
    )
    assert told == [{"turn": 3, "kind": "error", "text": "get them"}]


@pytest.mark.long
def test_a_kernel_writes_with_the_cuts_and_cuts_each_wide_ribbon_alone(model, monkeypatch):
    monkeypatch.setattr(n14_writes, "_model", lambda: model)
    cuts = [(layer, None, 3) for layer in LATE]
    told = [*n14_writes.answers(FACT, cuts, write=2, survey=0.8)]
    [written, *_] = [one["word"] for one in told if one["kind"] == "written"]
    was, left = (by_hand(model, FACT, some) for some in ([], cuts))
    assert [written] == model.pieces(left.argmax()[None])
    ones = [one for one in told if one["kind"] == "one"]
    weights = torch.tensor([one["weights"] for one in told if one["kind"] == "ribbons"])
    assert len(ones) == (weights >= 0.8).sum() > 0
    alone = by_hand(model, FACT, [ones[0]["cut"]])
    assert ones[0]["p"] == pytest.approx(alone[was.argmax()].item(), abs=2e-6)
    assert [ones[0]["word"]] == model.pieces(alone.argmax()[None])
