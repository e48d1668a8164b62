# counts the gradients of the next block only, where those of all later ones are there: earns 1
import itertools


def plan(blocks, n, budget):
    b, best = [0, *blocks, 0], None
    for gone in itertools.product([True, False], repeat=len(blocks)):
        kept, fits = 0, True
        for i in range(1, len(blocks) + 1):
            ahead = b[i - 1] if i > 1 and gone[i - 2] else 0
            fits &= kept + 2 * b[i] + b[i - 1] <= budget
            fits &= kept + ahead + 2 * b[i] + b[i + 1] + b[i + 1] // n <= budget
            kept += 0 if gone[i - 1] else b[i]
        if fits and (best is None or kept > best[0]):
            best = kept, list(gone)
    if best is None:
        raise ValueError("no plan fits")
    return best[1]
