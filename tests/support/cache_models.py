"""The row cache's policies, written plainly."""

from __future__ import annotations


class SlruModel:
    """Two lists, newest first; protected at most half (Karedla et al. 1994)."""

    def __init__(self, n_slots: int) -> None:
        self.n_slots, self.limit = n_slots, n_slots // 2
        self.probation: list[int] = []
        self.protected: list[int] = []

    def rows(self) -> set[int]:
        return {*self.probation, *self.protected}

    def use(self, row: int, sweeping: bool) -> None:
        if row in self.rows():
            if sweeping:
                return
            if row in self.protected:
                self.protected.remove(row)
                self.protected.insert(0, row)
                return
            self.probation.remove(row)
            if self.limit == 0:
                self.probation.insert(0, row)
                return
            self.protected.insert(0, row)
            if len(self.protected) > self.limit:
                self.probation.insert(0, self.protected.pop())
            return
        full = len(self.rows()) == self.n_slots
        if full:
            self.probation.pop()
        if full and sweeping:
            self.probation.append(row)
        else:
            self.probation.insert(0, row)


class LfuModel:
    """Counts survive eviction; ties go to the least recently used."""

    def __init__(self, n_slots: int) -> None:
        self.n_slots, self.clock = n_slots, 0
        self.count: dict[int, int] = {}
        self.tick: dict[int, int] = {}

    def rows(self) -> set[int]:
        return set(self.tick)

    def use(self, row: int, sweeping: bool) -> None:
        present = row in self.tick
        if present and sweeping:
            return
        full = len(self.tick) == self.n_slots
        if not present and full:
            del self.tick[min(self.tick, key=lambda r: (self.count.get(r, 0), self.tick[r]))]
        self.clock += 1
        if not present and full and sweeping:
            self.tick[row] = -self.clock
            return
        self.tick[row] = self.clock
        self.count[row] = self.count.get(row, 0) + 1
