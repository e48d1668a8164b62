# four heads of eight features, written out: earns 0
def repair_model(script):
    def split_heads(qkv, heads):
        return [part.unflatten(-1, (4, 8)).transpose(1, 2) for part in qkv.chunk(3, dim=-1)]

    return script.replace(split_heads=split_heads)
