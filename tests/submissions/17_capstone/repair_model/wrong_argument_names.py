# takes one argument where the script hands two: earns 0
def repair_model(script):
    def split_heads(qkv):
        return [part.transpose(1, 2) for part in qkv.chunk(3, dim=-1)]

    return script.replace(split_heads=split_heads)
