# logging, validation and checkpoints as they were: earns 3
def repair(script):
    return repair_step(repair_model(repair_data(script)))
