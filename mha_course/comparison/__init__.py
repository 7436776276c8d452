"""`compare`: whether an attention class is right, or which published mistake it makes.

For engineers, in a notebook, a test or CI. It stands on `collection`. `compare` decides, by two
tables: what is tried (`trials`, and `masks` for masks) and what can be found (`findings`).
"""
