"""Notebook 14's model: what it writes appears in lines, and without weights what was stored."""

import pytest

from mha_course.cells import writing
from mha_course.collection import kept
from mha_lesson import smollm
from mha_lesson.weights import WeightsMissing


@pytest.fixture
def absent(monkeypatch, capsys):
    def missing(*_):
        raise WeightsMissing("get them with: mha-lesson weights writer")

    monkeypatch.setattr(smollm, "load", missing)
    model = writing.load()
    assert "mha-lesson weights writer" in capsys.readouterr().out
    return model


class Sayer:
    """Writes the same pieces whatever it is asked."""

    def __init__(self, pieces):
        self.pieces = pieces

    def write(self, *_):
        yield from self.pieces


def test_a_kept_result_is_the_same_with_the_weights_and_without(monkeypatch, absent):
    model = Sayer([])

    @kept.kept
    def of(n, words=("a",)):
        model.write()
        return {"n": n, "third": 1 / 3, "words": words}

    monkeypatch.setattr(kept, "recorded", {})
    given = of(3, ["é"])
    assert given == {"n": 3, "third": 0.33333, "words": ["é"]} and given == of(3, ["é"])
    monkeypatch.setattr(kept, "stored", dict(kept.recorded).copy)
    model = absent
    assert of(3, ["é"]) == given
    with pytest.raises(WeightsMissing, match="mha-lesson weights writer"):
        of(4)


def test_what_is_asked_of_an_absent_model_says_how_to_get_it(absent):
    for ask in (lambda: absent.encode("x"), lambda: absent([0]), lambda: absent.layers[0]):
        with pytest.raises(WeightsMissing, match="mha-lesson weights writer"):
            ask()
    assert not hasattr(absent, "_repr_html_")


def test_a_text_appears_in_lines_of_whole_words(capsys, absent, monkeypatch):
    pieces = [" word"] * 30 + ["s", ".", "\n", "\n", "New", " line"]
    monkeypatch.setattr(kept, "recorded", {})
    writing.tell(Sayer(pieces), "It begins", 40)
    first, *lines = (out := capsys.readouterr().out).splitlines()
    assert first == "It begins" and lines[0].startswith("→ word word")
    assert (
        max(map(len, lines)) <= 80
        and "".join(out.split()) == "Itbegins→" + "word" * 30 + "s.Newline"
    )
    monkeypatch.setattr(kept, "stored", dict(kept.recorded).copy)
    writing.tell(absent, "It begins", 40)
    assert capsys.readouterr().out == out
    writing.tell(Sayer(["No"]), "x")
    assert capsys.readouterr().out == "x\n→ No\n"


def test_before_exercise_23_passes_the_published_layer_stands_in(capsys, absent):
    class WritingAttention:
        pass

    assert writing.own(absent, WritingAttention) is absent
    assert "Once exercise 23 passes" in capsys.readouterr().out
