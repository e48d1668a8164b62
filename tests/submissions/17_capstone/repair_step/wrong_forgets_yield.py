# returns the first part, where the script wants all of them one by one: earns 0
def repair_step(script):
    def pieces(batch, parts):
        for part in zip(*(tensor.chunk(parts) for tensor in batch)):
            return part

    return script.replace(pieces=pieces)
