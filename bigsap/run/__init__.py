"""Execution of one solve: the ladder of strategies, interruption, proof, result and statistics."""
