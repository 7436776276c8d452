"""The list of claims is the notebooks' own."""

import re
from pathlib import Path

import pytest

import claims
import notebooks
from mha_course.cells.claims import Claim
from mha_course.pages.exporter import run

WORDS = {True: "It holds", False: "Not in general", None: "Not decided"}


def test_the_list_says_what_the_notebooks_say():
    assert claims.FILE.read_text(encoding="utf-8") == claims.text(), "run: python tools/claims.py"


def test_every_claim_has_a_verdict():
    tagged = [
        cell
        for path in notebooks.paths()
        for cell in notebooks.read(path).cells
        if "claim" in cell.metadata.get("tags", ())
    ]
    assert len(claims.claims()) == len(tagged) > 0


@pytest.mark.parametrize("holds", WORDS)
def test_a_claim_says_the_same_in_words_and_in_html(holds):
    interval = Claim.span([5, 2.5, 1], places=0)
    claim = Claim("a < b", holds, "it <depends>.", "3 & 4", "< 2", interval, "> 6")
    assert str(claim) == repr(claim)
    html = claim._repr_html_()
    assert "a &lt; b" in html and "it &lt;depends&gt;." in html
    assert "Measured: 3 &amp; 4; by chance &lt; 2; interval 1 to 5; would show &gt; 6" in html
    for other, word in WORDS.items():
        assert (word in html) == (word in str(claim)) == (other is holds)


def test_a_claim_that_is_not_decided_says_what_would_have_been_seen():
    with pytest.raises(ValueError, match="power"):
        Claim("a", None, "b.", "c", exact="d")


@pytest.mark.parametrize("chance", [{}, {"null": "d"}, {"interval": "e"}])
def test_a_card_says_what_chance_would_give_or_why_there_is_none(chance):
    with pytest.raises(ValueError, match="exact"):
        Claim("a", True, "b.", "c", **chance)
    claim = Claim("a", True, "b.", f"c {True}, {False}", exact="d")
    assert str(claim).endswith("Measured: c yes, no; exact: d")
    assert Claim.span([0.801, 0.799], 1) == "0.8"


@pytest.mark.parametrize("holds", [True, False])
def test_the_verdict_lies_folded_under_the_claim_and_nothing_before_it_tells(holds):
    before, _, folded = Claim("a", holds, "b.", "c", exact="f")._repr_html_().partition("<details")
    other = Claim("a", not holds, "d.", "e", exact="f")._repr_html_().partition("<details")[0]
    assert before == other and "“a”" in before
    summary, _, inside = folded.partition("</summary>")
    assert "Your guess" in summary and "b." not in summary
    assert "b." in inside and "Measured: c" in inside


def test_stored_cards_are_what_claims_show_now():
    for path in notebooks.paths():
        for cell in notebooks.read(path).cells:
            if "claim" in cell.metadata.get("tags", ()):
                assert [o.data["text/html"] for o in cell.outputs] == [
                    card_of(o.data["text/plain"]) for o in cell.outputs
                ], cell.id


def card_of(words: str) -> str:
    """The card of a claim that is stored in plain words."""
    text, verdict, measured = (line.split(": ", 1) for line in words.splitlines())
    holds = next(holds for holds, word in WORDS.items() if word == verdict[0])
    figures, *more = re.split("; (exact:|by chance|interval|would show) ", measured[1])
    said = dict(zip(more[::2], more[1::2], strict=True))
    names = {"null": "by chance", "interval": "interval", "power": "would show", "exact": "exact:"}
    given = {field: said.get(name, "") for field, name in names.items()}
    return Claim(text[1], holds, verdict[1], figures, **given)._repr_html_()


def verdicts(notebook):
    """Id of each claim's cell -> the word that its card says, or None where it shows no card."""
    return {
        cell.id: next(
            (
                o.data["text/plain"].splitlines()[1].partition(":")[0]
                for o in cell.outputs
                if "data" in o
            ),
            None,
        )
        for cell in notebook.cells
        if "claim" in cell.metadata.get("tags", ())
    }


@pytest.mark.long
@pytest.mark.parametrize("shift", [100, 200, 300])
@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem[:2])
def test_verdicts_are_the_same_from_other_seeds(path, shift, monkeypatch):
    """All seeds of a notebook are moved; a cell that says what one seed gave may fail."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "luck"))
    monkeypatch.setenv("MHA_LESSON_SHIFT", str(shift))
    stored = verdicts(notebooks.read(path))
    assert verdicts(run(notebooks.read(path), notebooks.FOLDER, allow_errors=True)) == stored


def test_every_place_belongs_to_one_claim() -> None:
    cards = [card.splitlines()[0] for _, card in claims.claims()]
    for start in claims.places():
        assert sum(f"“{start}" in card for card in cards) == 1, start
