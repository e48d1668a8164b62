# the step as it was: earns 2
def repair(script):
    return repair_run(repair_model(repair_data(script)))
