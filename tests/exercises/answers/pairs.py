"""Two slips that people made at once: `test_check_catalogue` tries each pair as itself."""

import re

TABLE = """\
attention: by_d_k+results_exchanged softmax_over_queries+scores_returned
  softmax_over_queries+results_exchanged by_d_k+softmax_over_axis_0 no_scale+keys_collected
  by_d_k+output_only no_scale+softmax_over_queries no_scale+results_exchanged
  key_not_transposed+no_scale by_d_k+softmax_over_queries no_scale+values_forgotten
  no_scale+weights_returned_transposed
attention_scores: by_root_t_k+softmax_too_early roles_exchanged+by_root_t_k
  roles_exchanged+times_root_d_k by_d_k+softmax_too_early cosines+no_scale
  no_scale+softmax_too_early roles_exchanged+by_d_k axes_one_and_two+no_scale
  no_scale+first_axes_exchanged query_with_query+no_scale by_d_k+all_axes_reversed
cached_attention: not_offset+old_cache new_before_old+no_mask
cached_mask: inverted+one_too_wide nothing+one_too_narrow not_offset+one_too_wide
  transposed+one_too_wide not_offset+inverted
causal_mask: keep_mask+one_more_axis keep_mask+axis_behind keep_mask+axis_between
  as_minus_infinity+two_more_axes diagonal_blocked+as_integers
  diagonal_blocked+as_large_negative past_blocked+as_integers as_floats+one_more_axis
  diagonal_blocked+as_floats
count_flops: one_token_projected+products_linear three_projections+products_halved
  one_each+as_float three_projections+as_float three_projections+one_product
  one_each+three_projections products_exchanged+counted_twice
count_parameters: one_head_inward+two_projections two_projections+inward_biases_in
  from_heads_to_heads+outward_to_heads one_head_inward+square_outward one_head_outward+biases_in
  square_inward+two_projections two_projections+as_float
grouped_scores: softmax_too_early+dealt_out by_root_t_q+first_for_all roles_exchanged+by_d_k
  by_root_axis_1+dealt_out by_d_k+dealt_out no_scale+dealt_out
masked_softmax: true_means_keep+softmax_over_queries blocked_rows_uniform+true_means_keep
  blocked_rows_uniform+softmax_over_queries true_means_keep+blocked_rows_left
  log_softmax+blocked_rows_left too_high+softmax_over_queries
merge_heads: dimensions_before_heads+merged_in_reverse merged_in_reverse+heads_below_each_other
  merged_in_reverse+merged_tokens_first dimensions_before_heads+merged_tokens_first
next_token_loss: shift_backwards+per_sequence no_shift+sign_missing
  softmax_over_positions+sign_missing probabilities+total shift_backwards+softmax_twice
  rolled+in_bits softmax_twice+total no_shift+zero_is_padding shift_by_two+total
  no_shift+softmax_twice shift_backwards+total no_shift+total shift_backwards+in_bits
padding_mask: tokens_marked+queries_blocked tokens_marked+axis_behind
  pad_one_early+queries_blocked pad_one_late+queries_blocked tokens_marked+as_floats
  tokens_marked+as_integers pad_one_late+one_axis_short
previous_token_score: next_token+heads_averaged next_token+divided_by_t next_token+added_up
  itself+heads_averaged itself+over_heads
project_qkv: results_021+blocks_not_transposed dealt_like_cards+results_120
  dealt_like_cards+results_102
solved: ties_too+as_numbers ties_too+as_list column+as_integers
split_heads: interleaved+order_B_h_d_k_T interleaved+order_B_T_h_d_k
sum_of_head_writes: averaged+slabs_reversed steps_of_one+last_only columns_dealt+averaged
  averaged+torn_apart
MultiHeadAttention: merged_in_reverse+without_w_o made_by_qkx+zeroed_after
  no_scale+blocked_rows_left without_w_o+no_scale mask_ignored+with_residual
  blocked_rows_uniform+true_means_keep
"""
PAIRS = {
    exercise: [tuple(pair.split("+")) for pair in pairs.split()]
    for exercise, pairs in re.findall(r"^(\w+): (.*(?:\n  .*)*)", TABLE, re.M)
}
