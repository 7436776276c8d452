"""The list of claims is the notebooks' own."""

import pytest

import claims
import notebooks
from mha_course.cells.claims import Claim


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


@pytest.mark.parametrize("holds", [True, False])
def test_a_claim_says_the_same_in_words_and_in_html(holds):
    claim = Claim("a < b", holds, "it <depends>.", "3 & 4")
    assert str(claim) == repr(claim)
    assert ("It holds" in str(claim)) == holds
    html = claim._repr_html_()
    assert "a &lt; b" in html and "it &lt;depends&gt;." in html and "3 &amp; 4" in html
    assert ("Not in general" in html) == ("Not in general" in str(claim)) != holds


@pytest.mark.parametrize("holds", [True, False])
def test_the_verdict_lies_folded_under_the_claim_and_nothing_before_it_tells(holds):
    before, _, folded = Claim("a", holds, "b.", "c")._repr_html_().partition("<details")
    other = Claim("a", not holds, "d.", "e")._repr_html_().partition("<details")[0]
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
    return Claim(text[1], verdict[0] == "It holds", verdict[1], measured[1])._repr_html_()
