# the default, whatever the step: earns 0
def choose_cap(sizes, ready_s, message_s, byte_s):
    return 25 * 2**20
