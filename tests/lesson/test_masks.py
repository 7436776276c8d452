"""The two masks, cell by cell."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mha_lesson import causal_mask, padding_mask

INTEGERS = [getattr(torch, f"{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)]
LENGTHS = st.lists(st.integers(0, 13), min_size=1, max_size=5)


@given(st.integers(1, 13))
def test_causal_mask(device, T):
    mask = causal_mask(T, device=device)
    assert mask.shape == (T, T) and mask.dtype == torch.bool and mask.device.type == device.type
    for i in range(T):
        for j in range(T):
            assert bool(mask[i, j]) == (j > i), "blocked: a key after the query"


def test_causal_mask_is_made_on_the_default_device_or_the_one_given():
    assert causal_mask(3).device == torch.get_default_device()
    assert causal_mask(3, device="meta").is_meta
    assert causal_mask(3, torch.device("meta")).is_meta


@given(LENGTHS, st.integers(0, 5), st.booleans())
def test_padding_mask(device, lengths, more, as_tensor):
    T = max(1, max(lengths) + more)
    given_lengths = torch.tensor(lengths, device=device) if as_tensor else lengths
    mask = padding_mask(given_lengths, T)
    assert mask.shape == (len(lengths), 1, 1, T) and mask.dtype == torch.bool
    assert more or not max(lengths) or torch.equal(padding_mask(given_lengths), mask)
    assert mask.device.type == (device.type if as_tensor else "cpu")
    for b, length in enumerate(lengths):
        assert mask[b, 0, 0].tolist() == [j >= length for j in range(T)]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_padding_mask_takes_every_integer_dtype(dtype):
    lengths = torch.tensor([3, 0, 200 if dtype != torch.int8 else 120], dtype=dtype)
    assert torch.equal(padding_mask(lengths, 300), padding_mask(lengths.tolist(), 300))
