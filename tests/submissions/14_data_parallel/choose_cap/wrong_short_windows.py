# it tries no bucket of more than 32 gradients: earns 1
def choose_cap(sizes: list[int], ready_s: list[float], message_s: float, byte_s: float) -> int:
    def end(cap):
        done, held = 0.0, 0
        for i, (size, ready) in enumerate(zip(sizes, ready_s)):
            held += size
            if held >= cap or i == len(sizes) - 1:
                done = max(done, ready) + message_s + held * byte_s
                held = 0
        return done

    candidates = set()
    for i in range(len(sizes)):
        total = 0
        for size in sizes[i : i + 32]:
            total += size
            candidates.add(total)
    return min(sorted(candidates), key=end)
