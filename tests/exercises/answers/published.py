"""Exercise 11 with the mistakes of mha_course/collection/shipped.toml, and what its check names."""

from answers import Answer
from mha_course.collection.shipped import bug

NAMED = {
    "scale_d_model": ("by_root_d_model",),
    "scale_n_heads": ("by_root_h",),
    "scale_upside_down": ("times_root_d_k",),
    "scale_forgotten": ("no_scale",),
    "scale_twice": ("by_d_k",),
    "softmax_over_queries": ("softmax_over_queries",),
    "softmax_over_heads": ("softmax_over_axis_1",),
    "softmax_over_batch": ("softmax_over_axis_0",),
    "split_by_view": ("split_by_view", "not_permuted_back"),
    "merged_unmoved": ("not_permuted_back",),
    "merged_as_heads_first": ("heads_for_batch",),
    "over_the_batch": ("tokens_first",),
    "mask_dropped": ("mask_ignored",),
    "mask_inverted": ("true_means_keep",),
    "mask_after_softmax": ("zeroed_after",),
    "scores_times_mask": ("zero_scores",),
    "fill_tiny": ("zero_scores",),
    "fill_too_high": ("blocked_rows_uniform",),
    "mask_tiled": ("masks_tiled",),
    "mask_of_the_first": ("mask_of_sequence_0",),
    "mask_along_queries": ("mask_turned",),
    "no_w_o": ("without_w_o",),
    "one_projection_for_all_heads": ("pieces_projected",),
    "values_of_keys": ("values_of_keys",),
    "fused_rows_by_head": ("thirds_of_each_head",),
    "dropout_in_evaluation": ("random",),
    "w_k_for_values": ("made_by_qkk",),
    "dropout_on_scores": ("random",),
}
ANSWERS = [
    Answer(
        "MultiHeadAttention", False, bug(name).build, f"MultiHeadAttention-published_{name}", slips
    )
    for name, slips in NAMED.items()
]
