"""The proof by bounds: each row's least ``c - v`` without a look at every pair.

``geometry`` says what is known of a source's costs, ``tree`` puts its columns into boxes,
``descent`` finds the minimum of each row, ``minima`` runs it. Nothing here is shared with the
search: the search may be wrong in its boxes and bounds, and the proof would show it.
"""
