def choose_cap(sizes, ready_s, message_s, byte_s):
    """The least size that makes another cut than this one: of the sums that reached it, the smallest, and one more."""
    cap, best = 1, None
    while True:
        free, held, smallest = 0.0, 0, float("inf")
        for size, ready in zip(sizes, ready_s):
            held += size
            if held >= cap:
                smallest = min(smallest, held)
                free = max(free, ready) + message_s + held * byte_s
                held = 0
        if held:
            free = max(free, ready_s[-1]) + message_s + held * byte_s
        if best is None or free < best[0]:
            best = free, cap
        if cap > sum(sizes):
            return best[1]
        cap = min(smallest, sum(sizes)) + 1
