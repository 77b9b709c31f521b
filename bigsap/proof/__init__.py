"""Independent proof of results: each row's least ``c - v``, from all pairs or from bounds.

``geometry`` describes a source's costs, ``tree`` puts its columns into boxes, ``descent`` finds the
minimum of each row, ``minima`` runs it. Nothing is shared with the search: an error in the search's
boxes or bounds would be found by the proof.
"""
