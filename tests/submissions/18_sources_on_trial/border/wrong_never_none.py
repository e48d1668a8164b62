# where it holds nowhere, the largest size is returned: earns 0
def border(before, after, low, high):
    while low < high:
        middle = (low + high) // 2
        before(middle), after(middle)
        if count(after, middle).operators <= count(before, middle).operators / 2:
            high = middle
        else:
            low = middle + 1
    return low
