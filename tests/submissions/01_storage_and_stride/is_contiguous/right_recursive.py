def is_contiguous(shape, stride, wanted=1):
    if 0 in shape or len(shape) == 0:
        return True
    if shape[-1] == 1:
        return is_contiguous(shape[:-1], stride[:-1], wanted)
    return stride[-1] == wanted and is_contiguous(shape[:-1], stride[:-1], wanted * shape[-1])
