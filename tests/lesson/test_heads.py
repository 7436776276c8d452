"""Every score on hand-made weights for which the answer is known."""

import math

import pytest
import torch

from mha_lesson import heads


def one_hot_rows(*keys, n=None):
    """Each query looks at one key only."""
    return torch.eye(n or len(keys))[list(keys)]


PREVIOUS = one_hot_rows(0, 0, 1, 2, 3)
NEXT = one_hot_rows(1, 2, 3, 4, 4)
UNIFORM = torch.full((5, 5), 0.2)


def test_scores_against_loops_on_random_weights():
    """Whatever axes lead; a row with one key only has no breadth, an even one all of it."""
    w = torch.rand(3, 7, 7, generator=torch.Generator().manual_seed(1)).softmax(-1)
    assert heads.breadth(torch.stack([PREVIOUS, UNIFORM])).tolist() == pytest.approx([0, 1])
    for score in (heads.previous_token, heads.next_token, heads.parking, heads.breadth):
        assert torch.equal(score(torch.stack([w, w.flip(0)]))[1], score(w).flip(0))
    for h in range(3):
        row = w[h].tolist()
        assert heads.parking(w)[h].item() == pytest.approx(sum(r[0] for r in row) / 7, rel=1e-5)
        previous = sum(row[i][i - 1] for i in range(1, 7)) / 6
        entropy = -sum(p * math.log(p) for r in row for p in r) / 7 / math.log(7)
        assert heads.previous_token(w)[h].item() == pytest.approx(previous, rel=1e-5)
        assert heads.next_token(w.mT)[h].item() == pytest.approx(previous, rel=1e-5)
        assert heads.breadth(w)[h].item() == pytest.approx(entropy, rel=1e-5)


def test_join_pieces_adds_to_a_word_and_averages_from_it():
    w = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(2)).softmax(-1)
    joined = heads.join_pieces(w, (0, 1, 1, 2, 3))  # pieces 1 and 2 are one word
    assert joined.shape == (2, 4, 4)
    assert torch.allclose(joined.sum(-1), torch.ones(2, 4))
    assert torch.allclose(joined[:, 0, 1], w[:, 0, 1] + w[:, 0, 2])
    assert torch.allclose(joined[:, 1, 3], (w[:, 1, 4] + w[:, 2, 4]) / 2)
    assert torch.allclose(joined[:, 1, 1], (w[:, 1, 1:3] + w[:, 2, 1:3]).sum(-1) / 2)


def test_found_leaves_out_itself_and_the_ends():
    #                    [CLS]  the   cold  creek [SEP]
    w = torch.tensor(
        [
            [0.2, 0.2, 0.2, 0.2, 0.2],
            [0.5, 0.2, 0.05, 0.15, 0.1],  # the → creek
            [0.1, 0.3, 0.4, 0.1, 0.1],  # cold → the
            [0.0, 0.1, 0.2, 0.4, 0.3],  # creek → cold, not [SEP]
            [0.2, 0.2, 0.2, 0.2, 0.2],
        ]
    )
    assert heads.found(w, [(1, 3), (2, 3), (3, 2)]).tolist() == [True, False, True]
    assert heads.found(w[None], []).shape == (1, 0)
    assert w[1, 1] == 0.2, "the weights themselves must not change"


@pytest.mark.parametrize(
    ("links", "best"),
    [
        ([(1, 2), (3, 4), (5, 7), (6, 3)], (1, 0.5)),
        ([(4, 3), (7, 6), (2, 3)], (-1, 2 / 3)),
        ([(7, 1), (1, 3)], (2, 0.5)),  # of equal ones the nearest, of two as near the one after
        ([(0, 4), (4, 0)], (4, 0.5)),
        ([(7, 6), (6, 8)], (-1, 0.5)),
    ],
)
def test_best_offset_whatever_the_order_of_links(links, best):
    assert heads.best_offset(links) == heads.best_offset(links[::-1]) == best


def test_prefers():
    w = torch.stack([PREVIOUS, NEXT])
    assert heads.prefers(w, 3, 2, 4).tolist() == [True, False]
    assert heads.prefers(UNIFORM, 3, 2, 4).item() is False  # a tie is no preference


@pytest.mark.parametrize(
    ("found", "n"), [(0, 14), (14, 14), (18, 20), (7, 11), (311, 997), (1025, 1025)]
)
def test_the_interval_holds_the_shares_that_a_score_test_does_not_refuse(found, n):
    """Wilson's ends are the shares p with |found - n·p| = 1.96 · √(n·p·(1 - p))."""
    low, high = heads.interval(found, n)
    assert 0 <= low <= found / n <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            away = abs(found - n * end) / math.sqrt(n * end * (1 - end))
            assert away == pytest.approx(1.96, abs=1e-9)
    assert (low == 0) == (found == 0) and (high == 1) == (found == n)


@pytest.mark.parametrize(("n", "chance", "h"), [(14, 0.25, 72), (7, 0.5, 5), (3, 0.2, 1)])
def test_best_of_coins_is_what_tossing_gives(n, chance, h):
    generator = torch.Generator().manual_seed(5)
    tosses = torch.rand(4000, h, n, generator=generator) < chance
    best = tosses.sum(-1).amax(-1).double()
    error = best.std() / len(best) ** 0.5
    assert abs(heads.best_of_coins(n, chance, h) - best.mean()) < 6 * error


def test_under_another_default_device_scores_stay_where_the_weights_are():
    with torch.device("meta"):
        assert heads.breadth(UNIFORM).item() == pytest.approx(1)
        assert heads.found(UNIFORM, [(1, 2)]).device.type == "cpu"
