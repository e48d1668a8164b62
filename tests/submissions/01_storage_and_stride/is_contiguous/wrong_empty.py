# forgets that an empty tensor is contiguous: earns 0
def is_contiguous(shape, stride):
    wanted = 1
    for size, step in zip(reversed(shape), reversed(stride)):
        if size != 1 and step != wanted:
            return False
        wanted *= size
    return True
