"""The exercises, nearly a file for each notebook: right answers, inputs to try, known slips."""
