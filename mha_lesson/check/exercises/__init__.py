"""The exercises, a file for each notebook: the right answer, inputs to try, and known slips."""
