"""How an answer is judged, and how what it does is found out; no exercise is named here."""
