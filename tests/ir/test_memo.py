"""What is remembered does not grow without end."""

from __future__ import annotations

from graphopt.ir.memo import Memo


def test_a_full_memo_begins_anew():
    memo: Memo[int, int] = Memo(3)
    for i in range(10):
        memo[i] = i * i
        assert memo[i] == i * i and len(memo) <= 3
