"""The tasks: what a row holds, and that a seed is a promise."""

from itertools import islice

import pytest
import torch

from mha_lesson.tasks import both_sides, letter_batches, repeat_batches, text_batches

TEXT = torch.arange(101) * 7


def test_a_repeat_row_is_one_id():
    ids = next(repeat_batches(53, 11, 7))
    assert ids.shape == (53, 11)
    assert (ids == ids[:, :1]).all()
    assert set(ids[:, 0].tolist()) == set(range(7))


def test_letters_are_independent():
    letters = next(letter_batches(4001, 7, 3))
    assert letters.shape == (4001, 7)
    pairs = letters[:, 2] * 3 + letters[:, 3]
    counts = torch.bincount(pairs, minlength=9)
    assert (counts - 4001 / 9).abs().max() < 100  # 5 standard deviations


def test_both_sides_against_a_loop():
    letters = next(letter_batches(5, 7, 11))
    answers = both_sides(letters)
    assert answers.shape == (5, 5, 2)
    for b in range(5):
        for t in range(1, 6):
            assert answers[b, t - 1].tolist() == [letters[b, t - 1], letters[b, t + 1]]


def test_text_windows_are_pieces_of_the_text():
    windows = next(text_batches(TEXT, 31, 13))
    starts = windows[:, 0] // 7
    assert torch.equal(windows, TEXT[starts[:, None] + torch.arange(13)])
    starts = torch.cat([w[:, 0] for w in islice(text_batches(TEXT, 50, 97), 5)]) // 7
    assert set(starts.tolist()) == {0, 1, 2, 3, 4}, "every window can come"


@pytest.mark.parametrize(
    "batches", [repeat_batches, letter_batches, lambda seed: text_batches(TEXT, seed=seed)]
)
def test_a_seed_is_a_promise(batches):
    torch.manual_seed(1)
    first, second = islice(batches(seed=3), 2)
    torch.manual_seed(2)  # the global state has no say
    again = list(islice(batches(seed=3), 2))
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    assert not torch.equal(first, second)
    assert not torch.equal(first, next(batches(seed=4)))


@pytest.mark.plain
@pytest.mark.parametrize(
    ("ids", "sizes", "words"),
    [
        (TEXT, {"n_tokens": 102}, "n_tokens = 102; got"),
        (TEXT, {"n_rows": 0}, "n_rows must"),
        (TEXT[None], {}, "ids must have one axis, "),
    ],
)
def test_a_text_that_gives_no_windows_is_refused(ids, sizes, words):
    with pytest.raises(ValueError, match=words):
        text_batches(ids, **sizes)
