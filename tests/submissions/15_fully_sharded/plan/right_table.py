def plan(blocks, n, budget):
    # kept bytes before a block → one plan that gives it; what block i - 1 needs gathered, it needs kept or not
    found = {0: []}
    for i, b in enumerate(blocks):
        before = blocks[i - 1] if i else 0
        after = (blocks[i + 1] if i + 1 < len(blocks) else 0) + sum(blocks[i + 1 :]) // n
        more = {}
        for kept, gone in found.items():
            ahead = before if gone and gone[-1] else 0
            if max(kept + 2 * b + before, kept + ahead + 2 * b + after) <= budget:
                more.setdefault((kept, True), [*gone, True])
                more.setdefault((kept + b, False), [*gone, False])
        found = _Sums(more)
    if not found:
        raise ValueError("no plan fits")
    return max(found.items(), key=lambda pair: pair[0])[1]


class _Sums(dict):
    """Sums, with both ways of ending: (kept, last let go of) → plan."""

    def items(self):
        return [(kept, gone) for (kept, _), gone in super().items()]
