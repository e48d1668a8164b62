# what is around the step as it was: earns 2
def repair(script):
    return repair_step(repair_model(repair_data(script)))
