"""Notebooks as pages to hand out: moving pages, paper, slides, the site.

For teachers. It stands on `cells` and `pictures`.
"""
