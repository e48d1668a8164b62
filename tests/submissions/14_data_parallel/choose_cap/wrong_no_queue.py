# lets buckets be sent at the same time over the one link: earns 0
def choose_cap(sizes, ready_s, message_s, byte_s):
    def end(cap):
        last, held = 0.0, 0
        for i, (s, r) in enumerate(zip(sizes, ready_s)):
            held += s
            if held >= cap or i == len(sizes) - 1:
                last, held = max(last, r + message_s + held * byte_s), 0
        return last

    return min((sum(sizes[i:j]) for i in range(len(sizes)) for j in range(i + 1, len(sizes) + 1)), key=end)
