# a message for each gradient: earns 0
def choose_cap(sizes, ready_s, message_s, byte_s):
    return min(sizes)
