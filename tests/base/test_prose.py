"""Sentences as HTML: what stands there is shown, and nothing in it is taken for a tag."""

import pytest

from mha_course.base.prose import prose


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("`a < b`", "<code>a &lt; b</code>"),
        ("a < *b c*", "a &lt; <em>b c</em>"),
        ("W^Q, d_k & d_model", "W<sup>Q</sup>, d<sub>k</sub> &amp; d<sub>model</sub>"),
        ("`W^Q` of f(d_k), 2 * 3 * 4", "<code>W^Q</code> of f(d_k), 2 * 3 * 4"),
    ],
)
def test_a_sentence_is_escaped_and_its_symbols_are_set(text: str, html: str) -> None:
    assert prose(text) == html
