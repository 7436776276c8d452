"""What opens the course: JupyterLab on the learner's own copies, the model's weights, practice.

For learners at home and in class. It stands on `check`.
"""
