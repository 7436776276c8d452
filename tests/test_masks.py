"""The two masks, entry by entry."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mha_lesson import causal_mask, padding_mask


@given(st.integers(1, 13))
def test_causal_mask_blocks_exactly_the_future(T):
    mask = causal_mask(T)
    assert mask.dtype == torch.bool and mask.shape == (T, T)
    for i in range(T):
        for j in range(T):
            assert bool(mask[i, j]) == (j > i)


@given(st.lists(st.integers(0, 11), min_size=1, max_size=5), st.integers(0, 4))
def test_padding_mask_blocks_exactly_the_padding(lengths, more):
    T = max(lengths) + more
    if T == 0:
        return
    mask = padding_mask(lengths, T)
    assert mask.dtype == torch.bool and mask.shape == (len(lengths), 1, 1, T)
    for b, n in enumerate(lengths):
        assert mask[b, 0, 0].tolist() == [False] * n + [True] * (T - n)


def test_padding_mask_takes_the_longest_length_when_none_is_given():
    assert padding_mask([2, 5, 3]).shape == (3, 1, 1, 5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_padding_mask_takes_tensors_of_any_integer_dtype(dtype):
    lengths = torch.tensor([0, 3, 5], dtype=dtype)
    assert torch.equal(padding_mask(lengths, 5), padding_mask([0, 3, 5], 5))


def test_masks_are_made_where_they_are_asked_for(device):
    assert causal_mask(3, device=device).device.type == device.type
    assert padding_mask(torch.tensor([1, 2], device=device), 3).device.type == device.type
    assert causal_mask(3, device="meta").is_meta
    assert padding_mask(torch.empty(2, dtype=torch.int64, device="meta"), 3).is_meta


@pytest.mark.plain
class TestRefusals:
    @pytest.mark.parametrize("n", [0, -3])
    def test_sizes_that_are_not_positive(self, n):
        with pytest.raises(ValueError, match=f"n_tokens must be a positive integer; got {n}"):
            causal_mask(n)

    @pytest.mark.parametrize("n", [2.0, "3", True, None, torch.tensor(3)])
    def test_sizes_that_are_not_integers(self, n):
        with pytest.raises(TypeError, match="n_tokens must be a positive integer; got"):
            causal_mask(n)

    @pytest.mark.parametrize("lengths", [[-1, 2], [2, 6], torch.tensor([6])])
    def test_lengths_out_of_range(self, lengths):
        with pytest.raises(ValueError, match=r"lengths must lie between 0 and n_tokens = 5; got"):
            padding_mask(lengths, 5)

    @pytest.mark.parametrize(
        "lengths", [[1.0, 2.0], torch.tensor([1.5]), [True, False], "ab", None, [[1], [2, 3]]]
    )
    def test_lengths_that_are_not_integers(self, lengths):
        with pytest.raises(TypeError, match="lengths must be integers"):
            padding_mask(lengths, 5)

    @pytest.mark.parametrize("lengths", [torch.zeros(2, 3, dtype=torch.int64), 3])
    def test_lengths_of_another_shape(self, lengths):
        with pytest.raises(ValueError, match=r"lengths must have shape \(B,\) with B > 0; got"):
            padding_mask(lengths, 5)

    def test_no_lengths(self):
        with pytest.raises((ValueError, TypeError), match="lengths must"):
            padding_mask([], 5)

    def test_no_room(self):
        with pytest.raises(ValueError, match="n_tokens must be a positive integer; got 0"):
            padding_mask([0, 0])

    def test_meta_lengths_without_a_size(self):
        with pytest.raises(ValueError, match="n_tokens must be given"):
            padding_mask(torch.empty(2, dtype=torch.int64, device="meta"))
