# searches as if the end had one valley only: earns 0
def choose_cap(sizes, ready_s, message_s, byte_s):
    def end(cap):
        free, held = 0.0, 0
        for i, (size, ready) in enumerate(zip(sizes, ready_s)):
            held += size
            if held >= cap or i == len(sizes) - 1:
                free, held = max(free, ready) + message_s + held * byte_s, 0
        return free

    low, high = 1, sum(sizes)
    while high - low > 2:
        a, b = low + (high - low) // 3, high - (high - low) // 3
        if end(a) <= end(b):
            high = b
        else:
            low = a
    return min(range(low, high + 1), key=end)
