"""What a picture says (panels), where its marks stand (layout), and two ways to draw them.

For the explorers and for notebooks' own pictures, on paper and in the browser. It stands on `base`.
"""
